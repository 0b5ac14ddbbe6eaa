#include "lockstep/model/parallel.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "lockstep/model/recompute.hpp"
#include "lockstep/model/repeat.hpp"
#include "lockstep/training/checks/describe_layers.hpp"
#include "unit/model/toy_device.hpp"

namespace {

namespace ls = lockstep;
using Oracle = ls::Reference<double>;
using In = ls::Input<5>;

template <class Net>
void gradients_are_right() {
  toy::Machine<Net, Oracle> machine(3);
  const auto gradients = machine.gradients();
  CHECK(testing::relative_error(gradients, machine.numeric_gradients()) < 1e-7);
}

/// Outputs of each branch as a separate model, with the same x and its part of the weights.
template <class Net>
std::vector<double> alone(const std::vector<double>& x, const std::vector<double>& weights,
                          std::size_t& offset, std::size_t count) {
  toy::Machine<Net, Oracle> machine(count);
  machine.x = x;
  machine.engine.weights().upload(weights.data() + offset);
  offset += Net::trainable_count;
  return machine.forward();
}

}  // namespace

TEST_CASE("concatenated branches are adjacent, in order") {
  struct Net : ls::Sequential<In, ls::Parallel<ls::Concatenate, ls::Dense<2>, ls::Identity,
                                               ls::Dense<1>, ls::Dense<4>, ls::Dense<3>>> {};
  struct A : ls::Sequential<In, ls::Dense<2>> {};
  struct B : ls::Sequential<In, ls::Dense<1>> {};
  struct C : ls::Sequential<In, ls::Dense<4>> {};
  struct E : ls::Sequential<In, ls::Dense<3>> {};
  STATIC_REQUIRE(Net::output_shape == ls::shape(15));
  constexpr std::size_t count = 3;
  toy::Machine<Net, Oracle> machine(count);
  const auto y = machine.forward();
  std::size_t offset = 0;
  const auto &x = machine.x, &w = machine.weights;
  const std::vector<std::vector<double>> parts{
      alone<A>(x, w, offset, count), x, alone<B>(x, w, offset, count),
      alone<C>(x, w, offset, count), alone<E>(x, w, offset, count)};
  std::vector<double> expected;
  for (std::size_t n = 0; n < count; ++n)
    for (const auto& part : parts) {
      const auto width = static_cast<std::ptrdiff_t>(part.size() / count);
      const auto begin = part.begin() + static_cast<std::ptrdiff_t>(n) * width;
      expected.insert(expected.end(), begin, begin + width);
    }
  CHECK(y == expected);
}

TEST_CASE("added branches give their sum") {
  struct Net : ls::Sequential<In, ls::Parallel<ls::Add, ls::Dense<5>, ls::Identity, ls::Dense<5>>> {
  };
  struct A : ls::Sequential<In, ls::Dense<5>> {};
  toy::Machine<Net, Oracle> machine(2);
  const auto y = machine.forward();
  std::size_t offset = 0;
  const auto a = alone<A>(machine.x, machine.weights, offset, 2),
             b = alone<A>(machine.x, machine.weights, offset, 2);
  std::vector<double> expected;
  for (std::size_t i = 0; i < y.size(); ++i) expected.push_back(a[i] + machine.x[i] + b[i]);
  CHECK(testing::relative_error(y, expected) < 1e-15);
}

TEST_CASE("averaged branches give their mean, also of three") {
  struct A : ls::Sequential<In, ls::Dense<5>> {};
  struct Three
      : ls::Sequential<In, ls::Parallel<ls::Average, ls::Dense<5>, ls::Identity, ls::Dense<5>>> {};
  toy::Machine<Three, Oracle> machine(2);
  const auto y = machine.forward();
  std::size_t offset = 0;
  const auto a = alone<A>(machine.x, machine.weights, offset, 2),
             b = alone<A>(machine.x, machine.weights, offset, 2);
  std::vector<double> expected;
  for (std::size_t i = 0; i < y.size(); ++i) expected.push_back((a[i] + machine.x[i] + b[i]) / 3);
  CHECK(testing::relative_error(y, expected) < 1e-15);
  gradients_are_right<Three>();
  STATIC_REQUIRE(Three::graph.node[2].class_name == "Average");
  STATIC_REQUIRE(Three::graph.nodes == 3);
}

