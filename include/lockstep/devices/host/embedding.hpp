/// \file
/// Embedding on every device over host memory. Invariant: a number outside of the table is an
/// error, never a place in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/layers/embedding.hpp"

namespace lockstep {
namespace detail {

[[noreturn, gnu::noinline, gnu::cold]] inline void no_embedding(double number, int vocabulary) {
  throw UsageError({"embedding: the input has ", std::to_string(number),
                    ", which is no whole number from 0 to ", vocabulary - 1,
                    "; check the data, or give the layer a larger vocabulary"});
}

[[noreturn, gnu::noinline, gnu::cold]] inline void no_vocabulary(int vocabulary) {
  throw UsageError({"embedding: a vocabulary of ", vocabulary,
                    ", where float32 tells whole numbers apart up to 16777216 only; use a smaller "
                    "vocabulary, or a device that computes in float64"});
}

}  // namespace detail

template <HostDevice D>
struct Kernel<EmbeddingOp, D> : KernelTraits {
  using T = typename D::real;
  static constexpr bool keeps_x = true;

  [[gnu::noinline]] static void forward(const EmbeddingOp& op, const Io<D>& io) {
    const auto units = static_cast<std::size_t>(op.units);
    if (sizeof(T) == sizeof(float) && op.vocabulary > 1 << 24) detail::no_vocabulary(op.vocabulary);
    for (std::size_t i = 0; i < io.count * op.in.size(); ++i) {
      const T number = io.x[i];
      // So written, NaN fails too.
      if (!(number >= 0 && number < static_cast<T>(op.vocabulary)) ||
          static_cast<T>(static_cast<int>(number)) != number)
        detail::no_embedding(static_cast<double>(number), op.vocabulary);
      std::copy_n(row(io.w, io.x[i], units), units, io.y + i * units);
    }
  }
  [[gnu::noinline]] static void backward(const EmbeddingOp& op, const Io<D>& io) {
    const auto units = static_cast<std::size_t>(op.units);
    std::fill_n(io.dw, op.table_size(), T(0));
    if (io.dx != nullptr) std::fill_n(io.dx, io.count * op.in.size(), T(0));
    for (std::size_t i = 0; i < io.count * op.in.size(); ++i) {
      T* const sum = row(io.dw, io.x[i], units);  // (units)
      const T* const dy = io.dy + i * units;      // (units)
      for (std::size_t u = 0; u < units; ++u) sum[u] += dy[u];
    }
  }

 private:
  template <class P>
  static P* row(P* table, T number, std::size_t units) {
    return table + static_cast<std::size_t>(number) * units;
  }
};

}  // namespace lockstep
