/// \file
/// Layers that do not train, in the network's type and by a setting, and multiples of rate and decay
/// for some parameters, against training by hand in plain doubles.
#include "lockstep/training/layer_settings.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/checkpoints.hpp"
#include "lockstep/sharded.hpp"
#include "support/folder.hpp"
#include "unit/training/model_support.hpp"

namespace {

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using Device = ls::Reference<double>;
using One = ls::OneDevice<Device>;
using Many = ls::Mirrored<Device>;

constexpr std::size_t inputs = 2, units = 4, examples = 12;
constexpr double rate = 0.05, momentum = 0.9;

struct Backbone
    : ls::Sequential<ls::Dense<4, ls::kernel_regularizer(ls::L2{0.01})>, ls::BatchNormalization<>> {
  static constexpr std::string_view name = "backbone";
};
struct Net : ls::Sequential<ls::Input<2>, Backbone, ls::ReLU, ls::Dense<1>> {};
struct WithFrozen : ls::Sequential<ls::Input<2>, ls::Frozen<Backbone>, ls::ReLU, ls::Dense<1>> {};

std::vector<double> xs() {
  std::vector<double> x(examples * inputs);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(1 + 1.7 * static_cast<double>(i));
  return x;
}
std::vector<double> ys() {
  std::vector<double> y(examples);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::cos(0.9 * static_cast<double>(i));
  return y;
}
auto data() { return ls::tensors(xs(), ls::shape(2), ys(), ls::shape(1)) | ls::batch(examples); }

template <class N = Net, class S = One, class O = ls::SGD>
auto new_model(const S& strategy = {},
               const O& optimizer = {.learning_rate = rate, .momentum = momentum}) {
  ls::Model model{N{}, ls::Seed{5}, strategy, ls::MeanSquaredError{}, optimizer};
  // Statistics that no batch has.
  model.set_weights("backbone/batch_normalization/moving_mean", std::array{0.3, -0.2, 0.1, 0.0});
  model.set_weights("backbone/batch_normalization/moving_variance",
                    std::array{0.5, 1.5, 2.0, 0.25});
  model.set_weights("backbone/batch_normalization/gamma", std::array{1.5, 0.5, -1.0, 2.0});
  model.set_weights("backbone/batch_normalization/beta", std::array{0.1, 0.2, 0.4, -0.3});
  return model;
}
auto quiet(int epochs) { return line::quiet(epochs); }

/// The weights of a model by short names.
struct Weights {
  std::vector<double> w1, b1, gamma, beta, mean, variance, w2, b2;
  template <class M>
  static Weights of(const M& model) {
    const auto get = [&](const char* name) { return model.weights(name); };
    return {get("backbone/dense/kernel"),
            get("backbone/dense/bias"),
            get("backbone/batch_normalization/gamma"),
            get("backbone/batch_normalization/beta"),
            get("backbone/batch_normalization/moving_mean"),
            get("backbone/batch_normalization/moving_variance"),
            get("dense/kernel"),
            get("dense/bias")};
  }
  bool operator==(const Weights&) const = default;
};

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}
double distance(const Weights& a, const Weights& b) {
  return std::max({distance(a.w1, b.w1), distance(a.b1, b.b1), distance(a.gamma, b.gamma),
                   distance(a.beta, b.beta), distance(a.mean, b.mean),
                   distance(a.variance, b.variance), distance(a.w2, b.w2), distance(a.b2, b.b2)});
}

