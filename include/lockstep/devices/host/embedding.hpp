/// \file
/// Embedding on every device over host memory. Invariants: an index outside of the table is an
/// error, never an out-of-bounds access; indices that come with the batch are never rounded.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/layers/embedding.hpp"

namespace lockstep {
namespace detail {

[[noreturn, gnu::noinline, gnu::cold]] inline void throw_index_out_of_range(double index,
                                                                            int vocabulary) {
  throw UsageError(
      "embedding: the input contains {}; indices must be whole numbers from 0 to {}; check the "
      "data, or give the layer a larger vocabulary",
      index, vocabulary - 1);
}

/// `digits`: significand bits of the type that holds the indices. Above 2^digits that type skips
/// integers, so two indices could collide.
[[noreturn, gnu::noinline, gnu::cold]] inline void throw_vocabulary_too_large(int vocabulary,
                                                                              int digits) {
  const bool half = digits < 24;
  const char* const type = digits == 8 ? "bfloat16" : half ? "float16" : "float32";
  throw UsageError(
      "embedding: the vocabulary is {}, but {} represents whole numbers exactly only up to {}; use "
      "a smaller vocabulary, or {}",
      vocabulary, type, 1 << digits,
      half ? "make the embedding the first layer" : "a device that computes in float64");
}

}  // namespace detail

template <HostDevice D>
struct Kernel<EmbeddingOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x = true, skips_dw = true;

  /// The positions of a batch's indices, grouped by table row:
  ///
  ///     positions  | those of row 0 | those of row 1 | ... |
  ///                0            ends[0]          ends[1]
  struct Prepared {
    std::vector<std::size_t> positions;
    std::unique_ptr<std::size_t[]> ends{};  // not written before backward, which may use a few
    std::size_t scratch_bytes() const { return 0; }
  };
  static Prepared prepare(const EmbeddingOp& op, typename D::Context&, std::size_t count) {
    return {std::vector<std::size_t>(count * op.in.size()),
            std::unique_ptr<std::size_t[]>(
                new std::size_t[static_cast<std::size_t>(op.vocabulary) + 1])};
  }

  static Prepared prepare(const EmbeddingOp&, typename D::Context&, std::size_t, ForwardOnly) {
    return {};
  }
  static void forward(const EmbeddingOp& op, const Io<D>& io, Prepared&) {
    const auto units = static_cast<std::size_t>(op.units);
    const bool rounded = sizeof(A) < sizeof(T) && io.batch == nullptr;
    const int digits = rounded ? 8 : std::numeric_limits<T>::digits;
    if (static_cast<double>(op.vocabulary) > std::ldexp(1.0, digits))
      detail::throw_vocabulary_too_large(op.vocabulary, digits);
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i) {
      const T index = index_at(op, io, i);
      if (!detail::is_finite(index) || !(index >= 0 && index < static_cast<T>(op.vocabulary)) ||
          static_cast<T>(static_cast<int>(index)) != index)
        detail::throw_index_out_of_range(static_cast<double>(index), op.vocabulary);
      const T* const from = row(io.w, index, units);  // (units)
      A* const y = io.y + i * units;                  // (units)
      for (std::size_t u = 0; u < units; ++u) y[u] = A(from[u]);
    }
  }
  /// Sums the terms of each table row in double, row by row: a frequent token has millions.
  static void backward(const EmbeddingOp& op, const Io<D>& io, Prepared& sorted) {
    const auto units = static_cast<std::size_t>(op.units);
    if (io.dx[0] != nullptr) std::fill_n(io.dx[0], io.step.count * op.x_size(), A(0));
    if (io.dw == nullptr) return;
    const std::size_t rows = std::min(static_cast<std::size_t>(op.vocabulary), io.step.table_rows);
    sort(op, io, rows, sorted);
    for (std::size_t r = 0, begin = 0; r < rows; ++r) {
      const std::size_t end = sorted.ends[r];
      for (std::size_t first = 0; first < units; first += block) {
        const std::size_t size = std::min(block, units - first);
        double sum[block] = {};
        for (std::size_t i = begin; i < end; ++i) {
          const A* const dy = io.dy + sorted.positions[i] * units + first;  // (size)
          for (std::size_t u = 0; u < size; ++u) sum[u] += static_cast<double>(dy[u]);
        }
        for (std::size_t u = 0; u < size; ++u)
          io.dw[r * units + first + u] = static_cast<T>(sum[u]);
      }
      begin = end;
    }
  }

 private:
  static constexpr std::size_t block = 32;  // units per pass over a row's positions

  /// Counting sort of the positions by index. Afterwards next[r] is the end of row r's group.
  static void sort(const EmbeddingOp& op, const Io<D>& io, std::size_t rows, Prepared& sorted) {
    const std::size_t n = io.step.count * op.in.size();
    std::size_t* const next = sorted.ends.get();
    std::fill_n(next, rows + 1, std::size_t{0});
    for (std::size_t i = 0; i < n; ++i) ++next[static_cast<std::size_t>(index_at(op, io, i)) + 1];
    for (std::size_t r = 1; r <= rows; ++r) next[r] += next[r - 1];
    for (std::size_t i = 0; i < n; ++i)
      sorted.positions[next[static_cast<std::size_t>(index_at(op, io, i))]++] = i;
  }
  /// Reads from the batch, if that is the input: io.x[0] may be its copy rounded to 16 bits.
  static T index_at(const EmbeddingOp& op, const Io<D>& io, std::size_t i) {
    const std::size_t at = op.place(i);
    return io.batch != nullptr ? io.batch[at] : T(io.x[0][at]);
  }
  template <class P>
  static P* row(P* table, T index, std::size_t units) {
    return table + static_cast<std::size_t>(index) * units;
  }
};

}  // namespace lockstep
