/// \file
/// Layers over steps, checked against their formulas in double.
#include "lockstep/layers/along_steps.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/model/sequential.hpp"
#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace ls = lockstep;

namespace {

using Double = ls::Reference<double>;
constexpr std::size_t count = 3;
constexpr int steps = 11, channels = 4;
constexpr ls::Shape in = ls::shape(steps, channels);

/// x(n, s, k), or `outside` if step s does not exist.
struct Input {
  std::vector<double> values = testing::normal_values(count * in.size(), 1);
  double at(std::size_t n, int s, int k, double outside = 0) const {
    if (s < 0 || s >= steps) return outside;
    return values[n * in.size() + static_cast<std::size_t>(s * channels + k)];
  }
};

/// Keras' formula, written for steps.
template <class L>
std::vector<double> convolved(const Input& x, const std::vector<double>& w, int filters, int size,
                              int stride, int dilation, int before) {
  const int out = L::op(in).out()[0];
  std::vector<double> y;
  for (std::size_t n = 0; n < count; ++n)
    for (int s = 0; s < out; ++s)
      for (int f = 0; f < filters; ++f) {
        double sum = w[static_cast<std::size_t>(size * channels * filters + f)];
        for (int j = 0; j < size; ++j)
          for (int k = 0; k < channels; ++k)
            sum += x.at(n, s * stride + j * dilation - before, k) *
                   w[static_cast<std::size_t>((j * channels + k) * filters + f)];
        y.push_back(sum);
      }
  return y;
}

template <class L>
std::vector<double> forward(const Input& x, const std::vector<double>& w = {}) {
  return testing::run_layer<Double>(L::op(in), count, x.values, w, {}, {.training = false}).y;
}

}  // namespace

TEST_CASE("Conv1D follows Keras' formula over steps") {
  const Input x;
  const auto w = testing::normal_values(5 * channels * 6 + 6, 2);
  using Plain = ls::Conv1D<6, 5>;
  CHECK(Plain::op(in).out() == ls::shape(7, 6));
  CHECK(testing::relative_error(forward<Plain>(x, w), convolved<Plain>(x, w, 6, 5, 1, 1, 0)) <
        1e-14);
  using Same = ls::Conv1D<6, 5, ls::same, ls::strides(2)>;  // padding: 2 steps on either side
  CHECK(Same::op(in).out() == ls::shape(6, 6));
  CHECK(testing::relative_error(forward<Same>(x, w), convolved<Same>(x, w, 6, 5, 2, 1, 2)) < 1e-14);
  using Wide = ls::Conv1D<6, 5, ls::dilation(2)>;
  CHECK(Wide::op(in).out() == ls::shape(3, 6));
  CHECK(testing::relative_error(forward<Wide>(x, w), convolved<Wide>(x, w, 6, 5, 1, 2, 0)) < 1e-14);
}

TEST_CASE("Conv1DTranspose follows Keras' formula over steps") {
  const Input x;
  constexpr int filters = 3, size = 4;
  const auto w = testing::normal_values(size * filters * channels + filters, 2);
  const auto check = [&]<class L>(const L&, int stride, int dilation, int before, int out) {
    CHECK(L::op(in).out() == ls::shape(out, filters));
    std::vector<double> y;
    for (std::size_t n = 0; n < count; ++n)
      for (int to = 0; to < out; ++to)
        for (int f = 0; f < filters; ++f) {
          double sum = w[static_cast<std::size_t>(size * filters * channels + f)];
          for (int s = 0; s < steps; ++s)
            for (int j = 0; j < size; ++j)
              for (int k = 0; k < channels; ++k)
                if (s * stride + j * dilation - before == to)
                  sum +=
                      x.at(n, s, k) * w[static_cast<std::size_t>((j * filters + f) * channels + k)];
          y.push_back(sum);
        }
    CHECK(testing::relative_error(forward<L>(x, w), y) < 1e-14);
  };
  using ls::same, ls::strides, ls::dilation, ls::output_padding;
  check(ls::Conv1DTranspose<filters, size>{}, 1, 1, 0, 14);
  check(ls::Conv1DTranspose<filters, size, same, strides(2)>{}, 2, 1, 1, 22);
  check(ls::Conv1DTranspose<filters, size, strides(5)>{}, 5, 1, 0, 55);
  check(ls::Conv1DTranspose<filters, size, dilation(2)>{}, 1, 2, 0, 17);
  check(ls::Conv1DTranspose<filters, size, strides(3), output_padding(1)>{}, 3, 1, 0, 35);
}

