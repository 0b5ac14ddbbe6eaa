/// Agreement of all processes of a job: on results, on the end of training, on refused differences.

#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/places.hpp"
#include "distributed/processes.hpp"
#include "lockstep/checkpoints.hpp"
#include "lockstep/elastic.hpp"
#include "lockstep/strategies/multi_worker_mirrored.hpp"
#include "support/folder.hpp"
#include "unit/training/mirrored_support.hpp"

using namespace distributed;
using ls::Reference;

namespace {

std::vector<double> flat(const replicas::Result& run) {
  std::vector<double> all;
  for (const auto* part : {&run.step_losses, &run.epoch, &run.tested, &run.predicted, &run.weights})
    all.insert(all.end(), part->begin(), part->end());
  all.insert(all.end(), run.digest.begin(), run.digest.end());
  return all;
}

constexpr std::size_t digest_size = 64;
/// Without the digest, which must be equal, not close.
std::vector<double> numbers_of(std::vector<double> all) {
  all.resize(all.size() - digest_size);
  return all;
}

void all_succeed(Processes& job) {
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    CAPTURE(rank, job.report(rank).what.text);
    REQUIRE(job.report(rank).outcome == Outcome::done);
  }
  CHECK(job.has_no_orphans());
}

/// The options in which the ranks of a test differ.
struct Choice {
  std::uint64_t seed = 1;
  double rate = 0.1;
  std::size_t batch = 8, virtual_shards = 0;
  ls::ClassWeights class_weight{};
};

template <class Net>
void train(const Choice& choice) {
  ls::Model model{
      Net{}, ls::Seed{choice.seed},
      ls::MultiWorkerMirrored<Reference<float>>{.virtual_shards = choice.virtual_shards},
      replicas::crossentropy, ls::SGD{.learning_rate = choice.rate}};
  auto options = line::quiet();
  options.class_weight = choice.class_weight;
  model.fit(line::classes(24) | ls::batch(choice.batch), options);
}

/// A job in which one rank differs. All ranks must end at once with an error.
struct Disagreement {
  Disagreement(std::size_t workers, const std::function<void(Here&)>& body)
      : job(workers, body, 25s) {
    const auto began = Clock::now();
    REQUIRE(job.all_end());
    CAPTURE(job.logs());
    CHECK(Clock::now() - began < 5s);
    for (std::size_t rank = 0; rank < workers; ++rank) {
      sentences.push_back(job.report(rank).what);
      CAPTURE(rank, sentences.back());
      CHECK(job.end(rank).exited);
      CHECK(job.end(rank).status == 3);
    }
    CHECK(job.has_no_orphans());
  }

  Processes job;
  std::vector<std::string> sentences;
};

/// All ranks must throw the same message. It names the odd rank and another one, the field and its
/// two values.
void is_refused(std::size_t workers, std::size_t odd_rank, const std::function<void(Here&)>& body,
                const std::string& field, const std::string& value, const std::string& others) {
  CAPTURE(odd_rank, field);
  Disagreement refused(workers, body);
  const std::string& sentence = refused.sentences[0];
  CAPTURE(sentence);
  for (std::size_t rank = 0; rank < workers; ++rank) {
    CAPTURE(rank);
    CHECK(refused.job.report(rank).outcome == Outcome::error);
    CHECK(refused.sentences[rank] == sentence);
  }
  const auto mentions = [&](const std::string& words) {
    return sentence.find(words) != std::string::npos;
  };
  std::size_t named = 0;
  for (std::size_t rank = 0; rank < workers; ++rank)
    named += mentions(fmt::format("rank {} (", rank));
  CHECK(named == 2);
  CHECK(mentions(fmt::format("rank {} (", odd_rank)));
  CHECK(mentions(field));
  CHECK(mentions(value));
  CHECK(mentions(others));
}

/// All ranks use the default Choice except one.
std::function<void(Here&)> one_chooses(std::size_t odd_rank, const Choice& odd) {
  return [=](Here& here) { train<line::Classes>(here.rank == odd_rank ? odd : Choice{}); };
}
void is_refused(std::size_t workers, std::size_t odd_rank, const Choice& odd,
                const std::string& field, const std::string& value, const std::string& others) {
  is_refused(workers, odd_rank, one_chooses(odd_rank, odd), field, value, others);
}

