/// Training steps of the program's own in jobs of processes: the bits of one device, and losses.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <string>
#include <vector>

#include "distributed/processes.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/elastic.hpp"
#include "lockstep/lockstep.hpp"
#include "unit/training/mirrored_support.hpp"

using namespace distributed;

namespace {

constexpr std::size_t shards = 8;

struct Net : ls::Sequential<ls::Input<2>, ls::Dense<16>, ls::BatchNormalization<>, ls::ReLU,
                            ls::Dropout<ls::rate(0.4f)>, ls::Dense<3>> {};

auto data() { return line::classes(48) | ls::shuffle(16) | ls::batch(16); }

template <class Strategy>
auto model_on(const Strategy& strategy) {
  return ls::Model{Net{}, strategy, replicas::crossentropy, ls::Adam{.learning_rate = 0.01}};
}

/// One digest for each way to train; `kill(step)` is called in the midst of the steps of a fit.
template <class Strategy, class Kill>
std::string fit_digest(const Strategy& strategy, const Kill& kill) {
  auto model = model_on(strategy);
  model.fit(data(), line::quiet(2), [&](const auto& batch) {
    auto gradients = model.gradients_of(batch);
    kill(model.steps());
    gradients *= 0.5 / std::max(1.0, gradients.norm());
    model.apply(gradients);
  });
  return model.weights_sha256();
}
template <class Strategy, class Memory>
std::string loop_digest(const Strategy& strategy, const Memory& from_memory) {
  auto model = model_on(strategy);
  for (const auto& batch : model.batches(data())) model.apply(model.gradients_of(batch));
  from_memory(model);
  return model.weights_sha256();
}

std::vector<double> numbers(const std::string& digest) { return {digest.begin(), digest.end()}; }

/// 20 examples in memory.
const std::vector<float> x = [] {
  std::vector<float> values;
  for (int i = 0; i < 40; ++i) values.push_back(static_cast<float>(i % 7) / 4 - 1);
  return values;
}();
const std::vector<std::int32_t> y = [] {
  std::vector<std::int32_t> labels;
  for (int i = 0; i < 20; ++i) labels.push_back(i % 3);
  return labels;
}();

}  // namespace

TEST_CASE("own steps in two and four processes have the bits of one device") {
  const ls::OneDevice<ls::Cpu> alone{.on = {.threads = 1}, .virtual_shards = shards};
  const auto expected = numbers(fit_digest(alone, [](std::uint64_t) {}));
  const auto from_loop =
      numbers(loop_digest(alone, [](auto& model) { model.train_on_batch(x, y); }));
  for (const std::size_t workers : {2u, 4u}) {
    Processes job(workers, [&](Here& here) {
      const ls::MultiWorkerMirrored<ls::Cpu> strategy{.virtual_shards = shards};
      auto all = numbers(fit_digest(strategy, [](std::uint64_t) {}));
      const auto whole = numbers(
          loop_digest(strategy, [](auto& model) { model.train_on_batch(ls::global_batch, x, y); }));
      const auto parts = numbers(loop_digest(strategy, [&](auto& model) {
        // 20 examples in 8 slices: the first four have three.
        const std::size_t first =
            workers == 2 ? 12 * here.rank : std::vector<std::size_t>{0, 6, 12, 16}[here.rank];
        const std::size_t next = workers == 2 ? (here.rank == 0 ? 12 : 20)
                                              : std::vector<std::size_t>{6, 12, 16, 20}[here.rank];
        model.train_on_batch(ls::local_batch, std::span(x).subspan(2 * first, 2 * (next - first)),
                             std::span(y).subspan(first, next - first));
      }));
      all.insert(all.end(), whole.begin(), whole.end());
      all.insert(all.end(), parts.begin(), parts.end());
      here.give(all);
    });
    REQUIRE(job.all_end());
    INFO(job.logs());
    auto wanted = expected;
    wanted.insert(wanted.end(), from_loop.begin(), from_loop.end());
    wanted.insert(wanted.end(), from_loop.begin(), from_loop.end());
    for (std::size_t rank = 0; rank < workers; ++rank) {
      REQUIRE(job.end(rank).status == 0);
      CHECK(job.numbers(rank) == wanted);
    }
  }
}

