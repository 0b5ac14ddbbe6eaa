#include "lockstep/model/statement_graph.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/frozen.hpp"
#include "lockstep/model/parallel.hpp"
#include "lockstep/model/recompute.hpp"
#include "lockstep/training/checks/describe_layers.hpp"
#include "unit/model/toy_device.hpp"

namespace {

namespace ls = lockstep;
using Oracle = ls::Reference<double>;

template <class Net>
void gradients_are_right(toy::Machine<Net, Oracle>& machine) {
  const auto gradients = machine.gradients();
  CHECK(testing::relative_error(gradients, machine.numeric_gradients()) < 1e-7);
}

// --8<-- [start:two_towers]
struct TwoTowers
    : ls::Graph<
          ls::In<"image", 28, 28, 1>, ls::In<"words", ls::Integers<64>>,
          ls::Let<"a", ls::From<"image">, ls::Conv2D<32, 3, ls::relu>, ls::Flatten>,
          ls::Let<"b", ls::From<"words">, ls::Embedding<20'000, 32>, ls::GlobalAveragePooling1D>,
          ls::Let<"both", ls::From<"a", "b">, ls::Concatenate, ls::Dense<64, ls::relu>>,
          ls::Out<"digit", ls::From<"both">, ls::Dense<10>>,
          ls::Out<"even", ls::From<"both">, ls::Dense<1>>> {};
// --8<-- [end:two_towers]
static_assert(TwoTowers::input_shape == ls::shape(784 + 64) &&
              TwoTowers::output_shape == ls::shape(10 + 1) &&
              TwoTowers::inputs[1].name == "words" && TwoTowers::inputs[1].shape == ls::shape(64) &&
              TwoTowers::inputs[1].offset == 784 && TwoTowers::outputs[0].name == "digit" &&
              // The part of the row that the Embedding reads itself is not copied.
              ls::detail::PlanOf<TwoTowers, Oracle>::plan.steps == TwoTowers::graph.nodes - 2);

/// Two inputs, three values and two outputs of which one has two axes.
struct Small
    : ls::Graph<ls::In<"image", 4, 3, 2>, ls::In<"numbers", 5>,
                ls::Let<"a", ls::From<"image">, ls::Conv2D<3, 2, ls::tanh>, ls::Flatten>,
                ls::Let<"b", ls::From<"numbers">, ls::Dense<4, ls::sigmoid>>,
                ls::Let<"both", ls::From<"a", "b", "numbers">, ls::Concatenate>,
                ls::Out<"digit", ls::From<"both">, ls::Dense<6>, ls::Reshape<ls::shape(2, 3)>>,
                ls::Out<"even", ls::From<"both", "b">, ls::Concatenate, ls::Dense<1>>> {};

/// Computes Small for one example from its formulas.
std::vector<double> small(const double* x, const std::vector<double>& w) {
  const double* p = w.data();
  const auto dense = [&](const std::vector<double>& in, std::size_t units) {
    std::vector<double> y(p + in.size() * units, p + (in.size() + 1) * units);
    for (std::size_t i = 0; i < in.size(); ++i)
      for (std::size_t u = 0; u < units; ++u) y[u] += in[i] * p[i * units + u];
    p += (in.size() + 1) * units;
    return y;
  };
  std::vector<double> a;  // (3, 2, 3) from (4, 3, 2) by a kernel (2, 2, 2, 3)
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t c = 0; c < 2; ++c)
      for (std::size_t f = 0; f < 3; ++f) {
        double sum = p[24 + f];
        for (std::size_t i = 0; i < 2; ++i)
          for (std::size_t j = 0; j < 2; ++j)
            for (std::size_t k = 0; k < 2; ++k)
              sum += x[((r + i) * 3 + c + j) * 2 + k] * p[((i * 2 + j) * 2 + k) * 3 + f];
        a.push_back(std::tanh(sum));
      }
  p += 27;
  const std::vector<double> numbers(x + 24, x + 29);
  std::vector<double> b = dense(numbers, 4);
  for (double& v : b) v = 1 / (1 + std::exp(-v));
  std::vector<double> both = a;
  both.insert(both.end(), b.begin(), b.end());
  both.insert(both.end(), numbers.begin(), numbers.end());
  std::vector<double> y = dense(both, 6);
  both.insert(both.end(), b.begin(), b.end());
  y.push_back(dense(both, 1)[0]);
  return y;
}