/// Training by hand on the whole data: the normalization is a constant affine map, and the first layer
/// trains only if `trains_first`. \returns the loss of each step.
std::vector<double> by_hand(Weights& w, std::size_t steps, bool trains_first) {
  const std::vector<double> x = xs(), y = ys();
  std::vector<double> losses, v_w1(w.w1.size()), v_b1(units), v_w2(units);
  double v_b2 = 0;
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<double> d_w1(w.w1.size()), d_b1(units), d_w2(units);
    double loss = 0, d_b2 = 0;
    for (std::size_t n = 0; n < examples; ++n) {
      std::array<double, units> z{}, a{};
      double out = w.b2[0];
      for (std::size_t u = 0; u < units; ++u) {
        double h = w.b1[u];
        for (std::size_t i = 0; i < inputs; ++i) h += x[n * inputs + i] * w.w1[i * units + u];
        const double scale = w.gamma[u] / std::sqrt(w.variance[u] + 1e-3f);
        z[u] = (h - w.mean[u]) * scale + w.beta[u];
        a[u] = z[u] > 0 ? z[u] : 0;
        out += a[u] * w.w2[u];
      }
      const double e = out - y[n], d_out = 2 * e / static_cast<double>(examples);
      loss += e * e / static_cast<double>(examples);
      d_b2 += d_out;
      for (std::size_t u = 0; u < units; ++u) {
        d_w2[u] += d_out * a[u];
        const double scale = w.gamma[u] / std::sqrt(w.variance[u] + 1e-3f);
        const double d_h = z[u] > 0 ? d_out * w.w2[u] * scale : 0;
        d_b1[u] += d_h;
        for (std::size_t i = 0; i < inputs; ++i) d_w1[i * units + u] += d_h * x[n * inputs + i];
      }
    }
    const auto update = [](double& to, double& velocity, double gradient) {
      velocity = momentum * velocity - rate * gradient;
      to += velocity;
    };
    for (std::size_t k = 0; k < w.w1.size() && trains_first; ++k) {
      loss += 0.01 * w.w1[k] * w.w1[k];
      update(w.w1[k], v_w1[k], d_w1[k] + 2 * 0.01 * w.w1[k]);
    }
    for (std::size_t u = 0; u < units; ++u) {
      if (trains_first) update(w.b1[u], v_b1[u], d_b1[u]);
      update(w.w2[u], v_w2[u], d_w2[u]);
    }
    update(w.b2[0], v_b2, d_b2);
    losses.push_back(loss);
  }
  return losses;
}

}  // namespace

TEST_CASE("layers that do not train stay as they are, with the bits of training by hand") {
  auto model = new_model();
  const Weights before = Weights::of(model);
  const auto trains = [&](bool first) {
    Weights expected = Weights::of(model);
    const std::vector<double> losses = by_hand(expected, 5, first);
    model.reset_optimizer();
    const auto history = model.fit(data(), quiet(5));
    for (std::size_t i = 0; i < losses.size(); ++i)
      CHECK(std::abs(history["loss"][i] - losses[i]) < 1e-12);
    CHECK(distance(Weights::of(model), expected) < 1e-12);
  };
  SECTION("all of the backbone") {
    model.set_trainable("backbone/*", false);
    trains(false);
    const Weights after = Weights::of(model);
    CHECK(after.w1 == before.w1);
    CHECK(after.b1 == before.b1);
    CHECK(after.gamma == before.gamma);
    CHECK(after.mean == before.mean);
    CHECK(after.w2 != before.w2);
    CHECK(model.untrained_layers() ==
          std::vector<std::string>{"backbone/dense", "backbone/batch_normalization"});
  }
  SECTION("the normalization after a layer that trains") {
    model.set_trainable("backbone/batch_normalization", false);
    trains(true);
  }
  SECTION("nothing any more") {
    auto plain = new_model();
    model.set_trainable("backbone", false);
    model.set_trainable("*", true);
    CHECK(model.untrained_layers().empty());
    model.fit(data(), quiet(3));
    plain.fit(data(), quiet(3));
    CHECK(Weights::of(model) == Weights::of(plain));
  }
}