TEST_CASE("gradients through branches that are merged element by element are right") {
  struct Net
      : ls::Sequential<
            In, ls::Dense<4>, ls::Parallel<ls::Multiply, ls::Identity, ls::Dense<4, ls::sigmoid>>,
            ls::Parallel<ls::Subtract, ls::Dense<4>, ls::Identity>,
            ls::Parallel<ls::Maximum, ls::Dense<4>, ls::Dense<4>, ls::Identity, ls::Tanh>,
            ls::Parallel<ls::Minimum, ls::Dense<4>, ls::Dense<4>, ls::Identity>,
            ls::Parallel<ls::Average, ls::Dense<4>, ls::Tanh>, ls::Dense<2>> {};
  gradients_are_right<Net>();
}

TEST_CASE("gradients through dot products are right") {
  struct Net
      : ls::Sequential<In, ls::Dense<6>,
                       ls::Parallel<ls::Dot<ls::axes(1, 2)>, ls::Reshape<ls::shape(3, 2)>,
                                    ls::Sequential<ls::Dense<6>, ls::Reshape<ls::shape(2, 3)>>>,
                       ls::Parallel<ls::Dot<-1, ls::normalize>, ls::Dense<2>, ls::Identity>,
                       ls::Flatten, ls::Parallel<ls::Dot<1>, ls::Dense<4>, ls::Dense<4>>> {};
  STATIC_REQUIRE(Net::output_shape == ls::shape(1));
  gradients_are_right<Net>();
}

TEST_CASE("two added branches equal a Residual") {
  struct Main : ls::Sequential<ls::Dense<5>, ls::Tanh> {};
  struct A : ls::Sequential<In, ls::Residual<Main>, ls::Dense<2>> {};
  struct B : ls::Sequential<In, ls::Parallel<ls::Add, Main, ls::Identity>, ls::Dense<2>> {};
  CHECK(toy::Machine<A, Oracle>(3).gradients() == toy::Machine<B, Oracle>(3).gradients());
  CHECK(ls::detail::describe_layers<A>() == ls::detail::describe_layers<B>());
}

TEST_CASE("gradients through concatenated branches match finite differences") {
  struct OnInput : ls::Sequential<In, ls::Parallel<ls::Concatenate, ls::Identity, ls::Dense<3>>,
                                  ls::Tanh, ls::Dense<2>> {};
  gradients_are_right<OnInput>();
  struct Long : ls::Sequential<ls::Dense<4>, ls::Tanh, ls::Dense<3>> {};
  struct Joined : ls::Parallel<ls::Concatenate, Long, ls::Sequential<ls::Dense<2>, ls::Sigmoid>,
                               ls::Identity> {};
  struct Net : ls::Sequential<In, ls::Dense<4>, ls::Tanh, Joined, ls::Tanh, Joined, ls::Dense<2>> {
  };
  gradients_are_right<Net>();
}

TEST_CASE("values are concatenated along any axis") {
  struct Net
      : ls::Sequential<In, ls::Dense<6>,
                       ls::Parallel<ls::ConcatenateOn<1>, ls::Reshape<ls::shape(3, 2)>,
                                    ls::Reshape<ls::shape(3, 2)>, ls::Reshape<ls::shape(3, 2)>>,
                       ls::Parallel<ls::ConcatenateOn<-2>, ls::Tanh, ls::Identity>, ls::Flatten,
                       ls::Dense<2>> {};
  STATIC_REQUIRE(Net::graph.node[4].class_name == "Concatenate");
  STATIC_REQUIRE(Net::graph.value[Net::graph.node[4].out] == ls::shape(9, 2));
  STATIC_REQUIRE(Net::graph.node[6].operands() == 2);
  gradients_are_right<Net>();
}

TEST_CASE("gradients are right when a value is concatenated with itself") {
  struct Net
      : ls::Sequential<In, ls::Dense<3>,
                       ls::Parallel<ls::Concatenate, ls::Identity, ls::Identity, ls::Identity>,
                       ls::Tanh, ls::Dense<2>> {};
  gradients_are_right<Net>();
}