struct Pair : ls::Graph<ls::In<"p", 4>, ls::In<"q", 3>, ls::Let<"sum", ls::From<"p">, ls::Dense<3>>,
                        ls::Out<"product", ls::From<"sum", "q">, ls::Multiply>,
                        ls::Out<"sum_too", ls::From<"sum", "q">, ls::Add>> {
  static constexpr std::string_view name = "pair";
};

}  // namespace

TEST_CASE("a graph with two inputs and two outputs reads and writes one row") {
  STATIC_REQUIRE(Small::input_shape == ls::shape(29));
  STATIC_REQUIRE(Small::output_shape == ls::shape(7));
  STATIC_REQUIRE(Small::inputs.size() == 2);
  STATIC_REQUIRE(Small::inputs[0].name == "image");
  STATIC_REQUIRE(Small::inputs[0].shape == ls::shape(4, 3, 2));
  STATIC_REQUIRE(Small::inputs[1].name == "numbers");
  STATIC_REQUIRE(Small::inputs[1].offset == 24);
  STATIC_REQUIRE(Small::outputs[0].name == "digit");
  STATIC_REQUIRE(Small::outputs[0].shape == ls::shape(2, 3));
  STATIC_REQUIRE(Small::outputs[1].shape == ls::shape(1));
  STATIC_REQUIRE(Small::outputs[1].offset == 6);
  toy::Machine<Small, Oracle> machine(3);
  std::vector<double> expected;
  for (std::size_t n = 0; n < 3; ++n)
    for (const double y : small(machine.x.data() + n * 29, machine.weights)) expected.push_back(y);
  CHECK(testing::relative_error(machine.forward(), expected) < 1e-14);
  gradients_are_right(machine);
}

TEST_CASE("the gradient of the row has that of each input in its place") {
  static constexpr auto constants =
      ls::detail::engine_plan_of<Small, Oracle, ls::detail::InputPlanOf<Small, Oracle>>(nullptr);
  toy::Machine<Small, Oracle> machine(2);
  ls::detail::PlanEngine<Oracle> engine(machine.context, constants);
  engine.weights().upload(machine.weights.data());
  engine.prepare(2);
  engine.forward(machine.x.data(), machine.step());
  std::copy(machine.c.begin(), machine.c.end(), engine.output_gradient());
  engine.backward(machine.x.data(), machine.step(), [](const auto&) {});
  const std::vector<double> found(engine.input_gradient(),
                                  engine.input_gradient() + machine.x.size());
  std::vector<double> expected;
  for (double& v : machine.x) {
    const auto moved = [&](double by) {
      const double before = std::exchange(v, v + by);
      const auto y = machine.forward();
      v = before;
      return std::inner_product(y.begin(), y.end(), machine.c.begin(), 0.0);
    };
    expected.push_back((moved(1e-5) - moved(-1e-5)) / 2e-5);
  }
  CHECK(testing::relative_error(found, expected) < 1e-7);
}

TEST_CASE("layers of a graph are named as in Keras, inputs by their names") {
  CHECK(
      ls::detail::describe_layers<Small>() ==
      "image (target_shape (4, 3, 2), offset 0) to (4, 3, 2); numbers of input (target_shape (5), offset 24) to (5); conv2d of image (filters 3, kernel_size (2, 2), strides (1, 1), dilation_rate (1, 1), padding valid, use_bias yes) to (3, 2, 3), kernel (2, 2, 2, 3), bias (3); conv2d's Tanh to (3, 2, 3); flatten (target_shape (18)) to (18); dense of numbers (inputs 5, units 4, use_bias yes, leading ()) to (4), kernel (5, 4), bias (4); dense's Sigmoid to (4); concatenate of flatten, dense and numbers (other 9, axis -1, further 2) to (27); dense_1 (inputs 27, units 6, use_bias yes, leading ()) to (6), kernel (27, 6), bias (6); reshape (target_shape (2, 3)) to (2, 3); concatenate_1 of concatenate and dense (other 4, axis -1) to (31); dense_2 (inputs 31, units 1, use_bias yes, leading ()) to (1), kernel (31, 1), bias (1); flatten_1 of reshape (target_shape (6)) to (6); concatenate_2 of flatten_1 and dense_2 (other 1, axis -1) to (7)");
}