/// All ranks train Net except rank 1, which trains Odd.
template <class Net, class Odd>
void model_is_refused(const std::string& field, const std::string& value,
                      const std::string& others) {
  const auto body = [](Here& here) {
    if (here.rank == 1)
      train<Odd>({});
    else
      train<Net>({});
  };
  is_refused(2, 1, body, field, value, others);
}

template <class Middle, auto... Options>
struct Middled : ls::Sequential<ls::Input<2>, ls::Dense<8>, Middle, ls::Dense<3, Options...>> {};

}  // namespace

TEST_CASE(
    "fit, evaluate and predict of one to four workers equal those of one device, on all ranks") {
  const auto run = [](const auto& strategy) {
    return replicas::run<replicas::Noisy>(strategy, 45, 16, ls::Adam{.learning_rate = 0.01});
  };
  const auto one = flat(run(ls::OneDevice<Reference<double>>{}));
  for (const auto& [workers, each] : {std::pair{1u, 2u}, {2u, 1u}, {3u, 2u}, {4u, 1u}}) {
    CAPTURE(workers, each);
    Processes job(workers, [&, each = each](Here& here) {
      here.give(flat(run(ls::MultiWorkerMirrored<Reference<double>>{.replicas = each})));
    });
    all_succeed(job);
    for (std::size_t rank = 0; rank < workers; ++rank) {
      CHECK(job.numbers(rank) == job.numbers(0));
      CHECK(replicas::distance(numbers_of(job.numbers(rank)), numbers_of(one)) < 1e-12);
    }
  }
}

TEST_CASE("workers can have different numbers of replicas") {
  const auto run = [](const auto& strategy) {
    return replicas::run<replicas::Noisy>(strategy, 45, 16, ls::Adam{.learning_rate = 0.01});
  };
  const auto one = flat(run(ls::OneDevice<Reference<double>>{}));
  Processes job(3, [&](Here& here) {
    const std::size_t mine = here.rank == 1 ? 3 : 1;
    here.give(flat(run(ls::MultiWorkerMirrored<Reference<double>>{.replicas = mine})));
  });
  all_succeed(job);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(job.numbers(rank) == job.numbers(0));
    CHECK(replicas::distance(numbers_of(job.numbers(rank)), numbers_of(one)) < 1e-12);
  }
}

TEST_CASE("with virtual shards the weights are bitwise equal for any workers and replicas") {
  const auto run = [](const auto& strategy) {
    return replicas::run<replicas::Noisy>(strategy, 45, 16, ls::Adam{.learning_rate = 0.01});
  };
  for (const std::size_t shards : {4u, 8u}) {
    // The same with threads of one process.
    const auto expected =
        flat(run(ls::Mirrored<Reference<float>>{.replicas = 1, .virtual_shards = shards}));
    for (const auto& [workers, each] : {std::pair{1u, 1u}, {1u, 4u}, {2u, 2u}, {4u, 1u}}) {
      CAPTURE(shards, workers, each);
      Processes job(workers, [&, each = each](Here& here) {
        here.give(flat(run(ls::MultiWorkerMirrored<Reference<float>>{.replicas = each,
                                                                     .virtual_shards = shards})));
      });
      all_succeed(job);
      for (std::size_t rank = 0; rank < workers; ++rank) CHECK(job.numbers(rank) == expected);
    }
  }
}

TEST_CASE("a stop request of one rank ends the training of all after the same step") {
  for (const std::size_t asking : {0u, 2u}) {
    CAPTURE(asking);
    constexpr std::uint64_t at = 13;
    Processes job(3, [&](Here& here) {
      ls::Model model{line::Classes{}, ls::MultiWorkerMirrored<Reference<float>>{},
                      replicas::crossentropy, ls::SGD{.learning_rate = 0.1}};
      std::stop_source source;
      auto options = line::quiet(1'000'000);
      options.stop = source.get_token();
      options.callbacks = {
          ls::LambdaCallback{.on_train_batch_end = [&](std::size_t, const ls::Logs&) {
            if (++here.report.steps == at && here.rank == asking) source.request_stop();
          }}};
      model.fit(line::classes(40) | ls::batch(8), options);
      const std::string digest = model.weights_sha256();
      here.give({digest.begin(), digest.end()});
    });
    all_succeed(job);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      CHECK(job.report(rank).steps >= at);
      CHECK(job.report(rank).steps <= at + 1);
      CHECK(job.report(rank).steps == job.report(0).steps);
      CHECK(job.numbers(rank) == job.numbers(0));
    }
  }
}

