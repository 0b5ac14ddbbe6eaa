/// \file
/// Pooling over volumes against loops over all taps of a window, on the reference and the Cpu.
#include "lockstep/layers/pooling/pooling3d.hpp"

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "lockstep/cpu.hpp"
#include "lockstep/layers/pooling/global_pooling3d.hpp"
#include "lockstep/reference.hpp"
#include "support/volumes.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// Keras' padding before the first element, written out: an odd one has its extra element at the end.
int padding_before(int in, int pool, int stride, Padding padding) {
  if (padding == valid) return 0;
  const int out = (in + stride - 1) / stride;
  return std::max(0, (out - 1) * stride + pool - in) / 2;
}

/// Calls f(output element, input elements of its window in row-major order).
template <class F>
void each_window(const Pooling3DWindow& w, std::size_t count, const F& f) {
  const Shape out = w.out();
  const int front = padding_before(w.in[0], w.pool.depth, w.strides.depth, w.padding),
            top = padding_before(w.in[1], w.pool.height, w.strides.height, w.padding),
            left = padding_before(w.in[2], w.pool.width, w.strides.width, w.padding);
  const auto element = [](const Shape& s, int n, int z, int r, int c, int k) {
    return static_cast<std::size_t>((((n * s[0] + z) * s[1] + r) * s[2] + c) * s[3] + k);
  };
  for (int n = 0; n < static_cast<int>(count); ++n)
    for (int z = 0; z < out[0]; ++z)
      for (int r = 0; r < out[1]; ++r)
        for (int c = 0; c < out[2]; ++c)
          for (int k = 0; k < out[3]; ++k) {
            std::vector<std::size_t> taps;
            for (int h = 0; h < w.pool.depth; ++h)
              for (int i = 0; i < w.pool.height; ++i)
                for (int j = 0; j < w.pool.width; ++j) {
                  const int a = z * w.strides.depth + h - front, b = r * w.strides.height + i - top,
                            d = c * w.strides.width + j - left;
                  if (a >= 0 && b >= 0 && d >= 0 && a < w.in[0] && b < w.in[1] && d < w.in[2])
                    taps.push_back(element(w.in, n, a, b, d, k));
                }
            f(element(out, n, z, r, c, k), taps);
          }
}

struct Pooled {
  std::vector<double> y, dx;
};
Pooled max_of_taps(const Pooling3DWindow& w, std::size_t count, const Numbers& n) {
  Pooled result{std::vector<double>(n.dy.size()), std::vector<double>(n.x.size())};
  each_window(w, count, [&](std::size_t out, const std::vector<std::size_t>& taps) {
    std::size_t winner = taps.front();
    for (const std::size_t tap : taps)
      if (n.x[tap] > n.x[winner] || std::isnan(n.x[tap])) winner = tap;
    result.y[out] = n.x[winner];
    result.dx[winner] += n.dy[out];
  });
  return result;
}
Pooled mean_of_taps(const Pooling3DWindow& w, std::size_t count, const Numbers& n) {
  Pooled result{std::vector<double>(n.dy.size()), std::vector<double>(n.x.size())};
  each_window(w, count, [&](std::size_t out, const std::vector<std::size_t>& taps) {
    const auto size = static_cast<double>(taps.size());
    for (const std::size_t tap : taps) {
      result.y[out] += n.x[tap] / size;
      result.dx[tap] += n.dy[out] / size;
    }
  });
  return result;
}

template <class D>
void check(const auto& op, std::size_t count, const Numbers& n, const Pooled& expected,
           double allowed, const D& device = {}) {
  const auto result = run(op, count, n, device);
  CHECK(relative_error(result.y, expected.y) < allowed);
  CHECK(relative_error(result.dx, expected.dx) < allowed);
}
/// Compares the reference, and the Cpu on one thread and on two.
void check_on_host(const auto& op, std::size_t count, const Numbers& n, const Pooled& expected) {
  check<Reference<double>>(op, count, n, expected, 1e-12);
  for (const int threads : {1, 2}) check(op, count, n, expected, 1e-6, Cpu{.threads = threads});
}

}  // namespace

TEST_CASE("max and average pooling of generated volumes agree with loops over the taps") {
  Philox g(5);
  for (int i = 0; i < 50; ++i) {
    const Pooling3DWindow window = generated_volume_window(g);
    INFO(describe(window));
    const auto count = static_cast<std::size_t>(between(g, 1, 3));
    const Numbers n = numbers(MaxPooling3DOp{window}, window.in.size(), 0, count);
    check_on_host(MaxPooling3DOp{window}, count, n, max_of_taps(window, count, n));
    check_on_host(AveragePooling3DOp{window}, count, n, mean_of_taps(window, count, n));
  }
}

TEST_CASE("among equal maxima of a volume the first in row-major order gets the gradient") {
  Philox g(6);
  for (int i = 0; i < 20; ++i) {
    const Pooling3DWindow window = generated_volume_window(g);
    INFO(describe(window));
    Numbers n = numbers(MaxPooling3DOp{window}, window.in.size(), 0, 2);
    for (float& v : n.x) v = static_cast<float>(between(g, -2, 0));
    check_on_host(MaxPooling3DOp{window}, 2, n, max_of_taps(window, 2, n));
  }
}

TEST_CASE("max pooling of volumes propagates NaN, and its gradient goes to the last NaN") {
  Philox g(7);
  for (int i = 0; i < 20; ++i) {
    const Pooling3DWindow window = generated_volume_window(g);
    INFO(describe(window));
    Numbers n = numbers(MaxPooling3DOp{window}, window.in.size(), 0, 2);
    for (float& v : n.x)
      if (one_of(g, 0, 0, 0, 1) == 1) v = std::numeric_limits<float>::quiet_NaN();
    const Pooled expected = max_of_taps(window, 2, n);
    const auto result = run<Cpu>(MaxPooling3DOp{window}, 2, n);
    for (std::size_t k = 0; k < expected.y.size(); ++k)
      CHECK((std::isnan(expected.y[k]) ? std::isnan(result.y[k]) : expected.y[k] == result.y[k]));
    CHECK(relative_error(result.dx, expected.dx) < 1e-6);
  }
}

TEST_CASE("a pool of more than 256 slices saves its winner in four bytes") {
  const auto op = MaxPooling3D<kernel(299, 1, 1), strides(1)>::op(shape(300, 3, 1, 3));
  const Numbers n = numbers(op, op.window.in.size(), 0, 3);
  check_on_host(op, 3, n, max_of_taps(op.window, 3, n));
}

TEST_CASE("global pooling of a volume is that of a pool of its size") {
  constexpr Shape in = shape(3, 4, 5, 7);
  const Pooling3DWindow whole{in, {3, 4, 5}, {1, 1, 1}};
  const Numbers n = numbers(GlobalMaxPooling3DOp{in}, in.size(), 0, 2);
  check_on_host(GlobalMaxPooling3DOp{in}, 2, n, max_of_taps(whole, 2, n));
  check_on_host(GlobalAveragePooling3DOp{in}, 2, n, mean_of_taps(whole, 2, n));
}