TEST_CASE("a graph with one input and output is the same network as Sequential and Parallel") {
  struct Net
      : ls::Sequential<ls::Input<5>, ls::Dense<4, ls::tanh>,
                       ls::Parallel<ls::Average, ls::Dense<3>, ls::Dense<3>, ls::Dense<3>>,
                       ls::Recompute<ls::Sequential<ls::Dense<4>, ls::Sigmoid>>, ls::Dense<2>> {};
  struct AsGraph
      : ls::Graph<ls::In<"x", 5>, ls::Let<"h", ls::From<"x">, ls::Dense<4, ls::tanh>>,
                  ls::Let<"a", ls::From<"h">, ls::Dense<3>>,
                  ls::Let<"b", ls::From<"h">, ls::Dense<3>>,
                  ls::Let<"c", ls::From<"h">, ls::Dense<3>>,
                  ls::Out<"y", ls::From<"a", "b", "c">, ls::Average,
                          ls::Recompute<ls::Sequential<ls::Dense<4>, ls::Sigmoid>>, ls::Dense<2>>> {
  };
  STATIC_REQUIRE(AsGraph::input_shape == ls::shape(5));
  STATIC_REQUIRE(AsGraph::outputs[0].shape == ls::shape(2));
  CHECK(ls::detail::describe_layers<AsGraph>() == ls::detail::describe_layers<Net>());
  CHECK(toy::Machine<AsGraph, Oracle>(3).gradients() == toy::Machine<Net, Oracle>(3).gradients());
}

TEST_CASE("a graph is a layer of another network, or a statement's rule with named outputs") {
  struct Half : ls::Graph<ls::In<"x", 5>, ls::Out<"y", ls::From<"x">, ls::Dense<4>, ls::Tanh>> {};
  struct Net : ls::Graph<ls::In<"x", 5>, ls::Let<"h", ls::From<"x">, Half>,
                         ls::Let<"q", ls::From<"x">, ls::Dense<3>>,
                         ls::Let<"both", ls::From<"h", "q">, Pair>,
                         ls::Out<"y", ls::From<"both/sum_too", "both/product">, ls::Subtract>,
                         ls::Out<"z", ls::From<"h", "q">, Pair, ls::Dense<2>>> {};
  struct Flat
      : ls::Sequential<
            ls::Input<5>,
            ls::Parallel<ls::Concatenate, ls::Sequential<ls::Dense<4>, ls::Tanh>, ls::Dense<3>>,
            Pair> {};
  STATIC_REQUIRE(Net::output_shape == ls::shape(5));
  STATIC_REQUIRE(Flat::output_shape == ls::shape(6));
  std::vector<std::string> names;
  for (const auto& p : ls::detail::parameters_of<Net>()) names.push_back(p.name);
  CHECK(names == std::vector<std::string>{"dense/kernel", "dense/bias", "dense_1/kernel",
                                          "dense_1/bias", "pair/dense/kernel", "pair/dense/bias",
                                          "pair_1/dense/kernel", "pair_1/dense/bias",
                                          "dense_2/kernel", "dense_2/bias"});
  toy::Machine<Net, Oracle> machine(2);
  gradients_are_right(machine);
  toy::Machine<Flat, Oracle> flat(2);
  gradients_are_right(flat);
  // y = (s + q) - s q, z = a product of the row [s q | s + q]; s and q from Flat's row.
  flat.engine.weights().upload(machine.weights.data());
  flat.x = machine.x;
  const auto row = flat.forward(), y = machine.forward();
  for (std::size_t n = 0; n < 2; ++n)
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(std::abs(y[n * 5 + i] - (row[n * 6 + 3 + i] - row[n * 6 + i])) < 1e-14);
}