TEST_CASE("a worker that leaves while others continue is named by them") {
  Processes job(3, [](Here& here) {
    ls::Model model{line::Classes{}, ls::MultiWorkerMirrored<Reference<float>>{},
                    replicas::crossentropy, ls::SGD{.learning_rate = 0.1}};
    const auto data = line::classes(40) | ls::batch(8);
    model.fit(data, line::quiet());
    if (here.rank == 2) return;
    model.fit(data, line::quiet());
  });
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  CHECK(job.report(2).outcome == Outcome::done);
  for (const std::size_t rank : {0u, 1u}) {
    CAPTURE(rank, job.report(rank).what.text);
    CHECK(job.report(rank).outcome == Outcome::peer_lost);
    CHECK(job.report(rank).lost_rank == 2);
    CHECK(std::string(job.report(rank).how).find("left") != std::string::npos);
  }
  CHECK(job.has_no_orphans());
}

TEST_CASE("processes that differ refuse each other with one message that names the difference") {
  is_refused(3, 1, {.seed = 77}, "\"seed\"", "\"77\"", "\"1\"");
  is_refused(3, 2, {.rate = 0.25}, "\"optimizer\"", "rate 0.25", "rate 0.1");
  is_refused(2, 1, {.virtual_shards = 4}, "\"virtual shards\"", "\"4\"", "\"0\"");
}

TEST_CASE("models that differ only in an option without parameters are refused") {
  using ls::ReLU, ls::Dropout, ls::rate, ls::L2;
  model_is_refused<Middled<ReLU>, Middled<ls::Tanh>>("\"layers\"", "\"tanh to", "\"re_lu to");
  model_is_refused<Middled<Dropout<rate(0.5f)>>, Middled<Dropout<rate(0.2f)>>>(
      "\"layers\"", "dropout (rate 0.2)", "dropout (rate 0.5)");
  model_is_refused<Middled<ReLU, ls::kernel_regularizer(L2{0.01})>,
                   Middled<ReLU, ls::kernel_regularizer(L2{0.02})>>(
      "\"layers\"", "kernel (8, 3) l2 0.02", "kernel (8, 3) l2 0.01");
  model_is_refused<Middled<ReLU>, Middled<ReLU, ls::bias_initializer(ls::ones)>>(
      "\"initial values\"", "dense_1/bias 1, checksum", "dense_1/bias 0, checksum");
}

TEST_CASE("calls of fit with different batches are refused with one message") {
  for (int i = 0; i < 6; ++i)
    is_refused(3, static_cast<std::size_t>(i % 3), {.batch = 12}, "\"global batch\"", "\"12\"",
               "\"8\"");
}

TEST_CASE("different class weights are refused") {
  is_refused(2, 1, {.class_weight = {{2, 0.5}}}, "\"weights\"", "\"class 2 0.5\"", "\"none\"");
}

TEST_CASE("learning rates that differ only in the ninth digit are refused too") {
  is_refused(2, 1, {.rate = 0.100000001}, "\"optimizer\"", "rate 0.100000001", "rate 0.1");
}

namespace {

/// The examples of one rank, as files in which something differs would give them.
struct Examples {
  std::vector<float> x = std::vector<float>(48);
  std::vector<std::int32_t> y = std::vector<std::int32_t>(24);
  std::vector<double> w = std::vector<double>(24, 1);
  Examples() {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.1f * static_cast<float>(i);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<std::int32_t>(i % 3);
  }
  Examples& reverse() {
    std::reverse(x.begin(), x.end());
    std::reverse(y.begin(), y.end());
    return *this;
  }
  auto data() const {
    return ls::tensors(x, ls::shape(2), y) | ls::sample_weights(w) | ls::batch(8);
  }
};

auto small_model() {
  return ls::Model{line::Classes{}, ls::MultiWorkerMirrored<Reference<float>>{},
                   replicas::crossentropy, ls::SGD{.learning_rate = 0.1}};
}

/// All ranks call `use` with the same data except rank 1; the error names `field` and the remedy.
void data_are_refused(const Examples& odd, const std::string& field,
                      const std::function<void(const Examples&)>& use) {
  is_refused(
      2, 1, [&](Here& here) { use(here.rank == 1 ? odd : Examples()); }, field, "digest",
      "each worker must read the whole data set, in the same order");
}

void fits(const Examples& examples) { small_model().fit(examples.data(), line::quiet()); }

}  // namespace

