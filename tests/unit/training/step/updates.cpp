/// \file
/// The options shared by all optimizers, compared with hand-computed doubles, for one and several
/// replicas.
#include "lockstep/training/step/updates.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "unit/training/model_support.hpp"

namespace {

using namespace line;  // NOLINT: the fixture of this file
using Catch::Matchers::ContainsSubstring;
using Many = ls::Mirrored<ls::Reference<double>>;

/// Kernel and bias of the linear model, w and b, with hand-computed gradients.
struct Step {
  double d_w, d_b;
};

/// Gradients of w and b on the ten points, penalties included, without an update.
template <class TheNet>
Step gradient(double w, double b) {
  ByHand hand{.w = w, .b = b};
  if (std::is_same_v<TheNet, Penalised>) hand.l2 = 0.25, hand.l1 = 0.5;
  hand.step(0, 10, 0);
  return {hand.d_w, hand.d_b};
}

/// Steps on all ten points; returns the weights after each.
template <class TheNet = Net>
std::vector<std::pair<double, double>> train(const ls::SGD& optimizer, int steps,
                                             const Many& strategy = {.replicas = 1}) {
  ls::Model m{TheNet{}, strategy, ls::MeanSquaredError{}, optimizer};
  m.set_weights("dense/kernel", std::vector{0.5});
  m.set_weights("dense/bias", std::vector{-0.25});
  std::vector<std::pair<double, double>> result;
  for (int i = 0; i < steps; ++i) {
    m.train_on_batch(xs(), ys());
    result.emplace_back(m.weights("dense/kernel")[0], m.weights("dense/bias")[0]);
  }
  return result;
}

bool near(const std::pair<double, double>& found, double w, double b) {
  return line::near(found.first, w) && line::near(found.second, b);
}

const std::vector<Many> ways{
    {.replicas = 1}, {.replicas = 3}, {.replicas = 2, .virtual_shards = 4}, {.replicas = 8}};

struct Block : ls::Sequential<ls::Dense<1>> {
  static constexpr std::string_view name = "block";
};

struct Blocks : ls::Sequential<ls::Input<1>, Block, ls::Dense<1>> {};

}  // namespace

TEST_CASE("block_clipnorm sees the parameters of a block as one, and those of another layer") {
  ls::Model m{Blocks{}, ls::OneDevice<ls::Reference<double>>{}, ls::MeanSquaredError{},
              ls::SGD{.learning_rate = 1, .with = {.block_clipnorm = 0.5}}};
  m.set_weights("block/dense/kernel", std::vector{0.5});
  m.set_weights("dense/kernel", std::vector{0.25});
  const std::vector<double> x{2.0}, y{-1.0};
  const auto gradients = m.gradients_of(m.batch(x, y));
  m.apply(gradients);
  for (const std::string layer : {"block/dense", "dense"}) {
    const double kernel = gradients[layer + "/kernel"][0], bias = gradients[layer + "/bias"][0];
    const double scale = std::min(1.0, 0.5 / std::hypot(kernel, bias));
    CHECK(scale < (layer == "dense" ? 0.2 : 0.5));
    const double before = layer == "dense" ? 0.25 : 0.5;
    CHECK(line::near(m.weights(layer + "/kernel")[0], before - scale * kernel));
    CHECK(line::near(m.weights(layer + "/bias")[0], -scale * bias));
  }
}

TEST_CASE("an excluded text may be the name of a block") {
  ls::Model m{Blocks{}, ls::OneDevice<ls::Reference<double>>{}, ls::MeanSquaredError{},
              ls::SGD{.learning_rate = 0.1,
                      .weight_decay = 0.5,
                      .with = {.exclude_from_weight_decay = {"block/"}}}};
  for (const char* const name : {"block/dense/kernel", "dense/kernel"})
    m.set_weights(name, std::vector{2.0});
  m.train_on_batch(std::vector{0.0}, std::vector{0.0});  // no gradient
  CHECK(m.weights("block/dense/kernel")[0] == 2.0);
  CHECK(line::near(m.weights("dense/kernel")[0], 2.0 - 0.1 * 0.5 * 2.0));
}