TEST_CASE("gradients are right through branches in branches, sums of them, and views") {
  struct Inner : ls::Sequential<ls::Parallel<ls::Concatenate, ls::Dense<1>,
                                             ls::Sequential<ls::Dense<3>, ls::Sigmoid>>> {};
  struct Sum : ls::Sequential<
                   ls::Parallel<ls::Add, Inner, ls::Residual<Inner, ls::Dense<4>>, ls::Dense<4>>,
                   ls::Tanh> {};
  struct Net : ls::Sequential<In, ls::Dense<4>, ls::Repeat<2, Sum>, ls::Dense<2>> {};
  gradients_are_right<Net>();
  struct Image
      : ls::Sequential<
            ls::Input<4, 4, 2>,
            ls::Parallel<ls::Concatenate, ls::Conv2D<3, 3, ls::same, ls::tanh>,
                         ls::MaxPooling2D<3, ls::same, ls::strides(1)>, ls::Conv2D<1, 1>>,
            ls::Parallel<ls::Concatenate, ls::Flatten, ls::GlobalAveragePooling2D>, ls::Dense<2>> {
  };
  STATIC_REQUIRE(Image::graph.value[Image::graph.output] == ls::shape(2));
  gradients_are_right<Image>();
}

TEST_CASE("merge layers are numbered as in Keras, and compared between workers") {
  struct Net : ls::Sequential<ls::Input<4, 4, 2>,
                              ls::Parallel<ls::Concatenate, ls::Identity, ls::Conv2D<3, 1>>,
                              ls::Parallel<ls::Concatenate, ls::ReLU, ls::ReLU>> {};
  CHECK(
      ls::detail::describe_layers<Net>() ==
      "conv2d (filters 3, kernel_size (1, 1), strides (1, 1), dilation_rate (1, 1), padding valid, use_bias yes) to (4, 4, 3), kernel (1, 1, 2, 3), bias (3); concatenate of input and conv2d (other 3, axis -1) to (4, 4, 5); re_lu to (4, 4, 5); re_lu_1 of concatenate to (4, 4, 5); concatenate_1 of re_lu and re_lu_1 (other 5, axis -1) to (4, 4, 10)");
  CHECK(Net::graph.node[1].class_name == "Concatenate");
}

namespace {

/// A user-defined rule: the product.
struct ProductOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  bool operator==(const ProductOp&) const = default;
};
struct Product {
  static constexpr std::string_view name = "product";
  static constexpr bool accepts(ls::Shape a, ls::Shape b) { return a == b; }
  static constexpr ProductOp op(ls::Shape a, ls::Shape) { return {a}; }
};

}  // namespace

template <>
struct lockstep::Kernel<ProductOp, Oracle> : ls::KernelTraits {
  static constexpr bool keeps_x = true;
  static void forward(const ProductOp& op, const ls::Io<Oracle>& io) {
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i)
      io.y[i] = io.x[0][i] * io.x[1][i];
  }
  static void backward(const ProductOp& op, const ls::Io<Oracle>& io) {
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i) {
      if (io.dx[0] != nullptr) io.dx[0][i] = io.dy[i] * io.x[1][i];
      if (io.dx[1] != nullptr) io.dx[1][i] = io.dy[i] * io.x[0][i];
    }
  }
};

TEST_CASE("a user-defined rule merges branches") {
  struct Gate : ls::Sequential<ls::Dense<4>, ls::Sigmoid> {};
  struct Net
      : ls::Sequential<In, ls::Dense<4>, ls::Parallel<Product, Gate, ls::Tanh>, ls::Dense<2>> {};
  gradients_are_right<Net>();
  // Only backward of the rule reads these factors.
  struct Factors : ls::Parallel<Product, ls::Dense<4>, ls::Dense<4>> {};
  struct Bare : ls::Sequential<In, ls::Dense<4>, Factors, ls::Dense<4>, ls::Dense<2>> {};
  gradients_are_right<Bare>();
  struct Again
      : ls::Sequential<In, ls::Dense<4>, ls::Recompute<ls::Sequential<Factors, ls::Dense<4>>>,
                       ls::Dense<2>> {};
  gradients_are_right<Again>();
}