TEST_CASE("workers whose data differ in order, features, labels or weights refuse to train") {
  Examples labels, dark, weights;
  labels.y[23] = 0;
  std::fill(dark.x.begin(), dark.x.end(), 0.0f);
  weights.w.back() = 3;
  data_are_refused(Examples().reverse(), "\"features of the examples\"", fits);
  data_are_refused(dark, "\"features of the examples\"", fits);
  data_are_refused(labels, "\"targets of the examples\"", fits);
  data_are_refused(weights, "\"weights of the examples\"", fits);
}

TEST_CASE("workers compare the data of evaluate, predict and validation") {
  const auto odd = Examples().reverse();
  const std::string features = "\"features of the examples\"";
  data_are_refused(odd, features, [](const Examples& e) { small_model().evaluate(e.data()); });
  data_are_refused(odd, features, [](const Examples& e) { small_model().predict(e.data()); });
  data_are_refused(odd, "\"features of the validation examples\"", [](const Examples& e) {
    small_model().fit(Examples().data(), e.data(), line::quiet());
  });
}

TEST_CASE("predict reads no targets, and generators may differ: the job goes on with a warning") {
  Processes job(2, [](Here& here) {
    here.run_and_report([&] {
      auto model = small_model();
      Examples labels;
      if (here.rank == 1) labels.y.assign(24, 2);
      model.predict(labels.data());
      const auto own = [rank = here.rank](std::uint64_t n, auto& e) {
        e.x[0] = e.x[1] = static_cast<float>(n + 100 * rank);
        e.y[0] = 0;
      };
      for (int i = 0; i < 2; ++i)
        model.fit(ls::generator(24, ls::shape(2), {}, own) | ls::batch(8), line::quiet());
    });
  });
  all_succeed(job);
  const std::string log = job.logs(), warning = "the generators of the workers give different";
  const auto at = log.find(warning);
  CHECK(at != std::string::npos);
  CHECK(log.find(warning, at + 1) == std::string::npos);
}

namespace {

struct OneOutput : ls::Sequential<ls::Input<2>, ls::Dense<1>> {};
/// The loss of a program whose option is a member.
struct Quantile {
  using target_type = float;
  static constexpr std::string_view name = "quantile";
  float q = 0.5f;
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr ls::Shape target_shape(ls::Shape out) { return out; }
  ls::MeanSquaredErrorOp op(ls::Shape out) const { return ls::MeanSquaredError{}.op(out); }
};

}  // namespace

TEST_CASE("options of custom losses are compared") {
  is_refused(
      2, 1,
      [](Here& here) {
        ls::Model model{OneOutput{}, ls::MultiWorkerMirrored<Reference<float>>{},
                        Quantile{.q = here.rank == 1 ? 0.1f : 0.9f}, ls::SGD{}};
      },
      "\"loss\"", "options (0.1)", "options (0.9)");
}

TEST_CASE("the rate of a step is that of the chief's schedule, on all workers") {
  // Rank 0's boundary applies to all, also to an optimizer of a function that returns 0.
  const auto rates = [](std::uint64_t boundary) {
    return [boundary](std::uint64_t step) {
      return step == 2 ? 0.0 : step < boundary ? 0.1 : 0.01;
    };
  };
  const auto train = [&](const auto& strategy, std::uint64_t boundary) {
    ls::Model model{line::Classes{}, strategy, replicas::crossentropy,
                    ls::SGD{.learning_rate = rates(boundary)}};
    model.fit(Examples().data(), line::quiet(3));
    return model.weights("dense/kernel");
  };
  const std::vector<double> one = train(ls::OneDevice<Reference<double>>{}, 5);
  Processes job(3, [&](Here& here) {
    here.run_and_report([&] {
      here.give(
          train(ls::MultiWorkerMirrored<Reference<double>>{.replicas = 2}, here.rank == 0 ? 5 : 3));
    });
  });
  all_succeed(job);
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    CHECK(job.numbers(rank) == job.numbers(0));
    CHECK(replicas::distance(job.numbers(rank), one) < 1e-12);
  }
  CHECK(job.logs().find("in step 3 the function of this worker gives 0.01, and that of rank 0 "
                        "gives 0.1") != std::string::npos);
}