TEST_CASE(
    "an elastic job whose worker dies within a step of the program ends with the bits of none") {
  const auto expected =
      numbers(fit_digest(ls::OneDevice<ls::Cpu>{.on = {.threads = 1}, .virtual_shards = shards},
                         [](std::uint64_t) {}));
  for (const std::size_t victim : {0u, 2u}) {
    Processes job(3, [&](Here& here) {
      const ls::MultiWorkerMirrored<ls::Cpu, ls::Tcp, ls::Elastic> strategy{
          .virtual_shards = shards, .elastic = {.min_workers = 2}};
      here.give(numbers(fit_digest(strategy, [&](std::uint64_t step) {
        if (step == 3 && here.rank == victim) ::kill(::getpid(), SIGKILL);
      })));
    });
    REQUIRE(job.all_end());
    INFO(job.logs());
    for (std::size_t rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      REQUIRE(job.end(rank).status == 0);
      CHECK(job.numbers(rank) == expected);
    }
  }
}

/// A generator and a critic, both of the strategy, trained in turn; their digests.
template <class Strategy>
std::string gan_digests(const Strategy& strategy) {
  struct Generator : ls::Sequential<ls::Input<2>, ls::Dense<8, ls::tanh>, ls::Dense<2>> {};
  struct Critic : ls::Sequential<ls::Input<2>, ls::Dense<16, ls::tanh>, ls::Dense<1>> {};
  ls::Model generator{Generator{}, ls::Seed{1}, strategy, ls::MeanSquaredError{}, ls::Adam{}};
  ls::Model critic{Critic{}, ls::Seed{2}, strategy, ls::BinaryCrossentropy{.from_logits = true},
                   ls::SGD{.learning_rate = 0.05}};
  const std::vector<float> real(20, 1), fake(20, 0);
  for (int step = 0; step < 5; ++step) {
    const auto noise = generator.batch(ls::global_batch, x);
    const auto made = generator.predict(noise);
    auto gradients = critic.gradients_of(critic.batch(ls::global_batch, x, real));
    gradients += critic.gradients_of(critic.batch(ls::global_batch, made.elements(), fake));
    critic.apply(gradients);
    const auto dx = critic.input_gradients(critic.batch(ls::global_batch, made.elements(), real));
    generator.apply(generator.gradients_of(noise, dx));
  }
  return generator.weights_sha256() + critic.weights_sha256();
}

TEST_CASE("two models trained in turn have the bits of one device, on replicas and in processes") {
  const std::string expected =
      gan_digests(ls::OneDevice<ls::Cpu>{.on = {.threads = 1}, .virtual_shards = shards});
  CHECK(gan_digests(ls::Mirrored<ls::Cpu>{
            .replicas = 4, .on = {.threads = 1}, .virtual_shards = shards}) == expected);
  Processes job(2, [&](Here& here) {
    here.give(numbers(gan_digests(ls::MultiWorkerMirrored<ls::Cpu>{.virtual_shards = shards})));
  });
  REQUIRE(job.all_end());
  INFO(job.logs());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    REQUIRE(job.end(rank).status == 0);
    CHECK(job.numbers(rank) == numbers(expected));
  }
}

