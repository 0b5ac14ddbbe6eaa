/// \file
/// Training with a scaled loss. With float activations, scaling by powers of two changes no bit
/// unless something overflows, so a run is compared bit by bit with one without scaling.
#include "lockstep/training/step/loss_scale.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "compare.hpp"
#include "lockstep/checkpoints.hpp"
#include "lockstep/lockstep.hpp"
#include "support/folder.hpp"
#include "support/scaled.hpp"

using namespace lockstep;
using namespace testing;

namespace {

// Each of these is a device with kernels of its own to compile, so the tests share few.
template <int Exponent, int Growth>
using ScaledCuda = BasicCuda<Scaled<Exponent, Growth>>;
template <int Exponent, int Growth>
using ScaledHalf = BasicCuda<Scaled<Exponent, Growth, float16>>;

/// Deterministic, so that both runs use the same kernels without measuring.
template <class D>
OneDevice<D> steady() {
  return {.on = {0, {.deterministic = true}}};
}

static_assert(MixedFloat16::loss_scaling.start == 32768);
static_assert(MixedFloat16::loss_scaling.growth_steps == 2000);
static_assert(!ScalesLoss<Reference<float>> && !ScalesLoss<Cuda>);
static_assert(std::is_empty_v<lockstep::detail::LossScale<Cuda>>);

struct Normalized : Sequential<Input<3>, Dense<4>, BatchNormalization<>, Dense<2>> {};
struct Net : Sequential<Input<3>, Dense<5, kernel_regularizer(L2{0.01f})>, ReLU,
                        Dense<2, kernel_regularizer(L1{0.005f})>> {};

/// Everything that an update involves: norms, penalties, decay, accumulation, averages.
const Adam optimizer{
    .learning_rate = ExponentialDecay{0.02, 3, 0.5},
    .weight_decay = 0.01,
    .with = {.global_clipnorm = 0.5, .use_ema = true, .gradient_accumulation_steps = 2}};

template <class S, class TheNet = Net>
struct Training {
  Model<TheNet, S, SparseCategoricalCrossentropy, Adam> model;
  std::vector<float> x = as<float>(normal_values(6 * 3, 5));
  std::vector<std::int32_t> y{0, 1, 1, 0, 1, 0};

  explicit Training(const S& strategy, const Adam& how = optimizer)
      : model(TheNet{}, Seed{3}, strategy, SparseCategoricalCrossentropy{.from_logits = true},
              how) {}

  /// One step; false if it was skipped.
  bool step() {
    const std::uint64_t before = model.updates();
    model.train_on_batch(x, y);
    return model.updates() == before + 1;
  }
  std::vector<float> weights() const {
    std::vector<float> all;
    for (const auto& p : model.parameters())
      for (const float w : model.weights(p.name)) all.push_back(w);
    return all;
  }
  std::vector<float> gradients() const {
    std::vector<float> all;
    for (const auto& p : model.parameters())
      for (const float g : model.gradients(p.name)) all.push_back(g);
    return all;
  }
};
template <class S>
Training(const S&) -> Training<S>;
template <class S>
Training(const S&, const Adam&) -> Training<S>;

bool all_finite(const std::vector<float>& values) {
  for (const float v : values)
    if (!std::isfinite(v)) return false;
  return true;
}

const auto two = [](auto device) { return Mirrored<decltype(device)>{{device, device}}; };

}  // namespace

TEST_CASE("unscaling counts non-finite gradients and multiplies the rest") {
  const TestGpu gpu;
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{3000}}) {
    std::vector<float> g = as<float>(normal_values(n, 1));
    double expected = 0;
    if (n > 1) {
      g[0] = std::numeric_limits<float>::infinity();
      g[255] = -g[0];
      g[2999] = std::numeric_limits<float>::quiet_NaN();
      g[5] = std::numeric_limits<float>::max();
      expected = 3;
    }
    DeviceArray<Cuda, float> on_gpu(context, g);
    DeviceArray<Cuda, double> wrong(context, std::vector<double>{2});
    Kernel<Unscaling, Cuda>::run({0x1p-15}, {context, n, on_gpu.data(), wrong.data()});
    const auto after = on_gpu.download();
    CHECK(wrong.download()[0] == 2 + expected);
    for (std::size_t i = 0; i < n; ++i) CHECK((after[i] == g[i] * 0x1p-15f || std::isnan(g[i])));
    if (n > 1) CHECK(std::isnan(after[2999]));
  }
}

