// Gradients of inputs: networks that begin in every way, on the Cpu, compared with Reference<double>,
// and that one with differences of the loss.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/cpu.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace {

namespace ls = lockstep;
using Double = ls::Reference<double>;

template <class... Layers>
using Image = ls::Sequential<ls::Input<8, 8, 2>, Layers...>;
using Head = ls::Sequential<ls::Flatten, ls::Dense<3>>;

struct Fused : Image<ls::Conv2D<4, 3>, ls::ReLU, ls::MaxPooling2D<>, Head> {};
struct Activated
    : Image<ls::Conv2D<16, 3, ls::same, ls::tanh>, ls::Conv2D<4, 3, ls::strides(2)>, Head> {};
struct Pointwise : Image<ls::Tanh, Head> {};
struct Normalized : Image<ls::BatchNormalization<>, ls::Conv2D<4, 3>, Head> {};
struct Flipped : Image<ls::RandomFlip<ls::horizontal>, ls::Dropout<0.25>, Head> {};
struct Depthwise : Image<ls::DepthwiseConv2D<3>, ls::GELU, ls::AveragePooling2D<>, Head> {};
struct Padded : Image<ls::ZeroPadding2D<1>, ls::MaxPooling2D<>, Head> {};
struct Skips : Image<ls::Residual<ls::Sequential<ls::Conv2D<2, 3, ls::same>, ls::ReLU>>, Head> {};
struct Branches : Image<ls::Parallel<ls::Concatenate, ls::Conv2D<3, 3>, ls::Conv2D<2, 3>>, Head> {};
struct Recomputed
    : Image<ls::Recompute<ls::Sequential<ls::Conv2D<3, 3>, ls::Sigmoid, ls::Conv2D<2, 3>>>, Head> {
};
struct Views : Image<ls::Flatten, ls::Dense<5, ls::relu>, ls::Dense<3>> {};
struct Linear : Image<ls::GlobalAveragePooling2D, ls::Dense<3>> {};

constexpr std::size_t count = 5, size = 8 * 8 * 2;

template <class T>
std::vector<T> inputs() {
  ls::Philox g(11);
  std::vector<T> x(count * size);
  for (T& v : x) v = static_cast<T>(static_cast<float>(g.normal()));
  return x;
}
const std::vector<std::int32_t> labels{0, 1, 2, 1, 0};

template <class Net, class D>
auto model_on(const D& device = {}) {
  return ls::Model{Net{}, ls::Seed{5}, ls::OneDevice<D>{.on = device},
                   ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::SGD{}};
}

template <class Net>
void check() {
  auto exact = model_on<Net, Double>();
  const std::vector<double> x = inputs<double>();
  const std::vector<double> expected = exact.input_gradients(exact.batch(x, labels));
  REQUIRE(expected.size() == x.size());
  const double largest =
      std::abs(*std::max_element(expected.begin(), expected.end(),
                                 [](double a, double b) { return std::abs(a) < std::abs(b); }));
  CHECK(largest > 1e-4);
  for (std::size_t i = 0; i < x.size(); i += 37) {
    const auto loss_at = [&](double change) {
      auto changed = x;
      changed[i] += change;
      auto m = model_on<Net, Double>();
      return m.gradients_of(m.batch(changed, labels)).logs()["loss"];
    };
    const double difference = (loss_at(1e-6) - loss_at(-1e-6)) / 2e-6;
    CHECK(std::abs(difference - expected[i]) < 1e-7);
  }

  auto fast = model_on<Net, ls::Cpu>({.threads = 1});
  const std::vector<float> found = fast.input_gradients(fast.batch(inputs<float>(), labels));
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(found[i]) - expected[i]));
  CHECK(worst < 1e-5 * largest);
}

}  // namespace

TEST_CASE("gradients of inputs: networks that begin with a convolution, also a fused one") {
  check<Fused>();
  check<Activated>();
  check<Depthwise>();
  check<Skips>();
  check<Branches>();
  check<Recomputed>();
}
TEST_CASE("gradients of inputs: networks that begin with other layers") {
  check<Pointwise>();
  check<Normalized>();
  check<Flipped>();
  check<Padded>();
  check<Views>();
  check<Linear>();
}
TEST_CASE("gradients of inputs leave the training as it was") {
  auto one = model_on<Fused, ls::Cpu>({.threads = 1}),
       other = model_on<Fused, ls::Cpu>({.threads = 1});
  const auto x = inputs<float>();
  for (int step = 0; step < 3; ++step) {
    one.train_on_batch(x, labels);
    other.input_gradients(other.batch(x, labels));
    other.train_on_batch(x, labels);
    other.input_gradients(other.batch(std::span(x).first(2 * size), std::span(labels).first(2)));
  }
  CHECK(one.weights_sha256() == other.weights_sha256());
  CHECK(one.gradients("conv2d/kernel") == other.gradients("conv2d/kernel"));
}
TEST_CASE("an embedding has no gradient of its input") {
  struct Words : ls::Sequential<ls::Input<4>, ls::Embedding<8, 2>, ls::Flatten, ls::Dense<3>> {};
  auto m = model_on<Words, ls::Cpu>({.threads = 1});
  const std::vector<float> x{0, 1, 2, 3, 4, 5, 6, 7};
  const auto dx = m.input_gradients(m.batch(x, std::vector<std::int32_t>{0, 1}));
  CHECK(dx == std::vector<float>(8));
}