namespace {

// --8<-- [start:gated]
/// A layer with one operand, y = w x x, or with three, y = w a b where mask > 0. The mask has no
/// gradient.
struct GatedOp {
  ls::Shape in;
  bool has_mask = false;
  constexpr ls::Shape out() const { return in; }
  constexpr std::size_t weights() const { return in.size(); }
  constexpr bool has_gradient(std::size_t operand) const { return operand < 2; }
  bool operator==(const GatedOp&) const = default;
};
struct Gated {
  static constexpr std::string_view name = "gated";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr bool accepts(ls::Shape a, ls::Shape b, ls::Shape mask) {
    return a == b && a == mask;
  }
  static constexpr std::array<ls::Parameter, 1> parameters(ls::Shape a) {
    return {ls::Parameter{"scale", ls::shape(a[0]), {}, nullptr, {}, true, true}};
  }
  static constexpr std::array<ls::Parameter, 1> parameters(ls::Shape a, ls::Shape, ls::Shape) {
    return parameters(a);
  }
  static constexpr GatedOp op(ls::Shape a) { return {a}; }
  static constexpr GatedOp op(ls::Shape a, ls::Shape, ls::Shape) { return {a, true}; }
};
// --8<-- [end:gated]
static_assert(ls::Layer<Gated> && ls::LayerOf<Gated, 3> && !ls::LayerOf<Gated, 2>);

}  // namespace

template <>
struct lockstep::Kernel<GatedOp, Oracle> : ls::KernelTraits {
  static constexpr bool keeps_x = true;
  static bool passes(const GatedOp& op, const ls::Io<Oracle>& io, std::size_t i) {
    return !op.has_mask || io.x[2][i] > 0;
  }
  static void forward(const GatedOp& op, const ls::Io<Oracle>& io) {
    const double *const a = io.x[0], *const b = io.x[op.has_mask ? 1 : 0];
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i)
      io.y[i] = passes(op, io, i) ? io.w[i % op.in.size()] * a[i] * b[i] : 0;
  }
  static void backward(const GatedOp& op, const ls::Io<Oracle>& io) {
    const double *const a = io.x[0], *const b = io.x[op.has_mask ? 1 : 0];
    if (op.has_mask) CHECK(io.dx[2] == nullptr);
    std::fill_n(io.dw, op.in.size(), 0.0);
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i) {
      const double dy = passes(op, io, i) ? io.dy[i] : 0, w = io.w[i % op.in.size()];
      io.dw[i % op.in.size()] += dy * a[i] * b[i];
      if (io.dx[0] != nullptr) io.dx[0][i] = (op.has_mask ? 1 : 2) * dy * w * b[i];
      if (op.has_mask && io.dx[1] != nullptr) io.dx[1][i] = dy * w * a[i];
    }
  }
};

TEST_CASE("a layer with several operands has weights, and an operand without a gradient") {
  struct Net : ls::Graph<ls::In<"x", 5>, ls::Let<"a", ls::From<"x">, ls::Dense<4>>,
                         ls::Let<"b", ls::From<"a">, Gated>,
                         ls::Let<"mask", ls::From<"x">, ls::Frozen<ls::Dense<4>>>,
                         ls::Let<"first", ls::From<"a", "b", "mask">, Gated>,
                         // a is a mask, too, and gets the gradient of its other readers.
                         ls::Out<"y", ls::From<"first", "b", "a">, Gated, ls::Dense<2>>> {};
  CHECK(
      ls::detail::describe_layers<Net>() ==
      "dense (inputs 5, units 4, use_bias yes, leading ()) to (4), kernel (5, 4), bias (4); gated (no) to (4), scale (4); dense_1 of input (inputs 5, units 4, use_bias yes, leading ()) to (4), kernel (5, 4) frozen, bias (4) frozen; gated_1 of dense, gated and dense_1 (yes) to (4), scale (4); gated_2 of gated_1, gated and dense (yes) to (4), scale (4); dense_2 (inputs 4, units 2, use_bias yes, leading ()) to (2), kernel (4, 2), bias (2)");
  toy::Machine<Net, Oracle> machine(3);
  std::vector<double> frozen(Net::graph.state);
  for (std::size_t i = 0; i < frozen.size(); ++i) frozen[i] = std::sin(static_cast<double>(i));
  machine.engine.state().upload(frozen.data());
  gradients_are_right(machine);
}