TEST_CASE("a scaled loss trains to the same bits, with all options of an update") {
  const TestGpu gpu;
  Training plain{steady<Cuda>()};
  Training scaled{steady<ScaledCuda<10, 2>>()};
  CHECK(plain.model.loss_scale() == 1);
  for (int i = 0; i < 5; ++i) {
    REQUIRE(plain.step());
    REQUIRE(scaled.step());
    CHECK(scaled.gradients() == plain.gradients());
    CHECK(scaled.weights() == plain.weights());
    CHECK(scaled.model.learning_rate() == plain.model.learning_rate());
  }
  CHECK(scaled.model.loss_scale() == 4096);  // doubled twice
  scaled.model.test_on_batch(scaled.x, scaled.y);
  CHECK(scaled.gradients() == plain.gradients());
}

TEST_CASE("steps whose gradients overflow are skipped without a trace") {
  const TestGpu gpu;
  Training plain{steady<Cuda>()};
  // Gradients of about 0.1 overflow above a scale of 2^128.
  Training scaled{steady<ScaledCuda<126, 2000>>()};
  for (float& x : plain.x) x *= 1000;
  scaled.x = plain.x;
  const auto initial = scaled.weights();
  int skipped = 0;
  while (!scaled.step()) {
    ++skipped;
    CHECK_FALSE(all_finite(scaled.gradients()));
    CHECK(scaled.weights() == initial);
    CHECK(scaled.model.loss_scale() == std::ldexp(1, 126 - skipped));
    CHECK(scaled.model.learning_rate() == plain.model.learning_rate());
    REQUIRE(skipped < 30);
  }
  CHECK(skipped > 2);
  CHECK(all_finite(scaled.gradients()));
  // Slots, accumulated gradients, averages, the step counts of Adam and of the schedule.
  for (int i = 0; i < 4; ++i) {
    if (i > 0) REQUIRE(scaled.step());
    REQUIRE(plain.step());
    CHECK(scaled.weights() == plain.weights());
  }
  CHECK(scaled.model.steps() == plain.model.steps() + static_cast<std::uint64_t>(skipped));
  CHECK(scaled.model.updates() == plain.model.updates());
}

TEST_CASE(
    "a scaled loss gives the program's own steps true gradients, and skips those that overflow") {
  const TestGpu gpu;
  Training plain{steady<Cuda>()};
  Training scaled{steady<ScaledCuda<126, 2000>>()};
  for (float& x : plain.x) x *= 1000;
  scaled.x = plain.x;
  const auto values = [](const auto& gradients) {
    return std::vector<float>(gradients.values().begin(), gradients.values().end());
  };
  const auto expected = plain.model.gradients_of(plain.model.batch(plain.x, plain.y));
  auto found = scaled.model.gradients_of(scaled.model.batch(scaled.x, scaled.y));
  const auto initial = scaled.weights();
  int skipped = 0;
  while (!all_finite(values(found))) {
    scaled.model.apply(found);
    REQUIRE(scaled.model.updates() == 0);
    CHECK(scaled.weights() == initial);
    CHECK(scaled.model.loss_scale() == std::ldexp(1, 126 - ++skipped));
    found = scaled.model.gradients_of(scaled.model.batch(scaled.x, scaled.y));
    REQUIRE(skipped < 30);
  }
  CHECK(skipped > 2);
  CHECK(values(found) == values(expected));
  CHECK(scaled.model.input_gradients(scaled.model.batch(scaled.x, scaled.y)) ==
        plain.model.input_gradients(plain.model.batch(plain.x, plain.y)));
  scaled.model.apply(found);
  plain.model.apply(expected);
  CHECK(scaled.weights() == plain.weights());
  CHECK(scaled.model.updates() == 1);
}

TEST_CASE("a NaN loss skips only its own step") {
  const TestGpu gpu;
  Training plain{steady<Cuda>()};
  Training scaled{steady<ScaledCuda<10, 2>>()};
  const auto good = scaled.x;
  // A finite step is forgotten: two of them double the halved scale.
  for (const auto& [bad, scale] : std::vector<std::pair<bool, double>>{
           {false, 1024}, {true, 512}, {false, 512}, {false, 1024}, {false, 1024}, {false, 2048}}) {
    if (bad) scaled.x[4] = std::numeric_limits<float>::quiet_NaN();
    CHECK(scaled.step() == !bad);
    scaled.x = good;
    if (!bad) plain.step();
    CHECK(scaled.weights() == plain.weights());
    CHECK(scaled.model.loss_scale() == scale);
  }
}

