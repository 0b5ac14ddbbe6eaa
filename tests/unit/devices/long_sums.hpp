/// \file
/// Sums over examples and pixels with terms of one sign, compared with their exact values: no
/// device may lose more than 1e-6 of the sum of magnitudes, for any number of terms.
#pragma once

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "support/kernel_numbers.hpp"

namespace long_sums {

namespace ls = lockstep;

inline constexpr double allowed = 1e-6;

/// Equal terms, whose last bits a large accumulator loses in each addition, or random ones.
enum class Terms { equal, random };

inline std::vector<float> terms(Terms which, std::size_t n) {
  std::vector<float> values(n, 1 + 0x1p-12f + 0x1p-17f);
  if (which == Terms::equal) return values;
  ls::Philox g(n);
  for (float& v : values) v = static_cast<float>(g.uniform());
  return values;
}

/// Column sums of `values`, in double.
inline std::vector<double> column_sums(const std::vector<float>& values, std::size_t columns) {
  std::vector<double> sums(columns);
  for (std::size_t i = 0; i < values.size(); ++i) sums[i % columns] += values[i];
  return sums;
}

/// The largest error relative to an exact value, which is the sum of magnitudes, as all terms have
/// the same sign.
template <class T>
double worst(const T* got, const std::vector<double>& expected) {
  double error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double e = std::abs(static_cast<double>(got[i]) / expected[i] - 1);
    error = e <= error ? error : e;
  }
  return error;
}

template <class D, class O>
auto run(const O& op, std::size_t count, const std::vector<float>& x, const std::vector<float>& w,
         const std::vector<float>& dy, const D& device, std::size_t state = 0) {
  using T = typename D::real;
  testing::RunOptions<T> options;
  options.want_dx = false;
  options.state = std::vector<T>(state);
  return testing::run_layer<D>(op, count, testing::as<T>(x), testing::as<T>(w), testing::as<T>(dy),
                               options, device);
}

template <class L>
std::size_t trained(ls::Shape in) {
  std::size_t size = 0;
  for (const ls::Parameter& p : L::parameters(in))
    if (p.present && p.trainable) size += p.shape.size();
  return size;
}

/// The parameter gradients of a layer whose inputs are all 1, and the sums of dy over its rows.
template <class L, class D>
auto gradient_of_ones(ls::Shape in, std::size_t count, Terms which, const D& device) {
  const auto op = L::op(in);
  const auto dy = terms(which, count * op.out().size());
  const auto expected = column_sums(dy, static_cast<std::size_t>(op.out().channels()));
  const auto dw = run(op, count, std::vector<float>(count * in.size(), 1.0f),
                      std::vector<float>(trained<L>(in), 0.5f), dy, device)
                      .dw;
  return std::pair(dw, expected);
}

/// Error of the bias gradient, the last part of dw.
template <class L, class D>
double of_bias(ls::Shape in, std::size_t count, Terms which, const D& device) {
  const auto [dw, expected] = gradient_of_ones<L>(in, count, which, device);
  return worst(dw.data() + dw.size() - expected.size(), expected);
}

/// Error of the kernel gradient (taps, filters) of a layer without padding. With all pixels 1, the
/// gradient of each tap equals that of the bias.
template <class L, class D>
double of_kernel(ls::Shape in, std::size_t count, Terms which, const D& device) {
  const auto [dw, expected] = gradient_of_ones<L>(in, count, which, device);
  double error = 0;
  for (std::size_t i = 0; i + expected.size() <= dw.size(); i += expected.size())
    error = std::max(error, worst(dw.data() + i, expected));
  return error;
}

/// Error of the gradients of gamma and beta, with all rows equal.
template <class D>
double of_layer_normalization(ls::Shape in, std::size_t count, Terms which, const D& device) {
  using L = ls::LayerNormalization<>;
  const auto op = L::op(in);
  const std::size_t channels = op.channels();
  const auto dy = terms(which, count * in.size());
  auto expected = column_sums(dy, channels);
  std::vector<float> x(dy.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % channels);
  const double middle = static_cast<double>(channels - 1) / 2,
               variance = (static_cast<double>(channels * channels) - 1) / 12;
  std::vector<double> both;
  for (std::size_t k = 0; k < channels; ++k)
    both.push_back(expected[k] * (static_cast<double>(k) - middle) /
                   std::sqrt(variance + static_cast<double>(op.epsilon)));
  both.insert(both.end(), expected.begin(), expected.end());
  return worst(run(op, count, x, std::vector<float>(2 * channels, 1.0f), dy, device).dw.data(),
               both);
}