TEST_CASE("pooling over steps computes the maximum and the mean of a window") {
  const Input x;
  std::vector<double> largest, mean;
  for (std::size_t n = 0; n < count; ++n)
    for (int s = 0; s < 5; ++s)
      for (int k = 0; k < channels; ++k) {
        const double a = x.at(n, 2 * s, k), b = x.at(n, 2 * s + 1, k), c = x.at(n, 2 * s + 2, k);
        largest.push_back(std::max({a, b, c}));
        mean.push_back((a + b + c) / 3);
      }
  CHECK(forward<ls::MaxPooling1D<3, ls::strides(2)>>(x) == largest);
  CHECK(testing::relative_error(forward<ls::AveragePooling1D<3, ls::strides(2)>>(x), mean) < 1e-15);
}

TEST_CASE("global pooling over steps keeps the channels") {
  const Input x;
  std::vector<double> largest, mean;
  for (std::size_t n = 0; n < count; ++n)
    for (int k = 0; k < channels; ++k) {
      double most = x.at(n, 0, k), sum = 0;
      for (int s = 0; s < steps; ++s) most = std::max(most, x.at(n, s, k)), sum += x.at(n, s, k);
      largest.push_back(most);
      mean.push_back(sum / steps);
    }
  CHECK(forward<ls::GlobalMaxPooling1D>(x) == largest);
  CHECK(testing::relative_error(forward<ls::GlobalAveragePooling1D>(x), mean) < 1e-14);
}

TEST_CASE("the kernel of Conv1DTranspose has Keras' shape and fans") {
  struct Net : ls::Sequential<ls::Input<6, 2>, ls::Conv1DTranspose<8, 3>,
                              ls::Conv1DTranspose<4, 2, ls::no_bias>> {};
  STATIC_REQUIRE(Net::parameter_count == 3 * 8 * 2 + 8 + 2 * 4 * 8);
  CHECK(Net::graph.parameter[0].shape == ls::shape(3, 8, 2));
  CHECK(Net::graph.parameter[0].fans.in == 24);
  CHECK(Net::graph.parameter[0].fans.out == 6);
  CHECK(Net::graph.parameter[2].layer == "conv1d_transpose");
  CHECK(Net::output_shape == ls::shape(9, 4));
}

TEST_CASE("the kernel of Conv1D has Keras' shape and name") {
  struct Net
      : ls::Sequential<ls::Input<22>, ls::Reshape<ls::shape(-1, 2)>, ls::Conv1D<8, 3, ls::same>,
                       ls::MaxPooling1D<>, ls::Conv1D<4, 2>, ls::GlobalMaxPooling1D, ls::Dense<3>> {
  };
  STATIC_REQUIRE(Net::parameter_count == 3 * 2 * 8 + 8 + 2 * 8 * 4 + 4 + 4 * 3 + 3);
  CHECK(Net::graph.parameter[0].shape == ls::shape(3, 2, 8));
  CHECK(Net::graph.parameter[0].fans.in == 6);
  CHECK(Net::graph.parameter[2].layer == "conv1d");
  CHECK(Net::graph.parameter[2].ordinal == 1);
  CHECK(Net::output_shape == ls::shape(3));
}

TEST_CASE("a frozen layer over steps computes no gradient of its kernel, as the image op") {
  STATIC_CHECK(ls::Kernel<ls::Conv2DOp, Double>::skips_dw);
  STATIC_CHECK(ls::Kernel<ls::AlongSteps<ls::Conv2DOp>, Double>::skips_dw);
}