/// A student that learns from a teacher of this process within the step, from augmented data.
template <class Strategy, class Kill>
std::string distilled(const Strategy& strategy, const Kill& kill) {
  struct Soft : ls::Sequential<ls::Input<2>, ls::Dense<8>, ls::ReLU, ls::Dense<3>> {};
  struct Teacher : ls::Sequential<ls::Input<2>, ls::Dense<3>, ls::Softmax> {};
  ls::Model teacher{Teacher{}, ls::Seed{3}, ls::OneDevice<ls::Cpu>{.on = {.threads = 1}},
                    ls::CategoricalCrossentropy{}, ls::SGD{}};
  ls::Model student{Soft{}, strategy, ls::CategoricalCrossentropy{.from_logits = true},
                    ls::Adam{.learning_rate = 0.01}};
  std::vector<float> one_hot(60);
  for (std::size_t i = 0; i < 20; ++i) one_hot[3 * i + i % 3] = 1;
  const auto noise = ls::map([](auto& example, auto& random) {
    for (float& v : example.x) v += 0.1F * static_cast<float>(random.normal());
  });
  const auto train =
      ls::tensors(x, ls::shape(2), one_hot, ls::shape(3)) | ls::shuffle(20) | noise | ls::batch(9);
  student.fit(train, line::quiet(3), [&](const auto& batch) {
    const auto soft = teacher.predict(batch);
    std::vector<float> targets(batch.y().begin(), batch.y().end());
    for (std::size_t i = 0; i < targets.size(); ++i)
      targets[i] = 0.5F * targets[i] + 0.5F * soft.elements()[i];
    kill(student.steps());
    student.train_step(batch.with_targets(targets));
  });
  return student.weights_sha256();
}

TEST_CASE("distillation within the step: replicas, processes, and an elastic job that loses one") {
  const auto none = [](std::uint64_t) {};
  const std::string expected =
      distilled(ls::OneDevice<ls::Cpu>{.on = {.threads = 1}, .virtual_shards = shards}, none);
  CHECK(distilled(
            ls::Mirrored<ls::Cpu>{.replicas = 2, .on = {.threads = 1}, .virtual_shards = shards},
            none) == expected);
  Processes job(2, [&](Here& here) {
    here.give(numbers(distilled(ls::MultiWorkerMirrored<ls::Cpu>{.virtual_shards = shards}, none)));
  });
  Processes elastic(3, [&](Here& here) {
    const ls::MultiWorkerMirrored<ls::Cpu, ls::Tcp, ls::Elastic> strategy{
        .virtual_shards = shards, .elastic = {.min_workers = 2}};
    here.give(numbers(distilled(strategy, [&](std::uint64_t step) {
      if (step == 4 && here.rank == 1) ::kill(::getpid(), SIGKILL);
    })));
  });
  REQUIRE(job.all_end());
  REQUIRE(elastic.all_end());
  INFO(job.logs() << elastic.logs());
  for (const std::size_t rank : {0u, 1u}) CHECK(job.numbers(rank) == numbers(expected));
  for (const std::size_t rank : {0u, 2u}) CHECK(elastic.numbers(rank) == numbers(expected));
}

TEST_CASE(
    "processes that differ in the step of a fit, or in the place in the data, refuse each other") {
  const auto refused = [](const auto& body) {
    Processes job(2, [&](Here& here) {
      auto model = model_on(ls::MultiWorkerMirrored<ls::Cpu>{});
      try {
        body(here, model);
      } catch (const ls::UsageError& e) {
        const std::string text = e.what();
        here.give({text.begin(), text.end()});
      }
    });
    std::string all;
    if (!job.all_end()) return std::string("does not end");
    for (std::size_t rank = 0; rank < 2; ++rank)
      for (const double c : job.numbers(rank)) all += static_cast<char>(c);
    return all;
  };
  const std::string steps = refused([](Here& here, auto& model) {
    if (here.rank == 0)
      model.fit(data(), line::quiet());
    else
      model.fit(data(), line::quiet(), [&](const auto& batch) { model.train_step(batch); });
  });
  CAPTURE(steps);
  CHECK(steps.find("training step") != std::string::npos);
  const std::string places = refused([](Here& here, auto& model) {
    std::size_t read = 0;
    for (const auto& batch : model.batches(data())) {
      read += batch.size();
      if (here.rank == 1) break;
    }
    model.batches(data());
  });
  CAPTURE(places);
  CHECK(places.find("passes") != std::string::npos);
}
