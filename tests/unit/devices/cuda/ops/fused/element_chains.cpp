/// \file
/// Two element-wise ops as one pass beside the two ops one after the other.
#include "lockstep/devices/cuda/ops/fused/element_chains.hpp"

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/training/report/summary.hpp"
#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// Both ops as a plan without the rule runs them, in double.
template <class First, class Second>
LayerResult<double> one_by_one(const First& first, const Second& second, std::size_t count,
                               const Numbers& n, const RunOptions<double>& options) {
  using D = Reference<double>;
  const auto wide = [](const auto& v) { return as<double>(v); };
  RunOptions<double> of_first = options, of_second = options;
  of_second.x2 = {};
  of_second.want_dx = true;
  const auto y = run_layer<D>(first, count, wide(n.x), {}, wide(n.dy), of_first).y;
  auto result = run_layer<D>(second, count, y, {}, wide(n.dy), of_second);
  const auto back = run_layer<D>(first, count, wide(n.x), {}, result.dx, of_first);
  result.dx = back.dx;
  result.dx2 = back.dx2;
  return result;
}

template <class D, class Fused, class First, class Second>
void agree(const Fused& op, const First& first, const Second& second, Shape in, std::size_t count,
           bool joins, double allowed) {
  using A = ActivationOf<D>;
  INFO(to_string(in) << ", examples " << count);
  Numbers n = numbers(first, in.size(), 0, count);
  n.x = rounded<A>(n.x);
  n.dy = rounded<A>(n.dy);
  RunOptions<double> options;
  options.seed = 12345678901234567ull;
  options.pass = 3;
  options.first_ordinal = (1ull << 32) - 2;
  RunOptions<float> narrow;
  narrow.seed = options.seed;
  narrow.pass = options.pass;
  narrow.first_ordinal = options.first_ordinal;
  if (joins) {
    narrow.x2 = rounded<A>(numbers(first, in.size(), 0, count + 1).x);
    narrow.x2.resize(n.x.size());
    options.x2 = as<double>(narrow.x2);
  }
  for (const bool want_dx : {true, false}) {
    INFO("dx wanted " << want_dx);
    options.want_dx = narrow.want_dx = want_dx;
    const auto expected = one_by_one(first, second, count, n, options);
    const auto result = run_layer<D>(op, count, n.x, {}, n.dy, narrow);
    CHECK(relative_error(result.y, expected.y) < allowed);
    if (want_dx) CHECK(relative_error(result.dx, expected.dx) < allowed);
    if (joins) CHECK(relative_error(result.dx2, expected.dx2) < allowed);
  }
}

template <class D, class Activation>
void with_dropout(const Activation& form, double allowed) {
  const auto check = [&](Shape in, float rate, std::size_t count) {
    Activation activation = form;
    activation.in = in;
    const DropoutOp dropout{in, rate};
    agree<D>(ActivationDropoutOp<Activation>{activation, dropout}, activation, dropout, in, count,
             false, allowed);
  };
  check(shape(64), 0.25f, 9);
  check(shape(5, 7, 3), 0.5f, 5);
  check(shape(1), 0.9f, 200);
  check(shape(30), 0.0f, 5);
  check(shape(30), 0.3f, 0);
}
template <class D, class Activation>
void behind_add(const Activation& form, double allowed) {
  for (const Shape in : {shape(64), shape(5, 7, 3), shape(1)})
    for (const std::size_t count : {0u, 1u, 9u}) {
      Activation activation = form;
      activation.in = in;
      agree<D>(AddActivationOp<Activation>{{in}, activation}, AddOp{in}, activation, in, count,
               true, allowed);
    }
}

}  // namespace

TEST_CASE("an activation with the Dropout behind it agrees with the two ops") {
  TestGpu gpu;
  with_dropout<Cuda>(ReLUOp{}, tolerance);
  with_dropout<Cuda>(LeakyReLUOp{}, tolerance);
  with_dropout<Cuda>(ELUOp{}, tolerance);
  with_dropout<Cuda>(GELUOp{}, tolerance);
  with_dropout<Cuda>(SiLUOp{}, tolerance);
  with_dropout<Cuda>(SigmoidOp{}, tolerance);
  with_dropout<Cuda>(TanhOp{}, tolerance);
  with_dropout<Cuda>(SoftplusOp{}, tolerance);
  with_dropout<CudaBFloat16>(GELUOp{}, half_tolerance);
  with_dropout<CudaBFloat16>(ReLUOp{}, half_tolerance);
  with_dropout<CudaFloat16>(SiLUOp{}, float16_tolerance);
}