TEST_CASE("weights that a hook changes on one rank only end fit with one message, at its end too") {
  for (const int epoch : {0, 1}) {
    CAPTURE(epoch);
    Disagreement refused(2, [=](Here& here) {
      auto model = small_model();
      auto options = line::quiet(2);
      options.callbacks = {ls::LambdaCallback{.on_epoch_end = [&](int e, const ls::Logs&) {
        if (here.rank == 1 && e == epoch)
          model.set_weights("dense/bias", std::vector<float>(8, 0.5f));
      }}};
      model.fit(Examples().data(), options);
    });
    for (const std::string& sentence : refused.sentences) {
      CAPTURE(sentence);
      CHECK(sentence.find("holds a different dense/") != sentence.npos);
      CHECK(sentence.find("after step 6") != sentence.npos);
    }
  }
}

TEST_CASE("checkpoints after different steps are refused, since all workers compare weights then") {
  const testing::Folder folder;
  const auto body = [&](Here& here) {
    auto options = line::quiet();
    options.checkpoint = {.directory = folder / "run", .every = here.rank == 1 ? 3u : 2u};
    auto model = small_model();
    model.fit(line::classes(24) | ls::batch(8), options);
  };
  is_refused(2, 1, body, "\"checkpoints\"", "every 3 steps", "every 2 steps");
}

TEST_CASE("a callback that writes files in the chief only is refused in an elastic job") {
  const testing::Folder folder;
  const auto body = [&](Here& here) {
    ls::Model model{line::Classes{},
                    ls::MultiWorkerMirrored<Reference<float>, ls::Tcp, ls::Elastic>{
                        .elastic = {.min_workers = 1}},
                    replicas::crossentropy, ls::SGD{.learning_rate = 0.1}};
    auto options = line::quiet();
    if (here.rank == 0) options.callbacks = {ls::CSVLogger{folder / "log.csv"}};
    model.fit(line::classes(24) | ls::batch(8), options);
  };
  is_refused(2, 0, body, "\"callbacks that write files\"", "\"CSVLogger\"", "\"none\"");
}

TEST_CASE("when one worker's options are invalid, all workers report it at once") {
  Disagreement refused(3, one_chooses(1, {.virtual_shards = 6}));
  for (const std::string& sentence : refused.sentences) {
    CAPTURE(sentence);
    CHECK(sentence.find("virtual") != std::string::npos);
  }
}

namespace {

/// Sets the learning rate in those hooks for which `when(hook, epoch, batch)` holds.
struct SetsRate : ls::Callback {
  enum class Hook { epoch_begin, batch_begin, batch_end, epoch_end, train_end };
  using When = std::function<bool(Hook hook, int epoch, std::size_t batch)>;
  explicit SetsRate(When w) : when(std::move(w)) {}
  void on_epoch_begin(int e, const ls::Logs&) override { set(Hook::epoch_begin, epoch = e); }
  void on_train_batch_begin(std::size_t b, const ls::Logs&) override {
    set(Hook::batch_begin, epoch, b);
  }
  void on_train_batch_end(std::size_t b, const ls::Logs&) override {
    set(Hook::batch_end, epoch, b);
  }
  void on_epoch_end(int e, const ls::Logs&) override { set(Hook::epoch_end, e); }
  void on_train_end(const ls::Logs&) override { set(Hook::train_end, epoch); }
  void set(Hook hook, int e, std::size_t batch = 0) {
    if (when(hook, e, batch)) control().set_learning_rate(0.01);
  }
  When when;
  int epoch = 0;
};
using Hook = SetsRate::Hook;

/// The weights and the learning rate after two fits of two epochs of three steps.
std::vector<double> train_with_rates(const auto& strategy, const SetsRate::When& when) {
  ls::Model model{line::Classes{}, strategy, replicas::crossentropy, ls::SGD{.learning_rate = 0.1}};
  ls::FitOptions options = line::quiet(2);
  options.verify_every = 1;
  options.callbacks = {std::make_shared<SetsRate>(when)};
  const auto data = line::classes(24) | ls::batch(8);
  model.fit(data, options);
  options.callbacks.clear();
  model.fit(data, options);
  std::vector<double> result = model.weights("dense/kernel");
  result.push_back(model.learning_rate());
  return result;
}

}  // namespace