TEST_CASE("the scale doubles after a number of finite steps, and an overflow restarts the count") {
  const TestGpu gpu;
  Training scaled{steady<ScaledHalf<4, 2>>(), Adam{.learning_rate = 0}};
  std::vector<double> scales;
  bool skipped_any = false;
  for (int i = 0; i < 60; ++i) {
    const double before = scaled.model.loss_scale();
    const bool made = scaled.step();
    skipped_any |= !made;
    scales.push_back(scaled.model.loss_scale());
    if (!made) CHECK(scales.back() == before / 2);
  }
  // With equal weights a scale either overflows or not, so it climbs to the limit and then
  // alternates.
  CHECK(skipped_any);
  double scale = 16, limit = 0;
  for (const double s : scales) limit = std::max(limit, s);
  int finite = 0;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (scale == limit)
      scale /= 2, finite = 0;
    else if (++finite == 2)
      scale *= 2, finite = 0;
    CAPTURE(i);
    CHECK(scales[i] == scale);
  }
}

TEST_CASE("a checkpoint keeps the scale and the count of finite steps") {
  const TestGpu gpu;
  const auto strategy = steady<ScaledHalf<24, 2>>();
  constexpr int steps = 16;
  using Scales = std::vector<double>;
  const auto train = [](auto& training, int count, Scales& scales) {
    for (int i = 0; i < count; ++i) {
      training.step();
      scales.push_back(training.model.loss_scale());
    }
  };
  Training whole{strategy};
  Scales expected;
  train(whole, steps, expected);
  REQUIRE(whole.model.updates() > 0);
  REQUIRE(whole.model.updates() < steps);     // some were skipped
  for (const int before : {1, 11, 12, 13}) {  // of the last three one within a count
    CAPTURE(before);
    const Folder folder;
    Scales scales;
    {
      Training first{strategy};
      train(first, before, scales);
      first.model.save_checkpoint(folder / "saved");
    }
    Training second{strategy};
    second.model.load_checkpoint(folder / "saved");
    train(second, steps - before, scales);
    CHECK(scales == expected);
    CHECK(second.weights() == whole.weights());
    CHECK(second.model.updates() == whole.model.updates());
  }
}

TEST_CASE("replicas decide alike even if only one of them overflows") {
  const TestGpu gpu;
  for (const std::size_t shards : {std::size_t{0}, std::size_t{4}}) {
    CAPTURE(shards);
    auto plain_two = two(steady<Cuda>().on);
    auto scaled_two = two(steady<ScaledCuda<10, 2>>().on);
    plain_two.virtual_shards = scaled_two.virtual_shards = shards;
    Training plain{plain_two};
    Training scaled{scaled_two};
    const auto good = scaled.x;
    for (const bool bad : {false, true, false, false, false}) {
      if (bad) scaled.x.back() = std::numeric_limits<float>::infinity();  // in the second example
      CHECK(scaled.step() == !bad);
      scaled.x = good;
      if (!bad) plain.step();
      CHECK(scaled.weights() == plain.weights());
      const auto digests = scaled.model.replica_weights_sha256();
      REQUIRE(digests.size() == 2);
      CHECK(digests[0] == digests[1]);
    }
    CHECK(scaled.model.loss_scale() == 1024);
  }
}

TEST_CASE("a skipped step still updates running statistics, as in Keras") {
  const TestGpu gpu;
  Training<OneDevice<ScaledHalf<4, 2>>, Normalized> plain{steady<ScaledHalf<4, 2>>(), Adam{}};
  Training<OneDevice<ScaledHalf<24, 2>>, Normalized> scaled{steady<ScaledHalf<24, 2>>(), Adam{}};
  const auto initial = scaled.model.weights("dense/kernel");
  REQUIRE_FALSE(scaled.step());
  REQUIRE(plain.step());
  CHECK(scaled.model.weights("dense/kernel") == initial);
  CHECK(plain.model.weights("dense/kernel") != initial);
  CHECK(scaled.model.weights("batch_normalization/moving_mean") ==
        plain.model.weights("batch_normalization/moving_mean"));
}

TEST_CASE("weight averages are not used before the first step") {
  const TestGpu gpu;
  Training scaled{steady<ScaledCuda<10, 2>>()};
  const auto initial = scaled.weights();
  std::vector<float> x(18, std::numeric_limits<float>::infinity());
  scaled.model.fit(tensors(x, shape(3), scaled.y) | batch(6), {.progress = ProgressStyle::none});
  CHECK(scaled.weights() == initial);
}

TEST_CASE("the scale stays within the range where a float represents it and its inverse") {
  lockstep::detail::LossScale<ScaledCuda<0, 1>> scale;
  for (int i = 0; i < 300; ++i) CHECK_FALSE(scale.accept_step(1));
  CHECK(scale.value() == 0x1p-126);
  CHECK(scale.skipped() == 300);
  for (int i = 0; i < 600; ++i) CHECK(scale.accept_step(0));
  CHECK(scale.value() == 0x1p126);
  CHECK(scale.skipped() == 300);
}