TEST_CASE("clipnorm scales each parameter's gradient, the penalty's included") {
  const Step g = gradient<Penalised>(0.5, -0.25);
  REQUIRE(std::abs(g.d_w) > 2);
  REQUIRE(std::abs(g.d_b) > 1);
  const ls::SGD sgd{.learning_rate = 0.1, .with = {.clipnorm = 1}};
  for (const Many& way : ways)
    CHECK(near(train<Penalised>(sgd, 1, way)[0], 0.5 - 0.1 * g.d_w / std::abs(g.d_w),
               -0.25 - 0.1 * g.d_b / std::abs(g.d_b)));
  // A norm below the limit is not scaled.
  const ls::SGD loose{.learning_rate = 0.1, .with = {.clipnorm = 1000}};
  CHECK(near(train<Penalised>(loose, 1)[0], 0.5 - 0.1 * g.d_w, -0.25 - 0.1 * g.d_b));
}

TEST_CASE("global_clipnorm sees all parameters of the summed gradient as one") {
  const Step g = gradient<Penalised>(0.5, -0.25);
  const double norm = std::hypot(g.d_w, g.d_b), scale = 0.1 * 0.5 / norm;
  const ls::SGD sgd{.learning_rate = 0.1, .with = {.global_clipnorm = 0.5}};
  for (const Many& way : ways)
    CHECK(near(train<Penalised>(sgd, 1, way)[0], 0.5 - scale * g.d_w, -0.25 - scale * g.d_b));
}

TEST_CASE("clipvalue clips each element") {
  const Step g = gradient<Penalised>(0.5, -0.25);
  REQUIRE((g.d_w < -2 && g.d_b < -1));
  const ls::SGD sgd{.learning_rate = 0.1, .with = {.clipvalue = 1.5}};
  for (const Many& way : ways)
    CHECK(near(train<Penalised>(sgd, 1, way)[0], 0.5 + 0.1 * 1.5,
               -0.25 - 0.1 * std::max(g.d_b, -1.5)));
}

TEST_CASE("clipping does not change the reported gradient") {
  const Step g = gradient<Penalised>(0.5, -0.25);
  auto m = model<Penalised>({.learning_rate = 0.1, .with = {.global_clipnorm = 0.5}});
  m.train_on_batch(xs(), ys());
  CHECK(line::near(m.gradients("dense/kernel")[0], g.d_w));
}

TEST_CASE("weights decay by rate times decay before the update, except excluded ones") {
  const Step g = gradient<Penalised>(0.5, -0.25);
  const auto train_with = [&](ls::UpdateOptions with) {
    return train<Penalised>({.learning_rate = 0.1, .weight_decay = 0.5, .with = with}, 1)[0];
  };
  const double w = 0.5 - 0.05 * 0.5 - 0.1 * g.d_w, b = -0.25 + 0.05 * 0.25 - 0.1 * g.d_b;
  CHECK(near(train_with({}), w, b));
  CHECK(near(train_with({.exclude_from_weight_decay = {"bias"}}), w, -0.25 - 0.1 * g.d_b));
  CHECK(near(train_with({.exclude_from_weight_decay = {"kern"}}), 0.5 - 0.1 * g.d_w, b));
  CHECK(near(train_with({.exclude_from_weight_decay = {"dense/"}}), 0.5 - 0.1 * g.d_w,
             -0.25 - 0.1 * g.d_b));
  // A list for several models: this one has no normalization.
  CHECK(near(train_with({.exclude_from_weight_decay = {"bias", "gamma", "beta"}}), w,
             -0.25 - 0.1 * g.d_b));
  CHECK_THROWS_WITH(train_with({.exclude_from_weight_decay = {"bias", "gama"}}),
                    ContainsSubstring("no parameter's name contains 'gama'"));
}

TEST_CASE("the gradients of K steps make one update, clipped after the mean") {
  const ls::SGD plain{
      .learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.1, .with = {.global_clipnorm = 2}};
  ls::SGD summed = plain;
  summed.with.gradient_accumulation_steps = 3;
  const auto once = train<Penalised>(plain, 2), thrice = train<Penalised>(summed, 6);
  // Equal batches: the mean gradient equals each batch's.
  for (const std::size_t i : {0u, 1u}) CHECK(near(thrice[i], 0.5, -0.25));
  for (const std::size_t i : {2u, 3u, 4u}) CHECK(near(thrice[i], once[0].first, once[0].second));
  CHECK(near(thrice[5], once[1].first, once[1].second));
}

TEST_CASE("clipping applies to the mean of the accumulated gradients, not to each") {
  // At x = 0 the gradient of b alone is 2 (b - y): 3, then -1. Their mean is below the limit.
  for (const bool global : {false, true}) {
    ls::SGD sgd{.learning_rate = 0.1, .with = {.gradient_accumulation_steps = 2}};
    (global ? sgd.with.global_clipnorm : sgd.with.clipnorm) = 2;
    ls::Model m{Net{}, Many{.replicas = 1}, ls::MeanSquaredError{}, sgd};
    m.set_weights("dense/bias", std::vector{0.0});
    for (const double y : {-1.5, 0.5}) m.train_on_batch(std::vector{0.0}, std::vector{y});
    CHECK(line::near(m.weights("dense/bias")[0], -0.1));
  }
}