TEST_CASE("a learning rate set by one rank applies to all ranks from the same step on") {
  for (const auto& [hook, epoch, batch] : {std::tuple{Hook::epoch_begin, 0, 0u},
                                           {Hook::epoch_begin, 1, 0u},
                                           {Hook::batch_begin, 0, 1u},
                                           {Hook::batch_end, 0, 1u},
                                           {Hook::batch_end, 1, 2u},
                                           {Hook::epoch_end, 1, 0u}}) {
    CAPTURE(static_cast<int>(hook), epoch, batch);
    const auto is_there = [&, hook = hook, epoch = epoch, batch = batch](Hook h, int e,
                                                                         std::size_t b) {
      return h == hook && e == epoch && b == batch;
    };
    const auto one = train_with_rates(ls::OneDevice<Reference<double>>{}, is_there);
    Processes job(3, [&](Here& here) {
      here.run_and_report([&] {
        here.give(train_with_rates(
            ls::MultiWorkerMirrored<Reference<double>>{},
            [&](Hook h, int e, std::size_t b) { return here.rank == 1 && is_there(h, e, b); }));
      });
    });
    all_succeed(job);
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      CAPTURE(rank);
      const std::vector<double> numbers = job.numbers(rank);
      REQUIRE(numbers.size() == one.size());
      CHECK(numbers.back() == 0.01);
      for (std::size_t i = 0; i < one.size(); ++i) CHECK(std::abs(numbers[i] - one[i]) < 1e-12);
    }
  }
}

TEST_CASE(
    "if two ranks set a learning rate at once, the first rank's applies to all, even a rate of 0") {
  Processes job(3, [&](Here& here) {
    here.run_and_report([&] {
      ls::Model model{line::Classes{}, ls::MultiWorkerMirrored<Reference<double>>{},
                      replicas::crossentropy, ls::SGD{.learning_rate = 0.1}};
      ls::FitOptions options = line::quiet(1);
      options.verify_every = 1;
      const auto all = std::array{0.1, 0.0, 0.5};
      options.callbacks = {
          ls::LambdaCallback{.on_train_batch_begin = [&](std::size_t, const ls::Logs&) {
            if (here.rank > 0) model.set_learning_rate(all[here.rank]);
          }}};
      const auto before = model.weights("dense/kernel");
      model.fit(line::classes(24) | ls::batch(8), options);
      here.give({model.learning_rate(), model.weights("dense/kernel") == before ? 1.0 : 0.0});
    });
  });
  all_succeed(job);
  for (std::size_t rank = 0; rank < job.size(); ++rank)
    CHECK(job.numbers(rank) == std::vector<double>{0, 1});
}

TEST_CASE("ranks that begin a fit with different learning rates refuse each other") {
  const auto body = [](Here& here) {
    train_with_rates(
        ls::MultiWorkerMirrored<Reference<double>>{},
        [&](Hook hook, int, std::size_t) { return here.rank == 1 && hook == Hook::train_end; });
  };
  is_refused(3, 1, body, "learning rate", "0.01", "0.1");
}

TEST_CASE("weights set on one rank only end evaluate and predict of all with one message") {
  for (const bool predicts : {false, true}) {
    Disagreement refused(3, [=](Here& here) {
      ls::Model model{line::Classes{}, ls::MultiWorkerMirrored<Reference<float>>{},
                      replicas::crossentropy, ls::SGD{.learning_rate = 0.1}};
      const auto data = line::classes(24) | ls::batch(8);
      model.fit(data, line::quiet());
      model.set_weights("dense/bias", std::vector<float>(8, 0.5f));  // on all ranks: accepted
      model.evaluate(data);
      if (here.rank == 1) model.set_weights("dense_1/bias", std::vector<float>(3, 0.5f));
      if (predicts)
        model.predict(data);
      else
        model.evaluate(data);
    });
    for (const std::string& sentence : refused.sentences) {
      CAPTURE(sentence);
      CHECK(sentence.find(
                "replica 1 (rank 1) holds a different dense_1/bias than 2 of the 3 replicas; "
                "set_weights or load_weights was called 1 times on rank 1 and 0 times on "
                "rank 0") != sentence.npos);
    }
  }
}