TEST_CASE("a frozen block has neither gradients nor slots, and the bits of the setting") {
  constexpr std::size_t frozen = inputs * units + units + 2 * units;
  STATIC_REQUIRE(WithFrozen::trainable_count == units + 1);
  STATIC_REQUIRE(WithFrozen::parameter_count == Net::parameter_count);
  constexpr auto& plan = ls::plan<WithFrozen, Device>;
  constexpr auto& all = ls::plan<Net, Device>;
  STATIC_REQUIRE(plan.gradient_bytes == (units + 1) * sizeof(double));
  STATIC_REQUIRE(plan.optimizer_bytes(2) == 2 * (units + 1) * sizeof(double));
  STATIC_REQUIRE(all.gradient_bytes - plan.gradient_bytes == frozen * sizeof(double));
  STATIC_REQUIRE(plan.push_bytes() == plan.gradient_bytes);
  // Nothing of the statistics is averaged, and nothing is computed but the last layer's dw.
  STATIC_REQUIRE(plan.averaged_state_bytes == 0);
  STATIC_REQUIRE(plan.wire_bytes(2) == plan.gradient_bytes);
  STATIC_REQUIRE(plan.backward_flops == WithFrozen::graph.node[3].flops);
  STATIC_REQUIRE(plan.flops == all.flops);
  STATIC_REQUIRE(plan.example_bytes < all.example_bytes);

  CHECK(!ls::architecture<WithFrozen>().layers[0].parameters[0].trainable);
  CHECK(ls::architecture<WithFrozen>().layers[3].parameters[0].trainable);

  auto model = new_model<WithFrozen>();
  auto held = new_model();
  held.set_trainable("backbone", false);
  CHECK(Weights::of(model) == Weights::of(held));
  CHECK(model.memory().optimizer == (units + 1) * sizeof(double));
  const auto history = model.fit(data(), quiet(4));
  CHECK(history["loss"] == held.fit(data(), quiet(4))["loss"]);
  CHECK(Weights::of(model) == Weights::of(held));
  CHECK(model.evaluate(data())["loss"] == held.evaluate(data())["loss"]);
  CHECK_THAT(model.summary(), ContainsSubstring("Trainable params: 5 (") &&
                                  ContainsSubstring("Non-trainable params: 28 ("));
  CHECK_THAT(held.summary(), ContainsSubstring("Trainable params: 5 (") &&
                                 ContainsSubstring("Non-trainable params: 28 ("));
  CHECK_THROWS_WITH(model.set_trainable("backbone/dense", true),
                    ContainsSubstring("backbone/dense is within ls::Frozen"));
  model.set_trainable("*", true);  // also selects one that may train
  const auto dx = held.input_gradients(held.batch(xs(), ys()));
  CHECK(model.input_gradients(model.batch(xs(), ys())) == dx);
  CHECK(distance(dx, std::vector<double>(dx.size())) > 1e-3);

  SECTION("checkpoints fit both networks, without the slots of what was frozen") {
    const testing::Folder folder;
    const std::string path = folder.path().string();
    model.save_checkpoint(path);
    auto plain = new_model();
    plain.load_checkpoint(path);
    CHECK(Weights::of(plain) == Weights::of(model));
    CHECK(plain.steps() == 4);
    plain.set_trainable("backbone", false);
    plain.fit(data(), quiet(2));
    model.fit(data(), quiet(2));
    CHECK(Weights::of(plain) == Weights::of(model));
    plain.save_checkpoint(path);
    auto again = new_model<WithFrozen>();
    again.load_checkpoint(path);
    again.fit(data(), quiet(2));
    plain.fit(data(), quiet(2));
    CHECK(Weights::of(again) == Weights::of(plain));
  }
}

TEST_CASE("a checkpoint has the settings of layers") {
  const testing::Folder folder;
  const std::string path = folder.path().string();
  auto model = new_model();
  model.fit(data(), quiet(2));
  model.set_trainable("backbone/dense", false);
  model.set_rate_multiplier("dense", 0.25);
  model.fit(data(), quiet(2));
  model.save_checkpoint(path);
  auto other = new_model();
  other.set_rate_multiplier("*/gamma", 7);
  other.load_checkpoint(path);
  CHECK(other.untrained_layers() == std::vector<std::string>{"backbone/dense"});
  model.fit(data(), quiet(2));
  other.fit(data(), quiet(2));
  CHECK(Weights::of(other) == Weights::of(model));
}

