#include "lockstep/devices/cpu/dense_rows.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace ls = lockstep;
using ls::detail::DenseRows;

namespace {

std::vector<float> numbers(std::size_t count, double phase) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(std::cos(1.3 * static_cast<double>(i) + phase));
  return values;
}

/// y and what the kernel must leave unchanged after it.
std::vector<float> outputs(const ls::DenseOp& op, std::size_t rows, bool relu,
                           const std::vector<float>& x, const std::vector<float>& w) {
  std::vector<float> y(rows * static_cast<std::size_t>(op.units) + 16, 77.0f);
  DenseRows(op, rows, relu).forward(x.data(), w.data(), y.data());
  for (std::size_t i = y.size() - 16; i < y.size(); ++i) CHECK(y[i] == 77.0f);
  y.resize(y.size() - 16);
  return y;
}

}  // namespace

TEST_CASE("DenseRows: products are those in double, for units of all remainders") {
  for (const int units : {1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 17, 31, 32, 48, 63, 64, 70, 129})
    for (const int inputs : {1, 3, 8, 33, 100})
      for (const bool bias : {false, true}) {
        const ls::DenseOp op{inputs, units, bias};
        const std::size_t rows = 3, n = static_cast<std::size_t>(inputs),
                          m = static_cast<std::size_t>(units);
        const auto x = numbers(rows * n, 0.1), w = numbers(op.weights(), 0.7);
        const auto y = outputs(op, rows, false, x, w), relu = outputs(op, rows, true, x, w);
        double worst = 0;
        bool rectified = true;
        for (std::size_t r = 0; r < rows; ++r)
          for (std::size_t u = 0; u < m; ++u) {
            double sum = bias ? static_cast<double>(w[n * m + u]) : 0;
            for (std::size_t i = 0; i < n; ++i)
              sum += static_cast<double>(x[r * n + i]) * static_cast<double>(w[i * m + u]);
            worst = std::max(worst, std::abs(sum - static_cast<double>(y[r * m + u])));
            rectified = rectified && relu[r * m + u] == std::max(y[r * m + u], 0.0f);
          }
        CAPTURE(units, inputs, bias);
        CHECK(worst < 1e-6 * inputs + 1e-6);
        CHECK(rectified);
      }
}

TEST_CASE("DenseRows: the bits of an example do not depend on the number of examples") {
  const ls::DenseOp op{37, 50};
  const auto x = numbers(4 * 37, 0), w = numbers(op.weights(), 2);
  const auto all = outputs(op, 4, true, x, w);
  for (std::size_t r = 0; r < 4; ++r) {
    const std::vector<float> row(x.begin() + static_cast<std::ptrdiff_t>(r * 37),
                                 x.begin() + static_cast<std::ptrdiff_t>((r + 1) * 37));
    const auto one = outputs(op, 1, true, row, w);
    CHECK(std::equal(one.begin(), one.end(), all.begin() + static_cast<std::ptrdiff_t>(r * 50)));
  }
}

TEST_CASE("DenseRows: NaN is kept, also by the ReLU") {
  const ls::DenseOp op{5, 20};
  auto x = numbers(5, 0);
  const auto w = numbers(op.weights(), 1);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  for (const float y : outputs(op, 1, true, x, w)) CHECK(std::isnan(y));
}

TEST_CASE("DenseRows: many rows, and large products on a team, are left to other kernels") {
  CHECK(DenseRows::fits({32, 32}, 1, 1));
  CHECK(DenseRows::fits({32, 32}, 4, 8));
  CHECK(DenseRows::fits({128, 128}, 1, 1));
  CHECK(DenseRows::fits({5408, 64}, 1, 1));
  CHECK_FALSE(DenseRows::fits({128, 128}, 2, 1));
  CHECK_FALSE(DenseRows::fits({5408, 128}, 1, 1));
  CHECK_FALSE(DenseRows::fits({5408, 64}, 1, 2));
  CHECK_FALSE(DenseRows::fits({32, 32}, 5, 1));
}