TEST_CASE("processes can open one job after another at the same address") {
  Processes job(3, [](Here& here) {
    here.run_and_report([&] {
      for (int i = 0; i < 12; ++i) {
        ls::Model model{line::Classes{}, ls::MultiWorkerMirrored<Reference<float>>{},
                        replicas::crossentropy, ls::SGD{.learning_rate = 0.1}};
        model.fit(line::classes(24) | ls::batch(8), line::quiet());
        ++here.report.steps;
      }
    });
  });
  all_succeed(job);
  for (std::size_t rank = 0; rank < job.size(); ++rank) CHECK(job.report(rank).steps == 12);
}

namespace {

template <class M>
std::unique_ptr<M> owned(M* model) {
  return std::unique_ptr<M>(model);
}

auto open_model(std::uint64_t seed, const ls::StallLimits& limits = {}) {
  return owned(new ls::Model{line::Classes{}, ls::Seed{seed},
                             ls::MultiWorkerMirrored<Reference<float>>{.stall_limits = limits},
                             replicas::crossentropy, ls::SGD{.learning_rate = 0.1}});
}

}  // namespace

TEST_CASE("models that are open at once share the job and train as if each were alone") {
  Processes job(3, [](Here& here) {
    here.run_and_report([&] {
      const auto data = line::classes(24) | ls::batch(8);
      const auto fit = [&](auto& model) { return model->fit(data, line::quiet())["loss"].back(); };
      std::vector<double> alone[2], together[2];
      std::string digests[2][2];
      for (const std::size_t i : {0u, 1u}) {
        auto model = open_model(i + 1);
        for (int round = 0; round < 3; ++round) alone[i].push_back(fit(model));
        digests[0][i] = model->weights_sha256();
      }
      auto first = open_model(1), second = open_model(2);
      for (int round = 0; round < 3; ++round) {
        together[0].push_back(fit(first));
        together[1].push_back(fit(second));
      }
      digests[1][0] = first->weights_sha256();
      digests[1][1] = second->weights_sha256();
      for (const std::size_t i : {0u, 1u})
        if (together[i] != alone[i] || digests[0][i] != digests[1][i] || digests[0][i].empty())
          throw ls::Error("models that are open at once train in another way");
      // The first model can close first and another one open; the job continues.
      first.reset();
      fit(second);
      auto third = open_model(3);
      fit(third);
      fit(second);
      try {
        const auto other = open_model(4, {.stall = 7s});
        throw ls::Error("other limits were accepted");
      } catch (const ls::UsageError& e) {
        if (std::string_view(e.what()).find("give all models the same") == std::string_view::npos)
          throw;
      }
      second.reset();
      fit(third);
      ++here.report.steps;
    });
  });
  all_succeed(job);
  for (std::size_t rank = 0; rank < job.size(); ++rank) CHECK(job.report(rank).steps == 1);
}

TEST_CASE("a worker that dies is named by all others, whichever model they use") {
  Processes job(3, [](Here& here) {
    const auto data = line::classes(24) | ls::batch(8);
    auto first = open_model(1), second = open_model(2);
    first->fit(data, line::quiet());
    if (here.rank == 1) ::kill(::getpid(), SIGKILL);
    auto options = line::quiet();
    options.epochs = 1'000'000;
    options.steps_per_epoch = 3;
    here.run_and_report(
        [&] { second->fit(line::classes(24) | ls::repeat() | ls::batch(8), options); });
  });
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  for (const std::size_t rank : {0u, 2u}) {
    CAPTURE(rank, job.report(rank).what.text);
    CHECK(job.report(rank).outcome == Outcome::peer_lost);
    CHECK(job.report(rank).lost_rank == 1);
  }
  CHECK(job.has_no_orphans());
}

