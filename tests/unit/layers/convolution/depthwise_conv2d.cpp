/// \file
/// The declaration of DepthwiseConv2D; the golden tests check its numbers.
#include "lockstep/layers/convolution/depthwise_conv2d.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/model/sequential.hpp"
#include "lockstep/training/checks/describe_layers.hpp"

namespace ls = lockstep;

TEST_CASE("the parameters of DepthwiseConv2D have Keras' names, shapes and fans") {
  struct Net
      : ls::Sequential<ls::Input<8, 8, 5>, ls::DepthwiseConv2D<3, ls::depth_multiplier(2)>,
                       ls::DepthwiseConv2D<ls::kernel(3, 2), ls::same, ls::no_bias, ls::relu>> {};
  const auto infos = ls::detail::parameters_of<Net>();
  REQUIRE(infos.size() == 3);
  CHECK(infos[0].name == "depthwise_conv2d/kernel");
  CHECK(infos[0].shape == ls::shape(3, 3, 5, 2));
  CHECK(infos[1].name == "depthwise_conv2d/bias");
  CHECK(infos[1].shape == ls::shape(10));
  CHECK(infos[2].name == "depthwise_conv2d_1/kernel");
  CHECK(infos[2].shape == ls::shape(3, 2, 10, 1));
  // Keras' compute_fans: (shape[-2], shape[-1]) times the receptive field.
  CHECK(Net::graph.parameter[0].fans.in == 45);
  CHECK(Net::graph.parameter[0].fans.out == 18);
  CHECK(Net::output_shape == ls::shape(6, 6, 10));
  CHECK(Net::graph.flops == 2.0 * 9 * 6 * 6 * 10 + 2.0 * 6 * 6 * 6 * 10);
}

TEST_CASE("initializers and penalties of DepthwiseConv2D apply to the parameter they name") {
  struct Net
      : ls::Sequential<ls::Input<4, 4, 3>,
                       ls::DepthwiseConv2D<3, ls::depthwise_initializer(ls::ConstantValue{2}),
                                           ls::bias_initializer(ls::ConstantValue{3}),
                                           ls::depthwise_regularizer(ls::L2{0.5}),
                                           ls::bias_regularizer(ls::L1{0.25})>,
                       ls::DepthwiseConv2D<2>> {};
  std::vector<double> weights(Net::trainable_count);
  ls::detail::initialize_parameters<Net, double>(1, weights, {});
  for (std::size_t i = 0; i < 27; ++i) CHECK(weights[i] == 2);
  for (std::size_t i = 27; i < 30; ++i) CHECK(weights[i] == 3);
  const double limit = std::sqrt(6.0 / (4 * 3 + 4 * 1));  // glorot_uniform
  double largest = 0;
  for (std::size_t i = 30; i < 42; ++i) largest = std::max(largest, std::abs(weights[i]));
  CHECK((largest <= limit && largest > limit / 2));
  CHECK(weights[42] == 0);
  CHECK(Net::graph.parameter[0].penalty == ls::Penalty{0, 0.5});
  CHECK(Net::graph.parameter[1].penalty == ls::Penalty{0.25, 0});
  CHECK(!Net::graph.parameter[2].penalty);
}

TEST_CASE("the signature covers the options of DepthwiseConv2D") {
  struct Net : ls::Sequential<ls::Input<8, 8, 3>,
                              ls::DepthwiseConv2D<3, ls::depth_multiplier(2), ls::strides(2)>> {};
  CHECK(
      ls::detail::describe_layers<Net>() ==
      "depthwise_conv2d (depth_multiplier 2, kernel_size (3, 3), strides (2, 2), dilation_rate (1, 1), padding valid, use_bias yes) to (3, 3, 6), kernel (3, 3, 3, 2), bias (6)");
}
