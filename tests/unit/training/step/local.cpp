/// \file
/// Replicas that make steps alone, in rounds: what they are equal to, what a program sees between two
/// rounds, and what a run continues with. The numbers of rounds: golden/local_steps.hpp.
#include "lockstep/training/step/local.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoints.hpp"
#include "lockstep/local_sgd.hpp"
#include "lockstep/training/report/profile.hpp"
#include "support/folder.hpp"
#include "support/run_kernel.hpp"
#include "unit/training/model_support.hpp"

namespace {

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using line::quiet;
using Device = ls::Reference<double>;
using One = ls::OneDevice<Device>;
using Many = ls::Mirrored<Device>;

static_assert(ls::UpdatePolicy<ls::LocalSgd, Device> && ls::UpdatePolicy<ls::DiLoCo, Device>);
static_assert(std::same_as<decltype(Many{} | ls::LocalSgd{}), ls::UpdatedBy<Many, ls::LocalSgd>>);

struct Net : ls::Sequential<ls::Input<2>, ls::Dense<8, ls::kernel_regularizer(ls::L2{0.01})>,
                            ls::BatchNormalization<>, ls::Tanh, ls::Dense<3>> {};
constexpr std::size_t weights = Net::trainable_count;

using Loss = ls::SparseCategoricalCrossentropy;
template <class S, class O>
auto model(const S& strategy, const O& optimizer, const Loss& loss = {.from_logits = true}) {
  return ls::Model{Net{}, ls::Seed{7}, strategy, loss, optimizer, ls::Accuracy{}};
}
/// Batches of 12, 12, 12 and 4.
auto data() { return line::classes(40) | ls::shuffle(40) | ls::batch(12); }
auto checked(int epochs) {
  auto options = quiet(epochs);
  options.verify_every = 1;
  return options;
}
/// A strategy that notes what its replicas exchange.
struct Noted : Many {
  struct Notes {
    std::atomic<std::size_t> sums = 0, weights = 0, others = 0;
    std::atomic<bool> fails = false;  // the next work of replica 1
  };
  Notes* notes = nullptr;

