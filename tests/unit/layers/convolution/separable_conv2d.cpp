/// \file
/// The declaration of SeparableConv2D; the golden tests check its numbers.
#include "lockstep/layers/convolution/separable_conv2d.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/model/sequential.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/training/checks/describe_layers.hpp"
#include "support/run_kernel.hpp"

namespace ls = lockstep;

TEST_CASE("the parameters of SeparableConv2D have Keras' names, shapes and fans") {
  struct Net
      : ls::Sequential<ls::Input<8, 8, 5>,
                       ls::SeparableConv2D<7, 3, ls::depth_multiplier(2), ls::relu,
                                           ls::depthwise_initializer(ls::ConstantValue{2}),
                                           ls::pointwise_initializer(ls::ConstantValue{3}),
                                           ls::bias_initializer(ls::ConstantValue{4}),
                                           ls::depthwise_regularizer(ls::L2{0.5}),
                                           ls::pointwise_regularizer(ls::L1{0.25})>,
                       ls::SeparableConv2D<3, ls::kernel(3, 2), ls::strides(2), ls::no_bias>> {};
  const auto infos = ls::detail::parameters_of<Net>();
  REQUIRE(infos.size() == 5);
  CHECK(infos[0].name == "separable_conv2d/depthwise_kernel");
  CHECK(infos[0].shape == ls::shape(3, 3, 5, 2));
  CHECK(infos[1].name == "separable_conv2d/pointwise_kernel");
  CHECK(infos[1].shape == ls::shape(1, 1, 10, 7));
  CHECK(infos[2].name == "separable_conv2d/bias");
  CHECK(infos[2].shape == ls::shape(7));
  CHECK(infos[3].name == "separable_conv2d_1/depthwise_kernel");
  CHECK(infos[4].name == "separable_conv2d_1/pointwise_kernel");
  // Keras' compute_fans: (shape[-2], shape[-1]) times the receptive field.
  const auto& p = Net::graph.parameter;
  CHECK((p[0].fans.in == 45 && p[0].fans.out == 18 && p[1].fans.in == 10 && p[1].fans.out == 7));
  CHECK((p[0].penalty == ls::Penalty{0, 0.5} && p[1].penalty == ls::Penalty{0.25, 0}));
  CHECK((!p[2].penalty && !p[3].penalty && !p[4].penalty));
  std::vector<double> weights(Net::trainable_count);
  ls::detail::initialize_parameters<Net, double>(1, weights, {});
  for (std::size_t i = 0; i < 90 + 70 + 7; ++i)
    REQUIRE(weights[i] == (i < 90 ? 2 : i < 160 ? 3 : 4));
  CHECK(Net::output_shape == ls::shape(2, 3, 3));
}

TEST_CASE("SeparableConv2D computes what DepthwiseConv2D and a 1x1 Conv2D compute") {
  using D = ls::Reference<double>;
  constexpr auto in = ls::shape(6, 5, 3);
  constexpr std::size_t count = 2, first_size = 3 * 3 * 3 * 2, second_size = 6 * 4 + 4;
  const auto op = ls::SeparableConv2D<4, 3, ls::depth_multiplier(2)>::op(in);
  const auto x = testing::normal_values(count * in.size(), 1);
  const auto w = testing::normal_values(first_size + second_size, 2);
  const auto dy = testing::normal_values(count * op.out().size(), 3);
  const auto both = testing::run_layer<D>(op, count, x, w, dy);
  const std::vector<double> w1(w.begin(), w.begin() + first_size),
      w2(w.begin() + first_size, w.end());
  const auto middle = testing::run_layer<D>(op.depthwise, count, x, w1, {}, {.training = false}).y;
  const auto second = testing::run_layer<D>(op.pointwise(), count, middle, w2, dy);
  const auto first = testing::run_layer<D>(op.depthwise, count, x, w1, second.dx);
  CHECK(both.y == second.y);
  CHECK(both.dx == first.dx);
  auto dw = first.dw;
  dw.insert(dw.end(), second.dw.begin(), second.dw.end());
  CHECK(both.dw == dw);
}

TEST_CASE("the signature covers the options of SeparableConv2D") {
  struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::SeparableConv2D<4, 3>> {};
  CHECK(
      ls::detail::describe_layers<Net>() ==
      "separable_conv2d (depthwise (depth_multiplier 1, kernel_size (3, 3), strides (1, 1), dilation_rate (1, 1), padding valid, use_bias no), filters 4, use_bias yes) to (6, 6, 4), depthwise_kernel (3, 3, 3, 1), pointwise_kernel (1, 1, 3, 4), bias (4)");
}