TEST_CASE("replicas and shares of the optimizer have the bits of one device") {
  const auto run = [](auto& model) {
    model.set_trainable("backbone/dense", false);
    model.set_rate_multiplier("*/gamma", 0.5);
    model.set_decay_multiplier("dense/bias", 0);
    auto options = quiet(3);
    options.verify_every = 1;
    options.callbacks = {ls::Unfreeze{.layers = {"backbone/dense"}, .at_epoch = 2}};
    model.fit(data(), options);
    CHECK(model.untrained_layers().empty());
    model.set_trainable("dense", false);
    model.fit(data(), options);
    model.set_trainable({"backbone/batch_normalization", "dense"}, false);
    const Weights before = Weights::of(model);
    model.fit(data(), quiet(3));
    const Weights after = Weights::of(model);
    CHECK(after.mean == before.mean);
    CHECK(after.variance == before.variance);
    CHECK(after.gamma == before.gamma);
    CHECK(after.w1 != before.w1);
    return after;
  };
  const ls::AdamW adam{.learning_rate = 0.01, .weight_decay = 0.1, .with = {.clipnorm = 0.3}};
  auto many = new_model<Net>(Many{.replicas = 2, .virtual_shards = 4}, adam);
  auto parts = new_model<Net>(Many{.replicas = 2, .virtual_shards = 4} | ls::Sharded{}, adam);
  auto one = new_model<Net>(Many{.replicas = 1, .virtual_shards = 4}, adam);
  const Weights expected = run(one);
  CHECK(run(many) == expected);
  CHECK(run(parts) == expected);
}

TEST_CASE("multipliers of rate and decay are those of another optimizer for some parameters") {
  // One step of AdamW with multiples m of the rate and n of the decay is that with m rate and
  // n decay.
  const auto after = [](double r, double d, double m, double n, const char* names) {
    auto model =
        new_model<Net>(Many{.replicas = 1, .virtual_shards = 4},
                       ls::AdamW{.learning_rate = r, .weight_decay = d, .with = {.clipnorm = 0.3}});
    if (names != nullptr) {
      model.set_rate_multiplier(names, m);
      model.set_decay_multiplier(names, n);
    }
    model.fit(data(), quiet(1));
    return Weights::of(model);
  };
  const Weights plain = after(0.01, 0.1, 1, 1, nullptr), other = after(0.0025, 0.3, 1, 1, nullptr),
                mixed = after(0.01, 0.1, 0.25, 3, "backbone/*");
  CHECK(distance(mixed.w1, other.w1) < 1e-15);
  CHECK(distance(mixed.gamma, other.gamma) < 1e-15);
  CHECK(mixed.w2 == plain.w2);
  CHECK(distance(plain.w1, other.w1) > 1e-3);
}

TEST_CASE("settings of layers that cannot be are one sentence") {
  auto model = new_model();
  CHECK_THROWS_WITH(model.set_trainable("backbon/*", false),
                    ContainsSubstring("'backbon/*' selects no layer with parameters; the nearest "
                                      "names are backbone/dense, dense, "
                                      "backbone/batch_normalization"));
  CHECK_THROWS_WITH(
      model.set_rate_multiplier("dense/kernal", 2),
      ContainsSubstring("'dense/kernal' selects no parameter that trains; the nearest "
                        "names are dense/kernel, "));
  CHECK_THROWS_WITH(model.set_decay_multiplier("dense", -1),
                    ContainsSubstring("set_decay_multiplier: the multiplier is -1; it must be"));
  CHECK_THROWS_AS(model.set_rate_multiplier("dense", std::numeric_limits<double>::infinity()),
                  ls::UsageError);
  auto options = quiet(1);
  options.callbacks = {ls::Unfreeze{.layers = {"tail/*"}, .at_epoch = 3}};
  CHECK_THROWS_WITH(model.fit(data(), options), ContainsSubstring("'tail/*' selects no layer"));
  auto frozen = new_model<WithFrozen>();
  options.callbacks = {ls::Unfreeze{.layers = {"backbone/*"}, .at_epoch = 3}};
  CHECK_THROWS_WITH(frozen.fit(data(), options),
                    ContainsSubstring("backbone/batch_normalization is within ls::Frozen"));
  CHECK_THROWS_WITH(std::shared_ptr<ls::Callback>(ls::Unfreeze{}),
                    ContainsSubstring("Unfreeze: .layers is empty"));
}
