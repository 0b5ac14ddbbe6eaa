#include "lockstep/training/callbacks/swap_ema_weights.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "fit_recorded.hpp"
#include "lockstep/checkpoints.hpp"
#include "named_hooks.hpp"
#include "unit/training/checkpoint/resume_support.hpp"
#include "unit/training/model_support.hpp"

namespace {

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

constexpr double momentum = 0.5;

auto model(bool averages = true) {
  return ls::Model{
      line::Net{}, line::Double{}, ls::MeanSquaredError{},
      ls::SGD{.learning_rate = 0.1, .with = {.use_ema = averages, .ema_momentum = momentum}}};
}

/// The kernel of line::Net at the ends of epochs and within them.
struct Kernels : ls::Callback {
  std::vector<double> training, testing, epochs;
  double kernel() const {
    double value = 0;
    const auto bytes = control().weights();
    std::memcpy(&value, bytes.data(), sizeof value);  // the kernel is the first parameter
    return value;
  }
  void on_train_batch_end(std::size_t, const ls::Logs&) override { training.push_back(kernel()); }
  void on_test_batch_end(std::size_t, const ls::Logs&) override { testing.push_back(kernel()); }
  void on_epoch_end(int, const ls::Logs&) override { epochs.push_back(kernel()); }
};

auto run(auto& model, const ls::Callbacks& callbacks) {
  return model.fit(line::points() | ls::batch(10), line::points() | ls::batch(10),
                   {.epochs = 4, .callbacks = callbacks, .progress = ls::ProgressStyle::none});
}

/// The averages after each step, computed from the weights after each step.
std::vector<double> averages_of(const std::vector<double>& weights) {
  std::vector<double> averages{weights[0]};
  for (std::size_t i = 1; i < weights.size(); ++i)
    averages.push_back(momentum * averages.back() + (1 - momentum) * weights[i]);
  return averages;
}

void check_equal(const std::vector<double>& found, const std::vector<double>& expected,
                 double error = 1e-12) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK_THAT(found[i], WithinRel(expected[i], error));
}

using Kernel = std::pair<std::string, double>;  // of a hook

/// The kernels of the run that record_fit_callbacks.py made.
std::pair<std::vector<Kernel>, std::vector<double>> kernels_of(const recorded::Averages& r) {
  std::vector<Kernel> hooks;
  ls::Callbacks callbacks;
  if (r.swap_on_epoch) callbacks.push_back(ls::SwapEMAWeights{.swap_on_epoch = *r.swap_on_epoch});
  callbacks.push_back(std::make_shared<callbacks_test::NamedHooks>(
      [&](callbacks_test::NamedHooks& self, const std::string& hook, const ls::Logs&) {
        double value = 0;
        const auto bytes = self.control().weights();
        std::memcpy(&value, bytes.data(), sizeof value);
        hooks.emplace_back(hook, value);
        if (r.stops && hook == "epoch_end 1") self.control().stop_training();
      }));
  auto m = recorded::slope(
      {.use_ema = true, .ema_momentum = momentum, .ema_overwrite_frequency = r.overwrite});
  const auto kernel = [&] { return m.weights("dense/kernel")[0]; };
  const auto data = recorded::slope_data(6);
  std::vector<double> after;
  m.fit(data | ls::batch(2), data | ls::batch(3),
        {.epochs = 3, .callbacks = callbacks, .progress = ls::ProgressStyle::none});
  after.push_back(kernel());
  m.train_on_batch(recorded::slope_xs(6), recorded::slope_ys(6));
  after.push_back(kernel());
  m.evaluate(data | ls::batch(3), {.callbacks = callbacks});
  after.push_back(kernel());
  m.predict(data | ls::batch(3), {.callbacks = callbacks});
  after.push_back(kernel());
  return {hooks, after};
}

}  // namespace

TEST_CASE("at each hook the model has the weights or the averages that it has in Keras") {
  const auto all = recorded::averages();
  REQUIRE(all.size() == 12);
  for (const recorded::Averages& r : all) {
    CAPTURE(r.swap_on_epoch.has_value(), r.swap_on_epoch.value_or(false), r.overwrite, r.stops);
    std::vector<Kernel> expected = r.hooks;
    std::vector<double> expected_after = r.after;
    if (r.swap_on_epoch.value_or(false)) {
      // Keras' fit leaves its weights if it is stopped, and its evaluate and predict confuse the
      // weights with the averages afterwards. Here they do the same as without swap_on_epoch.
      const auto other = std::find_if(all.begin(), all.end(), [&](const recorded::Averages& o) {
        return o.swap_on_epoch == false && o.overwrite == r.overwrite && o.stops == r.stops;
      });
      REQUIRE(other != all.end());
      REQUIRE(other->hooks.size() == expected.size());
      const auto end = std::find_if(expected.begin(), expected.end(),
                                    [](const Kernel& k) { return k.first == "train_end"; });
      std::copy(other->hooks.begin() + (end - expected.begin()), other->hooks.end(), end);
      expected_after = other->after;
    }
    if (r.swap_on_epoch) {  // Keras' predict leaves the averages
      REQUIRE(expected.back().first == "predict_end");
      expected.back().second = expected_after[3] = expected_after[2];
    }
    const auto [hooks, after] = kernels_of(r);
    REQUIRE(hooks.size() == expected.size());
    for (std::size_t i = 0; i < hooks.size(); ++i) {
      CAPTURE(i, hooks[i].first);
      CHECK(hooks[i].first == expected[i].first);
      CHECK_THAT(hooks[i].second, WithinRel(expected[i].second, 1e-6));
    }
    check_equal(after, expected_after, 1e-6);
  }
}