TEST_CASE("a sum with the activation behind it agrees with the two ops") {
  TestGpu gpu;
  behind_add<Cuda>(ReLUOp{}, tolerance);
  behind_add<Cuda>(ReLU6Op{}, tolerance);
  behind_add<Cuda>(LeakyReLUOp{}, tolerance);
  behind_add<Cuda>(ELUOp{}, tolerance);
  behind_add<Cuda>(SigmoidOp{}, tolerance);
  behind_add<Cuda>(TanhOp{}, tolerance);
  behind_add<Cuda>(SoftplusOp{}, tolerance);
  behind_add<CudaBFloat16>(ReLUOp{}, half_tolerance);
}

TEST_CASE("outside of training a fused Dropout passes the activation on") {
  TestGpu gpu;
  const Shape in = shape(30);
  const Numbers n = numbers(GELUOp{in}, in.size(), 0, 5);
  RunOptions<float> options;
  options.training = false;
  const auto y =
      run_layer<Cuda>(ActivationDropoutOp<GELUOp>{{in}, {in, 0.5f}}, 5, n.x, {}, n.dy, options).y;
  CHECK(y == run_layer<Cuda>(GELUOp{in}, 5, n.x, {}, n.dy, options).y);
}

namespace {

/// With what backward needs computed once more, too.
template <class Activation>
struct Again
    : Sequential<Input<6>, Recompute<Sequential<Dense<8>, Activation, Dropout<rate(0.25f)>>>,
                 Residual<Recompute<Sequential<Dense<8>, Residual<Dense<8>>, Tanh>>>, Dense<2>> {};
template <class Activation>
struct Branchy : Sequential<Input<6>, Dense<8>, Activation, Dropout<rate(0.25f)>,
                            Residual<Sequential<Dense<8>>>, Tanh, Dropout<rate(0.5f)>, Dense<2>> {};

template <class D, class Net>
std::vector<double> losses() {
  Model model{Net{}, Seed{3}, OneDevice<D>{}, MeanSquaredError{}, SGD{.learning_rate = 0.1}};
  std::vector<float> x(6 * 12), y(2 * 12);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(i % 5) / 5;
  std::vector<double> all;
  for (int step = 0; step < 4; ++step) all.push_back(model.train_on_batch(x, y)["loss"]);
  return all;
}

}  // namespace

TEST_CASE("a model of chains trains on the GPU as on the reference: the draws are the Dropout's") {
  TestGpu gpu;
  CHECK(lockstep::detail::fused_names<Branchy<GELU>, Cuda>().size() == 2);  // the sum and its Tanh
  CHECK(lockstep::detail::fused_names<Again<Sigmoid>, Cuda>().size() == 2);
  const auto trains_alike = []<class Net>() {
    const auto expected = losses<Reference<float>, Net>(), seen = losses<Cuda, Net>();
    REQUIRE(seen.size() == expected.size());
    for (std::size_t i = 0; i < seen.size(); ++i)
      CHECK(std::abs(seen[i] - expected[i]) < 1e-5 * expected[i]);
  };
  // GELU keeps x; Sigmoid is in place and keeps y.
  trains_alike.operator()<Branchy<GELU>>();
  trains_alike.operator()<Branchy<Sigmoid>>();
  trains_alike.operator()<Again<GELU>>();
  trains_alike.operator()<Again<Sigmoid>>();
}

TEST_CASE("a slope that ends at 0 is not taken from two bytes that were scaled") {
  using Net = Branchy<Sigmoid>;
  CHECK(lockstep::detail::fused_names<Net, Cuda>().size() == 2);
  CHECK(lockstep::detail::fused_names<Net, CudaBFloat16>().size() == 1);
  CHECK(lockstep::detail::fused_names<Branchy<ReLU>, CudaFloat16>().size() == 2);
}