TEST_CASE("a fit without a step leaves the weights as they were set") {
  const ls::SGD sgd{.learning_rate = 0.1, .with = {.use_ema = true}};
  ls::Model m{Net{}, Many{.replicas = 2}, ls::MeanSquaredError{}, sgd};
  m.train_on_batch(xs(), ys());
  m.set_weights("dense/kernel", std::vector{7.0});
  const auto data = ls::tensors(xs(), ls::shape(1), ys(), ls::shape(1)) | ls::batch(5);
  m.fit(data, {.epochs = 1, .initial_epoch = 1, .progress = ls::ProgressStyle::none});
  CHECK(m.weights("dense/kernel")[0] == 7);
  m.fit(data, {.epochs = 1, .progress = ls::ProgressStyle::none});
  CHECK(m.weights("dense/kernel")[0] != 7);
}

TEST_CASE("K accumulated batches train as one batch of all their examples") {
  const auto train_on = [](std::size_t batch, std::uint64_t steps, const Many& way) {
    ls::Model m{Penalised{}, way, ls::MeanSquaredError{},
                ls::Adam{.learning_rate = 0.1, .with = {.gradient_accumulation_steps = steps}}};
    m.fit(points() | ls::batch(batch), quiet(4));
    return std::pair(m.weights("dense/kernel")[0], m.weights("dense/bias")[0]);
  };
  const auto whole = train_on(10, 1, {.replicas = 1});
  for (const Many& way : ways) CHECK(near(train_on(2, 5, way), whole.first, whole.second));
}

TEST_CASE("a schedule counts steps and the optimizer updates, when gradients are accumulated") {
  std::vector<std::uint64_t> asked;
  ls::Model m{Net{}, Double{}, ls::MeanSquaredError{},
              ls::SGD{.learning_rate =
                          [&](std::uint64_t step) {
                            asked.push_back(step);
                            return 0.1;
                          },
                      .with = {.gradient_accumulation_steps = 2}}};
  for (int i = 0; i < 4; ++i) m.train_on_batch(xs(), ys());
  CHECK(asked == std::vector<std::uint64_t>{0, 1, 2, 3});
  using Device = ls::Reference<double>;
  ls::ReferenceContext<double> context;
  const ls::detail::PlanEngine<Device> engine(context, ls::detail::Engine<Net, Device>::constants);
  const ls::UpdateOptions with{.gradient_accumulation_steps = 2};
  const ls::detail::UpdateFacts facts{.slot_count = 1,
                                      .own_slots = 0,
                                      .options = with,
                                      .weight_decay = 0,
                                      .is_by_elements = true,
                                      .segments = {}};
  const ls::detail::Updates<Device> updates({.device = context,
                                             .engine = engine,
                                             .facts = facts,
                                             .rank = 0,
                                             .replicas = 1,
                                             .roles = {{0, 1}, {0, 1}},
                                             .has_final_gradients = false},
                                            ls::Ranges{});
  CHECK(updates.number(1) == 1);
  CHECK(updates.number(2) == 1);
  CHECK(updates.number(3) == 2);
}

TEST_CASE("the weights become their moving averages when fit ends") {
  const ls::SGD sgd{.learning_rate = 0.1, .with = {.use_ema = true, .ema_momentum = 0.75}};
  const auto bare = train({.learning_rate = 0.1}, 5);
  double w = bare[0].first, b = bare[0].second;
  for (std::size_t i = 1; i < 5; ++i) {
    w = 0.75 * w + 0.25 * bare[i].first;
    b = 0.75 * b + 0.25 * bare[i].second;
  }
  const auto steps = train(sgd, 5);
  CHECK(near(steps[4], bare[4].first, bare[4].second));  // not before the end of fit
  for (const Many& way : ways) {
    ls::Model m{Net{}, way, ls::MeanSquaredError{}, sgd};
    m.set_weights("dense/kernel", std::vector{0.5});
    m.set_weights("dense/bias", std::vector{-0.25});
    m.fit(points() | ls::batch(10), quiet(5));
    CHECK(near({m.weights("dense/kernel")[0], m.weights("dense/bias")[0]}, w, b));
    const auto digests = m.replica_weights_sha256();
    CHECK(std::count(digests.begin(), digests.end(), digests[0]) ==
          static_cast<std::ptrdiff_t>(digests.size()));
  }
}

