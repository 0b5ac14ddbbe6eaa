/// \file
/// The products of PowerSGD: a matrix times a few vectors. Invariants: matrices are in the order of rows,
/// a factor is `rank` vectors one after the other; inner products are added in double, always in the same
/// order, so that equal inputs give equal bits.
#pragma once

#include <cmath>
#include <cstddef>

namespace lockstep::detail {

/// The extents of a matrix that is approximated by two factors of `rank` columns.
struct ThinShape {
  std::size_t rows = 0, columns = 0, rank = 0;
};

/// Inner product. Eight partial sums, so that compilers vectorize the loop.
template <class T>
double dot(const T* a, const T* b, std::size_t n) {
  double lane[8] = {};
  const std::size_t whole = n / 8 * 8;
  for (std::size_t i = 0; i < whole; i += 8)
    for (std::size_t l = 0; l < 8; ++l)
      lane[l] += static_cast<double>(a[i + l]) * static_cast<double>(b[i + l]);
  double sum =
      ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
  for (std::size_t i = whole; i < n; ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// y += factor x.
template <class T>
void add_scaled(T* __restrict y, const T* __restrict x, double factor, std::size_t n) {
  const auto f = static_cast<T>(factor);
  for (std::size_t i = 0; i < n; ++i) y[i] += f * x[i];
}

/// q = A p for each column of the factors.
template <class T>
void multiply(const ThinShape& s, const T* a, const T* p, T* q) {
  for (std::size_t i = 0; i < s.rows; ++i)
    for (std::size_t c = 0; c < s.rank; ++c)
      q[c * s.rows + i] = static_cast<T>(dot(a + i * s.columns, p + c * s.columns, s.columns));
}

/// p = A^T q. `sums`: room for `columns` doubles.
template <class T>
void multiply_transposed(const ThinShape& s, const T* a, const T* q, T* p, double* sums) {
  for (std::size_t c = 0; c < s.rank; ++c) {
    for (std::size_t j = 0; j < s.columns; ++j) sums[j] = 0;
    for (std::size_t i = 0; i < s.rows; ++i) {
      const auto factor = static_cast<double>(q[c * s.rows + i]);
      const T* const row = a + i * s.columns;
      for (std::size_t j = 0; j < s.columns; ++j) sums[j] += factor * static_cast<double>(row[j]);
    }
    for (std::size_t j = 0; j < s.columns; ++j) p[c * s.columns + j] = static_cast<T>(sums[j]);
  }
}

/// a = q p^T; the rank is not 0.
template <class T>
void multiply_factors(const ThinShape& s, const T* q, const T* p, T* a) {
  for (std::size_t i = 0; i < s.rows; ++i) {
    T* const row = a + i * s.columns;
    const T first = q[i];
    for (std::size_t j = 0; j < s.columns; ++j) row[j] = first * p[j];
    for (std::size_t c = 1; c < s.rank; ++c)
      add_scaled(row, p + c * s.columns, static_cast<double>(q[c * s.rows + i]), s.columns);
  }
}

/// Makes `count` vectors of n elements orthonormal, from the first one on, by the Gram-Schmidt process,
/// twice each; a vector that depends on the ones before it becomes 0. Components of NaN stay NaN.
template <class T>
void orthonormalize(T* v, std::size_t count, std::size_t n) {
  // A vector that depends on others leaves less than this part of its length, by rounding.
  constexpr double least = sizeof(T) == 4 ? 1e-6 : 1e-14;
  for (std::size_t c = 0; c < count; ++c) {
    T* const own = v + c * n;
    double before = std::sqrt(dot(own, own, n));
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t k = 0; k < c; ++k) {
        const T* const other = v + k * n;
        add_scaled(own, other, -dot(own, other, n), n);
      }
      const double length = std::sqrt(dot(own, own, n));
      const bool is_nothing = length <= least * before;
      for (std::size_t i = 0; i < n; ++i)
        own[i] = is_nothing ? T{0} : static_cast<T>(static_cast<double>(own[i]) / length);
      if (is_nothing || c == 0) break;
      before = 1;
    }
  }
}

}  // namespace lockstep::detail