/// Error of the gradient of beta and of the running statistics.
template <class D>
double of_batch_normalization(ls::Shape in, std::size_t count, Terms which, const D& device) {
  using L = ls::BatchNormalization<>;
  const auto op = L::op(in);
  const std::size_t channels = op.channels();
  const auto dy = terms(which, count * in.size());
  auto x = terms(Terms::random, dy.size());
  const auto result =
      run(op, count, x, std::vector<float>(2 * channels, 1.0f), dy, device, 2 * channels);
  const double rows = static_cast<double>(x.size() / channels);
  auto mean = column_sums(x, channels);
  for (double& m : mean) m /= rows;
  std::vector<double> moving(2 * channels);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = x[i] - mean[i % channels];
    moving[channels + i % channels] += d * d / rows;
  }
  std::copy(mean.begin(), mean.end(), moving.begin());
  for (double& m : moving) m *= 1 - static_cast<double>(op.momentum);
  return std::max(worst(result.state.data(), moving),
                  worst(result.dw.data() + channels, column_sums(dy, channels)));
}

/// Error of the mean of an image.
template <class L, class D>
double of_mean(ls::Shape in, Terms which, const D& device) {
  const auto op = L::op(in);
  const auto x = terms(which, in.size());
  auto expected = column_sums(x, static_cast<std::size_t>(in.channels()));
  for (double& m : expected) m /= in[0] * in[1];
  return worst(run(op, 1, x, {}, std::vector<float>(op.out().size()), device).y.data(), expected);
}

/// Error of the gradient of an embedding row that nearly all indices select.
template <class D>
double of_embedding(std::size_t count, Terms which, const D& device) {
  using L = ls::Embedding<3, 40>;
  const auto op = L::op(ls::shape(8));
  const auto dy = terms(which, count * op.out().size());
  std::vector<float> x(count * 8, 1.0f);
  x[3] = 0;
  x[x.size() - 2] = 2;
  std::vector<double> expected(3 * 40);
  for (std::size_t i = 0; i < dy.size(); ++i)
    expected[static_cast<std::size_t>(x[i / 40]) * 40 + i % 40] += dy[i];
  return worst(run(op, count, x, std::vector<float>(120), dy, device).dw.data(), expected);
}

/// Checks all sums for images of `side` x `side` pixels in batches of `count`.
template <class D>
void check(int side, std::size_t count, const D& device = {}) {
  using namespace lockstep;
  for (const Terms which : {Terms::equal, Terms::random}) {
    INFO(side << " x " << side << " pixels, " << count << " examples, "
              << (which == Terms::equal ? "equal" : "random"));
    const auto few = shape(side, side, 1), some = shape(side, side, 5),
               image = shape(side, side, 16);
    const std::size_t rows = count * static_cast<std::size_t>(side * side);
    CHECK(of_bias<Conv2D<5, 1>>(some, count, which, device) < allowed);
    CHECK(of_bias<Conv2D<16, 3, same>>(image, count, which, device) < allowed);
    CHECK(of_kernel<Conv2D<8, 3>>(few, count, which, device) < allowed);
    CHECK(of_bias<DepthwiseConv2D<3>>(image, count, which, device) < allowed);
    CHECK(of_bias<Conv2DTranspose<8, 3>>(some, count, which, device) < allowed);
    CHECK(of_bias<Dense<3>>(shape(2), rows, which, device) < allowed);
    CHECK(of_bias<Dense<64>>(shape(512), 64, which, device) < allowed);
    CHECK(of_bias<Dense<3>>(shape(16, 2), rows / 16, which, device) < allowed);
    CHECK(of_layer_normalization(image, count, which, device) < allowed);
    CHECK(of_batch_normalization(image, count, which, device) < allowed);
    CHECK(of_batch_normalization(few, count, which, device) < allowed);
    CHECK(of_mean<GlobalAveragePooling2D>(shape(side * 4, side * 4, 17), which, device) < allowed);
    CHECK(of_mean<AveragePooling2D<100>>(shape(100, 100, 9), which, device) < allowed);
    CHECK(of_embedding(rows / 16, which, device) < allowed);
  }
}

}  // namespace long_sums