TEST_CASE("ema_overwrite_frequency overwrites the weights every n updates") {
  const ls::SGD sgd{.learning_rate = 0.1,
                    .with = {.use_ema = true, .ema_momentum = 0.5, .ema_overwrite_frequency = 2}};
  const auto found = train(sgd, 3);
  const auto bare = train({.learning_rate = 0.1}, 2);
  CHECK(near(found[0], bare[0].first, bare[0].second));
  const double w = (bare[0].first + bare[1].first) / 2, b = (bare[0].second + bare[1].second) / 2;
  CHECK(near(found[1], w, b));
  const Step g = gradient<Net>(w, b);
  CHECK(near(found[2], w - 0.1 * g.d_w, b - 0.1 * g.d_b));
}

TEST_CASE("options allocate their buffers, and the summary counts them") {
  const auto optimizer_bytes = [](ls::Adam adam) {
    return ls::Model{Net{}, Double{}, ls::MeanSquaredError{}, adam}.memory().optimizer;
  };
  const std::size_t plain = optimizer_bytes({});
  CHECK(plain == 2 * 2 * sizeof(double));
  CHECK(optimizer_bytes({.with = {.global_clipnorm = 1}}) == plain);
  CHECK(optimizer_bytes({.with = {.use_ema = true}}) == plain + 2 * sizeof(double));
  const ls::Adam all{.with = {.use_ema = true, .gradient_accumulation_steps = 2}};
  CHECK(optimizer_bytes(all) == plain + 4 * sizeof(double));
  CHECK(ls::detail::slot_name(all, 2) == "accumulated_gradient");
  CHECK(ls::detail::slot_name(all, 3) == "moving_average");
  CHECK_THAT((ls::Model{Net{}, Double{}, ls::MeanSquaredError{}, all}.summary()),
             ContainsSubstring("Optimizer params: 8"));
}

TEST_CASE("clipping a gradient with an infinity or NaN gives NaN, not a smaller gradient") {
  for (const ls::UpdateOptions& with :
       {ls::UpdateOptions{.clipnorm = 1}, ls::UpdateOptions{.global_clipnorm = 1}}) {
    ls::Model m{Net{}, Double{}, ls::MeanSquaredError{}, ls::SGD{.with = with}};
    m.train_on_batch(std::vector<double>{1e200}, std::vector<double>{1e200});
    CHECK(std::isnan(m.weights("dense/kernel")[0]));
  }
}

TEST_CASE("neighbours with equal penalty and decay are updated in one call") {
  using Deep = ls::Sequential<ls::Input<4>, ls::Dense<3>, ls::Dense<2>>;
  ls::detail::UpdateSegment two[4];
  ls::detail::LayerSettings settings;
  const auto segments = [&](bool each, ls::NameList no_decay) {
    const std::span<const ls::detail::NamedParameter> all(Deep::graph.parameter);
    return ls::detail::update_segments(all.first(4), each, no_decay, settings, Deep::graph.node,
                                       two);
  };
  CHECK(segments(false, {}) == 1);
  CHECK(segments(true, {}) == 4);
  CHECK(segments(false, {"bias"}) == 4);
  CHECK(segments(false, {"dense/"}) == 2);
  CHECK(segments(false, {"dense"}) == 1);
  CHECK(segments(false, {"dense_1"}) == 2);
  CHECK(two[0].end == 15);
  CHECK((two[0].decay == 1 && two[1].decay == 0));
  CHECK((two[1].begin == 15 && two[1].end == 23));
  settings = settings.with_trainable(std::span(Deep::graph.node).first(2), "dense", false);
  CHECK(segments(false, {}) == 2);
  CHECK((two[0].is_held && two[0].end == 15 && !two[1].is_held));
}

TEST_CASE("an update sees the shape that the optimizer's rule gives to a parameter") {
  using Deep = ls::Sequential<ls::Input<4>, ls::Dense<3>>;
  ls::detail::UpdateSegment two[2];
  const auto all = std::span<const ls::detail::NamedParameter>(Deep::graph.parameter).first(2);
  ls::detail::update_segments(all, true, {}, {}, Deep::graph.node, two);
  const auto rule_of = [](std::string_view, const ls::Shape& shape) -> ls::ParameterRule {
    return {{shape.size()}, 0.5, shape.rank == 2 ? ls::shape(2, 6) : ls::Shape{}};
  };
  ls::detail::set_rules(all, rule_of, two);
  CHECK(two[0].shape == ls::shape(2, 6));
  CHECK(two[1].shape == ls::shape(3));
}