namespace {

// --8<-- [start:squares]
/// A layer with two results: x x, and the sum of x.
struct SquaresOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return ls::shape(in[0] + 1); }
  bool operator==(const SquaresOp&) const = default;
};
struct Squares : ls::ParameterlessLayer<SquaresOp> {
  static constexpr std::string_view name = "squares";
  static constexpr std::array<ls::RowPart, 2> results(ls::Shape in) {
    return {ls::RowPart{"", in, 0}, ls::RowPart{"sum", ls::shape(1), in.size()}};
  }
};
// --8<-- [end:squares]

}  // namespace

template <>
struct lockstep::Kernel<SquaresOp, Oracle> : ls::KernelTraits {
  static constexpr bool keeps_x = true;
  static void forward(const SquaresOp& op, const ls::Io<Oracle>& io) {
    const std::size_t size = op.in.size();
    for (std::size_t n = 0; n < io.step.count; ++n) {
      double& sum = io.y[n * (size + 1) + size] = 0;
      for (std::size_t i = 0; i < size; ++i) {
        const double x = io.x[0][n * size + i];
        io.y[n * (size + 1) + i] = x * x;
        sum += x;
      }
    }
  }
  static void backward(const SquaresOp& op, const ls::Io<Oracle>& io) {
    const std::size_t size = op.in.size();
    for (std::size_t i = 0; i < io.step.count * size && io.dx[0] != nullptr; ++i) {
      const double* const dy = io.dy + i / size * (size + 1);
      io.dx[0][i] = 2 * io.x[0][i] * dy[i % size] + dy[size];
    }
  }
};

TEST_CASE("a layer with several results names them, and results that nothing reads cost nothing") {
  struct Net : ls::Graph<ls::In<"x", 4>, ls::Let<"r", ls::From<"x">, ls::Dense<3>, Squares>,
                         ls::Let<"s", ls::From<"r/sum">, ls::Dense<3>>,
                         ls::Let<"unread", ls::From<"x">, ls::Dense<3>, Squares>,
                         ls::Out<"y", ls::From<"r", "s", "unread/sum">, ls::Concatenate>> {};
  STATIC_REQUIRE(Net::output_shape == ls::shape(7));
  STATIC_REQUIRE(ls::detail::PlanOf<Net, Oracle>::plan.steps == Net::graph.nodes - 1);
  toy::Machine<Net, Oracle> machine(2);
  gradients_are_right(machine);
  // y = [h h | (sum of h) W + b | sum of g], where h and g are values of Dense.
  const auto& w = machine.weights;
  const auto dense = [&](std::size_t n, std::size_t at, std::size_t u) {
    double sum = w[at + 12 + u];
    for (std::size_t i = 0; i < 4; ++i) sum += machine.x[n * 4 + i] * w[at + i * 3 + u];
    return sum;
  };
  std::vector<double> expected;
  for (std::size_t n = 0; n < 2; ++n) {
    double sum = 0, other = 0;
    for (std::size_t u = 0; u < 3; ++u) {
      const double h = dense(n, 0, u);
      sum += h;
      other += dense(n, 15 + 6, u);
      expected.push_back(h * h);
    }
    for (std::size_t u = 0; u < 3; ++u) expected.push_back(sum * w[15 + u] + w[18 + u]);
    expected.push_back(other);
  }
  CHECK(testing::relative_error(machine.forward(), expected) < 1e-14);
}