TEST_CASE("SwapEMAWeights evaluates with the averages and trains with the weights") {
  auto plain = std::make_shared<Kernels>(), swapped = std::make_shared<Kernels>();
  auto a = model(), b = model();
  run(a, {plain});
  run(b, {ls::SwapEMAWeights{}, swapped});
  check_equal(swapped->training, plain->training);
  check_equal(swapped->testing, averages_of(plain->training));
  check_equal(swapped->epochs, plain->training);
  // fit leaves the averages in the model, as without the callback.
  CHECK(a.weights_sha256() == b.weights_sha256());
}

TEST_CASE(
    "SwapEMAWeights with swap_on_epoch shows the averages to callbacks at the end of an epoch") {
  auto plain = std::make_shared<Kernels>(), swapped = std::make_shared<Kernels>();
  auto a = model(), b = model();
  run(a, {plain});
  run(b, {ls::SwapEMAWeights{.swap_on_epoch = true}, swapped});
  check_equal(swapped->training, plain->training);
  check_equal(swapped->epochs, averages_of(plain->training));
  CHECK(a.weights_sha256() == b.weights_sha256());
  // The buffers are those of an optimizer that continues.
  run(a, {});
  run(b, {});
  CHECK(a.weights_sha256() == b.weights_sha256());
}

TEST_CASE("a run that crashes while the averages are in the model continues with the same bits") {
  const testing::Folder folder;
  const resume::Log lines;
  const auto fit = [](auto& m, const auto& checkpoint, const auto& extra) {
    ls::FitOptions o{.epochs = 4, .checkpoint = checkpoint, .progress = ls::ProgressStyle::none};
    o.callbacks = {ls::SwapEMAWeights{.swap_on_epoch = true}};
    o.callbacks.insert(o.callbacks.end(), extra.begin(), extra.end());
    return m.fit(line::points() | ls::batch(5), line::points() | ls::batch(5), o);
  };
  const auto make = [] { return model(); };
  CHECK(resume::train_with_crashes(make, fit, {.directory = folder / "run"}, {3, 4, 6}) ==
        resume::train(make, fit, {}));
}

TEST_CASE("a model loaded with the averages in its weights trains on its weights") {
  const testing::Folder folder;
  const resume::Log lines;
  auto quiet = model(), saved = model(), loaded = model();
  run(quiet, {});
  run(saved,
      {ls::SwapEMAWeights{.swap_on_epoch = true}, ls::ModelCheckpoint{.filepath = folder / "run"}});
  loaded.load_checkpoint(folder / "run");
  const auto again = std::make_shared<Kernels>(), expected = std::make_shared<Kernels>();
  // The last state that was saved, which fit's end has since changed in `saved`.
  CHECK(loaded.weights_sha256() == quiet.weights_sha256());
  run(loaded, {again});
  CHECK(again->training.size() == 4);
  // Trained from the averages, the first step would start at another kernel.
  auto swapped = model();
  swapped.load_checkpoint(folder / "run");
  run(swapped, {ls::SwapEMAWeights{.swap_on_epoch = true}, expected});
  check_equal(expected->training, again->training);
}

TEST_CASE("one SwapEMAWeights object serves several runs") {
  auto a = model(), b = model();
  const std::shared_ptr<ls::Callback> swap = ls::SwapEMAWeights{.swap_on_epoch = true};
  run(a, {});
  run(a, {});
  run(b, {swap});
  run(b, {swap});
  CHECK(a.weights_sha256() == b.weights_sha256());
}

TEST_CASE("evaluate and predict swap, too") {
  auto m = model();
  auto plain = std::make_shared<Kernels>(), swapped = std::make_shared<Kernels>();
  m.train_on_batch(line::xs(), line::ys());
  m.train_on_batch(line::xs(), line::ys());
  m.evaluate(line::points() | ls::batch(10), {.callbacks = {plain}});
  m.evaluate(line::points() | ls::batch(10), {.callbacks = {ls::SwapEMAWeights{}, swapped}});
  CHECK(plain->testing != swapped->testing);
  m.evaluate(line::points() | ls::batch(10), {.callbacks = {plain}});
  CHECK(plain->testing[0] == plain->testing[1]);
}

TEST_CASE("SwapEMAWeights refuses an optimizer without averages") {
  auto m = model(false);
  CHECK_THROWS_WITH(run(m, {ls::SwapEMAWeights{}}), ContainsSubstring("keeps no averages"));
  // Before training, also without a validation that would use them.
  CHECK_THROWS_WITH(m.fit(line::points() | ls::batch(10), {.callbacks = {ls::SwapEMAWeights{}},
                                                           .progress = ls::ProgressStyle::none}),
                    ContainsSubstring("keeps no averages"));
  CHECK(m.steps() == 0);
}

TEST_CASE("a step of a custom loop trains the weights, also if the averages were in the model") {
  const testing::Folder folder;
  auto m = model(), loaded = model(), expected = model();
  m.fit(line::points() | ls::batch(10),
        {.callbacks = {ls::SwapEMAWeights{.swap_on_epoch = true},
                       ls::ModelCheckpoint{.filepath = folder / "run"}},
         .progress = ls::ProgressStyle::none});
  expected.fit(line::points() | ls::batch(10),
               {.callbacks = {ls::ModelCheckpoint{.filepath = folder / "plain"}},
                .progress = ls::ProgressStyle::none});
  loaded.load_checkpoint(folder / "run");
  expected.load_checkpoint(folder / "plain");
  loaded.train_on_batch(line::xs(), line::ys());
  expected.train_on_batch(line::xs(), line::ys());
  CHECK(loaded.weights_sha256() == expected.weights_sha256());
}
