/// \file
/// Conv2DTranspose against the convolution that it transposes, and its declaration. The golden
/// tests check its numbers, too.
#include "lockstep/layers/convolution/conv2d_transpose.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/model/sequential.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/training/checks/describe_layers.hpp"
#include "support/run_kernel.hpp"

namespace ls = lockstep;

namespace {

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// <convolution(u), x> = <u, transposed(x)> for any u and x.
template <class L>
void is_transposed(ls::Shape in) {
  using D = ls::Reference<double>;
  const auto op = L::op(in);
  const ls::Conv2DOp back = op.convolution();
  REQUIRE(back.out() == in);
  const auto x = testing::normal_values(2 * in.size(), 1),
             u = testing::normal_values(2 * op.out().size(), 2),
             w = testing::normal_values(op.kernel_size(), 3);
  const auto y = testing::run_layer<D>(op, 2, x, w, {}, {.training = false}).y;
  const auto v = testing::run_layer<D>(back, 2, u, w, {}, {.training = false}).y;
  CHECK(std::abs(dot(v, x) - dot(u, y)) < 1e-11 * std::sqrt(dot(u, u) * dot(y, y)));
}

}  // namespace

TEST_CASE("Conv2DTranspose is the transpose of a convolution") {
  using ls::no_bias, ls::same, ls::strides, ls::dilation, ls::output_padding;
  is_transposed<ls::Conv2DTranspose<4, 3, no_bias>>(ls::shape(5, 4, 3));
  is_transposed<ls::Conv2DTranspose<4, 3, same, strides(2), no_bias>>(ls::shape(5, 4, 3));
  is_transposed<ls::Conv2DTranspose<2, ls::kernel(2, 5), strides(3, 2), no_bias>>(
      ls::shape(4, 3, 2));
  is_transposed<ls::Conv2DTranspose<2, 3, dilation(2, 3), no_bias>>(ls::shape(4, 3, 2));
  is_transposed<ls::Conv2DTranspose<2, 3, dilation(2), same, no_bias>>(ls::shape(5, 7, 2));
  is_transposed<ls::Conv2DTranspose<2, 3, strides(3), output_padding(2, 0), no_bias>>(
      ls::shape(4, 3, 2));
}

TEST_CASE("the output of Conv2DTranspose has Keras' shape") {
  using ls::same, ls::strides, ls::output_padding;
  constexpr auto in = ls::shape(4, 5, 2);
  CHECK(ls::Conv2DTranspose<3, 3>::op(in).out() == ls::shape(6, 7, 3));
  CHECK(ls::Conv2DTranspose<3, 3, strides(2)>::op(in).out() == ls::shape(9, 11, 3));
  CHECK(ls::Conv2DTranspose<3, 2, strides(3)>::op(in).out() == ls::shape(12, 15, 3));
  CHECK(ls::Conv2DTranspose<3, 5, strides(2), same>::op(in).out() == ls::shape(8, 10, 3));
  CHECK(ls::Conv2DTranspose<3, 3, strides(2), same, output_padding(0, 1)>::op(in).out() ==
        ls::shape(7, 10, 3));
  CHECK(ls::Conv2DTranspose<3, 2, strides(3), output_padding(2)>::op(in).out() ==
        ls::shape(13, 16, 3));
}

TEST_CASE("the parameters of Conv2DTranspose have Keras' names, shapes and fans") {
  struct Net : ls::Sequential<ls::Input<4, 4, 5>,
                              ls::Conv2DTranspose<7, ls::kernel(3, 2), ls::same, ls::strides(2),
                                                  ls::kernel_regularizer(ls::L2{0.5})>> {};
  const auto infos = ls::detail::parameters_of<Net>();
  REQUIRE(infos.size() == 2);
  CHECK(infos[0].name == "conv2d_transpose/kernel");
  CHECK(infos[0].shape == ls::shape(3, 2, 7, 5));
  CHECK(infos[1].shape == ls::shape(7));
  CHECK(Net::graph.parameter[0].fans.in == 6 * 7);
  CHECK(Net::graph.parameter[0].fans.out == 6 * 5);
  CHECK(Net::graph.parameter[0].penalty == ls::Penalty{0, 0.5});
  CHECK(
      ls::detail::describe_layers<Net>() ==
      "conv2d_transpose (height 8, width 8, filters 7, kernel_size (3, 2), strides (2, 2), dilation_rate (1, 1), padding same, use_bias yes) to (8, 8, 7), kernel (3, 2, 7, 5) l2 0.5, bias (7)");
}
