#include "lockstep/training/checks/check_gradients.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <limits>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/losses/sparse_categorical_crossentropy.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;

namespace {

enum class Fault : std::uint8_t { none, dw, dx, unwritten };

/// y = w x with one weight, and optionally a faulty backward.
template <Fault F>
struct GainOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  constexpr std::size_t weights() const { return 1; }
  bool operator==(const GainOp&) const = default;
};
template <Fault F>
struct Gain {
  static constexpr std::string_view name = "gain";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr GainOp<F> op(ls::Shape in) { return {in}; }
  static constexpr std::array<ls::Parameter, 1> parameters(ls::Shape) {
    return {ls::Parameter{"w", ls::shape(1), {}, &ls::detail::initialize<ls::ones>, {}}};
  }
};

}  // namespace

template <Fault F, ls::HostDevice D>
struct ls::Kernel<GainOp<F>, D> : ls::KernelTraits {
  static constexpr bool keeps_x = true;
  static void forward(const GainOp<F>& op, const ls::Io<D>& io) {
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i) io.y[i] = io.w[0] * io.x[0][i];
  }
  static void backward(const GainOp<F>& op, const ls::Io<D>& io) {
    double sum = 0;
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i) {
      sum += io.x[0][i] * io.dy[i];
      if (io.dx[0] != nullptr)
        io.dx[0][i] = io.w[0] * io.dy[i] * (F == Fault::dx && i == 2 ? 1.01 : 1);
    }
    if (F != Fault::unwritten) io.dw[0] = F == Fault::dw ? 1.01 * sum : sum;
  }
};

namespace {

template <Fault F>
ls::GradientCheck check() {
  return ls::check_gradients<ls::Input<5>>(Gain<F>{});
}

struct Net : ls::Sequential<ls::Input<6, 3>, ls::Dense<4, ls::tanh>, ls::LayerNormalization<>,
                            ls::Dropout<0.3>, ls::Flatten, ls::BatchNormalization<>, ls::Dense<3>> {
};

}  // namespace

TEST_CASE("a correct gradient has no error, and a wrong one is named") {
  CHECK(check<Fault::none>().error < 1e-9);
  const auto dw = check<Fault::dw>(), dx = check<Fault::dx>(), nan = check<Fault::unwritten>();
  CHECK(dw.error > 1e-4);
  CHECK(dw.parameter == "gain/w");
  CHECK(dw.gradient / dw.slope > 1.009);
  CHECK(dx.error > 1e-5);
  CHECK(dx.parameter == "input/x");
  CHECK(dx.element == 2);
  CHECK(nan.error == std::numeric_limits<double>::infinity());
  CHECK(nan.parameter == "gain/w");
}

TEST_CASE("gradients of a model with dropout and batch statistics agree, with any loss") {
  std::vector<double> x(4 * 18), y(4 * 3);
  ls::Philox random(3);
  for (double& v : x) v = random.normal();
  for (double& v : y) v = random.normal();
  CHECK(ls::check_gradients(Net{}, x, y).error < 1e-7);
  const std::vector<std::int32_t> labels{0, 2, 1, 2};
  const ls::SparseCategoricalCrossentropy loss{.from_logits = true};
  CHECK(ls::check_gradients(Net{}, x, labels, loss, {.elements = 7}).error < 1e-7);
  CHECK_THROWS_AS(ls::check_gradients(Net{}, x, std::vector<double>(3)), ls::UsageError);
  struct Plain : ls::Sequential<ls::Input<6, 3>, ls::Flatten> {};
  CHECK_THROWS_AS(ls::check_gradients(Plain{}, x, x), ls::UsageError);
}