TEST_CASE("a worker that dies while the data mesh forms is named at once") {
  // Not only after the mesh timeout.
  ::setenv("LOCKSTEP_MESH_TIMEOUT", "20", 1);
  ::setenv("LOCKSTEP_TRANSPORT", "tcp", 1);
  Processes job(3, [](Here& here) {
    if (here.rank != 2) return here.run_and_report([&] { open_model(1); });
    const auto environment = ls::process_environment();
    const auto cluster = ls::resolve_cluster(environment);
    ls::Rendezvous own({.cluster = cluster, .secret = ls::read_secret(environment, cluster)});
    own.agree("strategy",
              {{"transport", "tcp"},
               {"wire", "auto"},
               {"connections", "1"},
               {"interfaces", "1"},
               {"virtual shards", "0"},
               {"stragglers", "off"}},
              10s);
    send_place(own);  // the others now wait for its connections
    std::this_thread::sleep_for(500ms);
    here.begin_fault();
    ::kill(::getpid(), SIGKILL);
  });
  ::unsetenv("LOCKSTEP_MESH_TIMEOUT");
  ::unsetenv("LOCKSTEP_TRANSPORT");
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  for (const std::size_t rank : {0u, 1u}) {
    CAPTURE(rank, job.report(rank).what.text);
    CHECK(job.report(rank).outcome == Outcome::peer_lost);
    CHECK(job.report(rank).lost_rank == 2);
    CHECK(job.report(rank).reported_at - job.report(2).fault_at < 5s);  // guaranteed: 1 s
  }
}

TEST_CASE("data connections use the address and the ports of the variables") {
  const std::uint16_t first = static_cast<std::uint16_t>(20'000 + ::getpid() % 10'000);
  const auto last = static_cast<std::uint16_t>(first + 30);
  ::setenv("LOCKSTEP_TRANSPORT", "tcp", 1);
  ::setenv("LOCKSTEP_DATA_ADDRESS", "127.0.0.3", 1);
  ::setenv("LOCKSTEP_DATA_PORTS", fmt::format("{}-{}", first, last).c_str(), 1);
  {
    Processes job(3, [&](Here& here) {
      here.run_and_report([&] {
        auto model = open_model(1), other = open_model(2);
        model->fit(line::classes(24) | ls::batch(8), line::quiet());
        const std::uint32_t address = htonl(0x7F000003);
        double inside = 0, outside = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
          const int file = std::stoi(entry.path().filename().string());
          sockaddr_in ends[2]{};
          socklen_t lengths[2] = {sizeof ends[0], sizeof ends[1]};
          if (::getsockname(file, reinterpret_cast<sockaddr*>(&ends[0]), &lengths[0]) != 0 ||
              ::getpeername(file, reinterpret_cast<sockaddr*>(&ends[1]), &lengths[1]) != 0 ||
              ends[0].sin_family != AF_INET ||
              // The connecting side has the address of its route.
              (ends[0].sin_addr.s_addr != address && ends[1].sin_addr.s_addr != address))
            continue;
          bool is_inside = false;
          for (const sockaddr_in& end : ends)
            is_inside = is_inside || (ntohs(end.sin_port) >= first && ntohs(end.sin_port) <= last);
          ++(is_inside ? inside : outside);
        }
        here.give({inside, outside});
      });
    });
    all_succeed(job);
    for (std::size_t rank = 0; rank < job.size(); ++rank)
      CHECK(job.numbers(rank) == std::vector<double>{8, 0});  // two others, two models, two each
  }
  ::setenv("LOCKSTEP_DATA_PORTS", "20000", 1);
  {
    Processes job(3, [](Here& here) { here.run_and_report([&] { open_model(1); }); });
    REQUIRE(job.all_end());
    // Two of three listen, on one machine.
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      CAPTURE(rank, job.report(rank).what.text);
      CHECK(std::string(job.report(rank).what)
                .find("cannot listen at 127.0.0.3 on a port from 20000 to 20000") !=
            std::string::npos);
    }
  }
  ::unsetenv("LOCKSTEP_DATA_ADDRESS");
  ::unsetenv("LOCKSTEP_DATA_PORTS");
  ::unsetenv("LOCKSTEP_TRANSPORT");
}