  struct Exchange {
    ls::GradientExchange<double> of;
    Notes* notes;
    void post(double* p, std::size_t n) {
      ++notes->others;
      of.post(p, n);
    }
    void finish(double* p, std::size_t n, double* sums, std::size_t m) {
      ++(n == 0 ? notes->sums : n == weights ? notes->weights : notes->others);
      of.finish(p, n, sums, m);
    }
  };
  struct Host {
    ls::CollectiveRef of;
    Notes* notes;
    std::size_t rank() const { return of.rank(); }
    std::size_t size() const { return of.size(); }
    void abort() {}
    template <class T>
    void all_reduce(T* p, std::size_t n) {
      ++notes->others;
      of.all_reduce(p, n);
    }
    void all_gather(const std::byte* p, std::size_t n, std::byte* out) {
      ++notes->others;
      of.all_gather(p, n, out);
    }
    void broadcast(std::byte* p, std::size_t n, std::size_t root) {
      ++notes->others;
      of.broadcast(p, n, root);
    }
  };
  struct Session : Many::Session {
    Notes* notes;
    void each(ls::FunctionRef<void(const ls::ReplicaContext<Device>&)> body) {
      const bool fails = notes->fails.exchange(false);
      Many::Session::each([&](ls::ReplicaContext<Device> replica) {
        Exchange exchange{replica.exchange, notes};
        Host host{replica.host, notes}, group{replica.group, notes};
        replica.exchange = ls::GradientExchange<double>(exchange);
        replica.host = ls::CollectiveRef(host);
        replica.group = ls::CollectiveRef(group);
        body(replica);
        if (fails && replica.rank == 1) throw std::runtime_error("fault");
      });
    }
  };
  Session open() const { return {{Many::open()}, notes}; }
};
/// The parameters after training, and the logs of the epochs.
template <class M, class Data>
std::vector<double> fitted(M model, const Data& on) {
  const auto history = model.fit(on, checked(2));
  std::vector<double> all = history["loss"];
  all.insert(all.end(), history["accuracy"].begin(), history["accuracy"].end());
  for (const auto& p : model.parameters()) {
    const auto values = model.weights(p.name);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  return testing::relative_error(a, b);
}
constexpr double rounding = 1e-11;

}  // namespace

TEST_CASE("rounds of one step are Replicated to rounding, for SGD") {
  const ls::SGD plain{.learning_rate = 0.1},
      nesterov{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01};
  const Loss ignores{.from_logits = true, .ignore_class = 2};
  const auto even = line::classes(48) | ls::shuffle(48) | ls::batch(12);
  for (const std::size_t n : {1u, 2u, 3u, 4u}) {
    CAPTURE(n);
    const Many all{.replicas = n};
    const auto each = all | ls::LocalSgd{.steps = 1};
    // Parts of a batch have 1 to 4 examples, or counted labels.
    CHECK(difference(fitted(model(each, plain), data()), fitted(model(all, plain), data())) <
          rounding);
    CHECK(difference(fitted(model(each, plain, ignores), data()),
                     fitted(model(all, plain, ignores), data())) < rounding);
    CHECK(difference(fitted(model(each, nesterov), even), fitted(model(all, nesterov), even)) <
          rounding);
    if (n != 3) continue;  // else the parts of the last batch are even, too
    CHECK(difference(fitted(model(each, nesterov), data()), fitted(model(all, nesterov), data())) >
          1e-6);
  }
}

TEST_CASE("a round leaves out layers that do not train, and their outer momentum") {
  const ls::SGD sgd{.learning_rate = 0.1};
  const Many all{.replicas = 3};
  const auto held = [](auto m) {
    m.set_trainable("dense", false);
    return m;
  };
  CHECK(difference(fitted(held(model(all | ls::LocalSgd{.steps = 1}, sgd)), data()),
                   fitted(held(model(all, sgd)), data())) < rounding);
  auto m = model(all | ls::DiLoCo{.steps = 2}, sgd);
  m.fit(data(), checked(2));
  const auto kernel = m.weights("dense/kernel"), gamma = m.weights("batch_normalization/gamma");
  m.set_trainable("dense", false);
  m.fit(data(), checked(2));
  CHECK(m.weights("dense/kernel") == kernel);
  CHECK(m.weights("batch_normalization/gamma") != gamma);
}

TEST_CASE("replicas that see the same examples train as one device with a part of the batch") {
  std::vector<float> x, twice_x;
  std::vector<std::int32_t> y, twice_y;
  ls::Philox g(3);
  for (int step = 0; step < 8; ++step) {
    std::vector<float> its_x;
    std::vector<std::int32_t> its_y;
    for (int i = 0; i < 5; ++i) {
      its_y.push_back(static_cast<std::int32_t>(g.below(3)));
      its_x.push_back(static_cast<float>(g.normal() + 2 * its_y.back()));
      its_x.push_back(static_cast<float>(g.normal()));
    }
    x.insert(x.end(), its_x.begin(), its_x.end());
    y.insert(y.end(), its_y.begin(), its_y.end());
    for (int i = 0; i < 2; ++i) {
      twice_x.insert(twice_x.end(), its_x.begin(), its_x.end());
      twice_y.insert(twice_y.end(), its_y.begin(), its_y.end());
    }
  }
  const auto once = ls::tensors(x, ls::shape(2), y) | ls::batch(5);
  const auto twice = ls::tensors(twice_x, ls::shape(2), twice_y) | ls::batch(10);
  for (const ls::Adam& adam :
       {ls::Adam{.learning_rate = 0.02},
        ls::Adam{.learning_rate = 0.02, .weight_decay = 0.01, .with = {.clipnorm = 0.1}},
        ls::Adam{.learning_rate = 0.02,
                 .with = {.global_clipnorm = 0.2, .gradient_accumulation_steps = 3}}})
    for (const std::uint64_t steps : {1u, 3u, 8u}) {
      CAPTURE(steps, adam.with.clipnorm, adam.with.gradient_accumulation_steps);
      const auto policy = ls::DiLoCo{.steps = steps, .outer_rate = 1, .momentum = 0};
      CHECK(difference(fitted(model(Many{.replicas = 2} | policy, adam), twice),
                       fitted(model(One{}, adam), once)) < rounding);
    }
}

TEST_CASE("one replica has the bits of a model without rounds, unless it makes an outer step") {
  const auto digest = [](auto m) {
    m.fit(data(), checked(2));
    return m.weights_sha256();
  };
  const auto plain = digest(model(One{}, ls::Adam{}));
  CHECK(digest(model(Many{} | ls::DiLoCo{3, 1, 0}, ls::Adam{})) == plain);
  CHECK(digest(model(Many{} | ls::DiLoCo{3}, ls::Adam{})) != plain);
}

TEST_CASE("a replica without examples keeps its weights, and does not count") {
  // The last batch has two examples for four replicas.
  const auto few = line::classes(38) | ls::batch(12);
  for (const std::uint64_t accumulates : {1u, 2u}) {
    auto m = model(Many{.replicas = 4} | ls::DiLoCo{.steps = 1, .outer_rate = 1, .momentum = 0},
                   ls::Adam{.with = {.gradient_accumulation_steps = accumulates}});
    const auto history = m.fit(few, checked(3));
    CHECK(std::isfinite(history["loss"].back()));
    const auto digests = m.replica_weights_sha256();
    CHECK(digests == std::vector<std::string>(4, digests[0]));
  }
}

TEST_CASE(
    "hooks of each step are called after its round, when all replicas hold the same weights") {
  auto m = model(Many{.replicas = 3} | ls::LocalSgd{.steps = 3}, ls::SGD{.learning_rate = 0.1});
  std::vector<std::size_t> begins, ends;
  std::size_t steps = 0, different = 0;
  auto options = checked(2);
  options.callbacks = {ls::LambdaCallback{
      .on_train_batch_begin = [&](std::size_t batch, auto&&...) { begins.push_back(batch); },
      .on_train_batch_end =
          [&](std::size_t batch, auto&&...) {
            ends.push_back(batch);
            const auto digests = m.replica_weights_sha256();
            different += digests != std::vector<std::string>(3, digests[0]) ? 1u : 0u;
            steps = m.steps();
          }}};
  const auto seven = line::classes(40) | ls::repeat | ls::batch(12);
  options.steps_per_epoch = 7;
  m.fit(seven, options);
  const std::vector<std::size_t> all{0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6};
  CHECK((begins == all && ends == all));
  // A hook that evaluates changes no log.
  const auto losses = [&](bool evaluates) {
    auto its = model(Many{.replicas = 2} | ls::LocalSgd{.steps = 3}, ls::SGD{.learning_rate = 0.1});
    std::vector<double> found;
    auto with = quiet(1);
    with.callbacks = {
        ls::LambdaCallback{.on_train_batch_end = [&](std::size_t, const ls::Logs& logs) {
          found.push_back(logs.step("loss"));
          if (evaluates) its.evaluate(line::classes(9) | ls::batch(4));
        }}};
    found.push_back(its.fit(line::classes(40) | ls::batch(12), with)["loss"].back());
    return found;
  };
  CHECK(losses(true) == losses(false));
  options.steps_per_execution = 4;  // the next whole rounds are six steps
  begins.clear();
  m.fit(seven, options);
  CHECK(begins == std::vector<std::size_t>{0, 6, 0, 6});
  CHECK((different == 0 && steps == 28));
}

TEST_CASE("TerminateOnNaN names the step of a round whose loss is not finite, once") {
  int read = 0;
  const auto one_bad = line::classes(60) | ls::map([&](auto& example) {
                         if (++read == 36) example.x[0] = std::numeric_limits<float>::quiet_NaN();
                       }) |
                       ls::batch(6);
  auto m = model(Many{.replicas = 3} | ls::LocalSgd{.steps = 4}, ls::SGD{});
  auto options = quiet(1);
  options.callbacks = {ls::TerminateOnNaN{}};
  std::vector<std::string> errors;
  const auto log = ls::set_log([&](ls::LogLevel level, std::string_view text) {
    if (level == ls::LogLevel::error) errors.emplace_back(text);
  });
  m.fit(one_bad, options);
  ls::set_log(log);
  REQUIRE(errors.size() == 1);
  CHECK_THAT(errors[0], ContainsSubstring("step 6 (epoch 1, batch 6)") &&
                            ContainsSubstring("the loss of replica 2"));
  CHECK(m.steps() == 8);
}

TEST_CASE("within a round nothing is exchanged") {
  const auto exchanged = [](std::uint64_t steps, std::size_t batches) {
    Noted::Notes notes;
    Noted strategy{{.replicas = 3}};
    strategy.notes = &notes;
    auto m = model(strategy | ls::LocalSgd{.steps = steps}, ls::SGD{});
    m.fit(line::classes(6 * batches) | ls::batch(6), checked(1));
    CHECK(notes.weights == 3 * 2);
    return notes.sums + notes.others;
  };
  CHECK(exchanged(5, 10) == exchanged(50, 100));
}

TEST_CASE("a run that stops or fails within a round leaves one model") {
  const auto same = [](const auto& m) {
    const auto digests = m.replica_weights_sha256();
    return digests == std::vector<std::string>(3, digests[0]);
  };
  const auto strategy = Many{.replicas = 3} | ls::LocalSgd{.steps = 4};
  std::stop_source source;
  std::atomic<int> read = 0;
  const auto stopping = line::classes(120) | ls::map([&](auto&) {
                          if (++read == 15) source.request_stop();
                        }) |
                        ls::batch(6);
  auto m = model(strategy, ls::SGD{});
  auto options = checked(1);
  options.stop = source.get_token();
  m.fit(stopping, options);
  CHECK((m.steps() == 4 && same(m)));

  const auto failing = line::classes(60) | ls::map([](auto& example) {
                         static std::atomic<int> seen = 0;
                         if (++seen == 40) throw std::runtime_error("forty");
                         example.x[0] += 1;
                       }) |
                       ls::batch(6);
  auto other = model(strategy, ls::SGD{});
  CHECK_THROWS_WITH(other.fit(failing, checked(1)), "forty");
  CHECK((other.steps() == 4 && same(other)));
  other.fit(data(), checked(1));
  CHECK((other.steps() == 8 && same(other)));

  int examples_read = 0;
  auto alone = model(Many{} | ls::LocalSgd{.steps = 4}, ls::SGD{});  // has no copy to go back to
  const auto soon = line::classes(60) | ls::map([&](auto&) {
                      if (++examples_read == 40) throw std::runtime_error("forty");
                    }) |
                    ls::batch(6);
  CHECK_THROWS_WITH(alone.fit(soon, checked(1)), "forty");
  CHECK(alone.steps() == 6);
  alone.fit(data(), checked(1));
  CHECK(alone.steps() == 10);

  // In one replica, in the first step of a round and in a later one.
  for (const int step : {4, 6}) {
    Noted::Notes notes;
    int examples = 0;
    Noted faulty{{.replicas = 3}};
    faulty.notes = &notes;
    auto of_one = model(faulty | ls::LocalSgd{.steps = 4}, ls::SGD{});
    const auto batches = line::classes(60) | ls::map([&](auto&) {
                           if (++examples == 6 * step + 1) notes.fails = true;
                         }) |
                         ls::batch(6);
    std::string before;
    auto counted = checked(1);
    counted.callbacks = {ls::LambdaCallback{
        .on_train_batch_end = [&](auto&&...) { before = of_one.weights_sha256(); }}};
    CHECK_THROWS_WITH(of_one.fit(batches, counted), "fault");
    CHECK((of_one.steps() == 4 && same(of_one) && of_one.weights_sha256() == before));
    CHECK(of_one.evaluate(batches, {.progress = ls::ProgressStyle::none})["loss"] > 0);
    of_one.fit(batches, checked(1));
    CHECK((of_one.steps() == 14 && same(of_one)));
  }
}

TEST_CASE("a run that continues from a checkpoint has the bits of one that did not stop") {
  const testing::Folder folder;
  const auto strategy = Many{.replicas = 3} | ls::DiLoCo{.steps = 2, .outer_rate = 0.9};
  const ls::Adam adam{.learning_rate = 0.01, .with = {.gradient_accumulation_steps = 3}};
  const auto seven = [] { return line::classes(80) | ls::shuffle(80) | ls::batch(12); };
  const auto run = [&](const std::string& in, int epochs, std::uint64_t every,
                       std::size_t stop_at) {
    auto m = model(strategy, adam);
    auto options = checked(epochs);
    std::stop_source source;
    options.checkpoint = {.directory = folder / in, .every = every};
    options.stop = source.get_token();
    options.callbacks = {ls::LambdaCallback{.on_train_batch_end = [&](auto&&...) {
      if (m.steps() == stop_at) source.request_stop();
    }}};
    const auto history = m.fit(seven(), options);
    return std::pair(m.weights_sha256(), history["loss"].empty() ? 0 : history["loss"].back());
  };
  const auto whole = run("whole", 4, 0, 0);
  run("epochs", 2, 0, 0);
  CHECK(run("epochs", 4, 0, 0) == whole);
  run("within", 4, 2, 9);  // the third epoch's first round ends at 16
  run("within", 4, 2, 16);
  CHECK(run("within", 4, 2, 0) == whole);

  SECTION("but not with other replicas, whose slots it lacks") {
    auto fewer = model(Many{.replicas = 2} | ls::DiLoCo{.steps = 2}, adam);
    CHECK_THROWS_WITH(
        fewer.load_checkpoint(folder / "whole"),
        ContainsSubstring(
            "the checkpoint has the optimizer's buffers of 3 replicas under diloco, 10 in "
            "all; this job has the optimizer's buffers of 2 replicas under diloco, 7 in all"));
    auto plain = model(One{}, adam);
    plain.save_checkpoint(folder / "plain");
    CHECK_THROWS_WITH(
        fewer.load_checkpoint(folder / "plain"),
        ContainsSubstring("the checkpoint has one set of the optimizer's buffers; this job has the "
                          "optimizer's buffers of 2 replicas under diloco, 7 in all"));
    CHECK_THROWS_WITH(
        plain.load_checkpoint(folder / "whole"),
        ContainsSubstring(
            "has the optimizer's buffers of 3 replicas under diloco, 10 in all; this job "
            "has one set of the optimizer's buffers, under replicated"));
  }
  SECTION("and one that a program saves and loads") {
    auto a = model(strategy, adam), b = model(strategy, adam);
    a.fit(seven(), checked(1));
    a.save_checkpoint(folder / "between");
    b.load_checkpoint(folder / "between");
    CHECK(a.fit(seven(), checked(1))["loss"] == b.fit(seven(), checked(1))["loss"]);
    CHECK(a.weights_sha256() == b.weights_sha256());
    a.reset_optimizer();
    a.load_checkpoint(folder / "between");
    a.fit(seven(), checked(1));
    CHECK(a.weights_sha256() == b.weights_sha256());
  }
}

TEST_CASE("a profile restores a model whose replicas make steps alone") {
  const auto strategy = Many{.replicas = 2} | ls::LocalSgd{.steps = 3};
  auto m = model(strategy, ls::SGD{.momentum = 0.9}),
       same = model(strategy, ls::SGD{.momentum = 0.9});
  m.fit(data(), checked(1));
  same.fit(data(), checked(1));
  static_cast<void>(m.profile(data(), {.steps = 2}));
  m.fit(data(), checked(1));
  same.fit(data(), checked(1));
  CHECK(m.weights_sha256() == same.weights_sha256());
}

TEST_CASE("what a policy with rounds costs, and what it refuses") {
  const std::size_t buffer = weights * sizeof(double);
  CHECK(model(Many{.replicas = 2} | ls::DiLoCo{}, ls::Adam{}).memory().optimizer == 4 * buffer);
  CHECK(model(Many{.replicas = 2} | ls::DiLoCo{5, 0.7, 0}, ls::Adam{}).memory().optimizer ==
        3 * buffer);
  CHECK(model(Many{} | ls::LocalSgd{}, ls::SGD{}).memory().optimizer == 0);

  const auto refused = [](const auto& policy, const std::string& text) {
    CHECK_THROWS_WITH(model(Many{.replicas = 2} | policy, ls::Adam{}), ContainsSubstring(text));
  };
  refused(ls::DiLoCo{.steps = 0}, "diloco: .steps is 0; set the steps of a round, at least 1");
  refused(ls::DiLoCo{.outer_rate = 0}, "diloco: .outer_rate is 0; it must be above 0 and finite");
  refused(ls::DiLoCo{.outer_rate = std::numeric_limits<double>::infinity()}, ".outer_rate is inf");
  refused(ls::DiLoCo{.momentum = 1}, "diloco: .momentum is 1; it must be at least 0 and below 1");
  refused(ls::DiLoCo{.momentum = -0.5}, ".momentum is -0.5");
  CHECK_THROWS_WITH(model(Many{} | ls::LocalSgd{.steps = 0}, ls::SGD{}),
                    ContainsSubstring("local_sgd: .steps is 0"));
  CHECK_THROWS_WITH(
      model(Many{} | ls::LocalSgd{}, ls::SGD{.with = {.use_ema = true}}),
      ContainsSubstring("local_sgd: .with.use_ema averages the weights of each step"));
  CHECK_THROWS_WITH(model(Many{.replicas = 2, .virtual_shards = 4} | ls::LocalSgd{}, ls::SGD{}),
                    ContainsSubstring("local_sgd: a replica trains with its own part of a batch"));
  auto m = model(Many{.replicas = 2} | ls::LocalSgd{}, ls::SGD{});
  m.fit(data(), checked(1));
  CHECK_THROWS_WITH(
      m.gradients("dense/kernel"),
      ContainsSubstring("gradients: under local_sgd each replica has gradients of its "
                        "own part of a batch"));
  CHECK_THROWS_WITH(m.set_trainable("*", false),
                    ContainsSubstring("under local_sgd at least one layer must train"));
}
