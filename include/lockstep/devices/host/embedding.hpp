/// \file
/// Embedding on every device over host memory. Invariants: a number outside of the table is an
/// error, never a place in memory; numbers that come with the batch are never rounded.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/finite.hpp"
#include "lockstep/layers/embedding.hpp"

namespace lockstep {
namespace detail {

[[noreturn, gnu::noinline, gnu::cold]] inline void no_embedding(double number, int vocabulary) {
  throw UsageError({"embedding: the input has ", std::to_string(number),
                    ", which is no whole number from 0 to ", vocabulary - 1,
                    "; check the data, or give the layer a larger vocabulary"});
}

/// `digits`: of the type that has the numbers.
[[noreturn, gnu::noinline, gnu::cold]] inline void no_vocabulary(int vocabulary, int digits) {
  const bool half = digits < 24;
  const char* const type = digits == 8 ? "bfloat16" : half ? "float16" : "float32";
  throw UsageError(
      {"embedding: a vocabulary of ", vocabulary, ", where ", type,
       " tells whole numbers apart up to ", 1 << digits, " only; use a smaller vocabulary, or ",
       half ? "make the embedding the first layer" : "a device that computes in float64"});
}

}  // namespace detail

template <HostDevice D>
struct Kernel<EmbeddingOp, D> : KernelTraits {
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x = true;

  [[gnu::noinline]] static void forward(const EmbeddingOp& op, const Io<D>& io) {
    const auto units = static_cast<std::size_t>(op.units);
    const bool rounded = sizeof(A) < sizeof(T) && io.batch == nullptr;
    const int digits = rounded ? 8 : std::numeric_limits<T>::digits;
    if (static_cast<double>(op.vocabulary) > std::ldexp(1.0, digits))
      detail::no_vocabulary(op.vocabulary, digits);
    for (std::size_t i = 0; i < io.count * op.in.size(); ++i) {
      const T number = number_at(io, i);
      if (!detail::is_finite(number) || !(number >= 0 && number < static_cast<T>(op.vocabulary)) ||
          static_cast<T>(static_cast<int>(number)) != number)
        detail::no_embedding(static_cast<double>(number), op.vocabulary);
      const T* const from = row(io.w, number, units);  // (units)
      A* const y = io.y + i * units;                   // (units)
      for (std::size_t u = 0; u < units; ++u) y[u] = A(from[u]);
    }
  }
  [[gnu::noinline]] static void backward(const EmbeddingOp& op, const Io<D>& io) {
    const auto units = static_cast<std::size_t>(op.units);
    std::fill_n(io.dw, op.table_size(), T(0));
    if (io.dx != nullptr) std::fill_n(io.dx, io.count * op.in.size(), A(0));
    for (std::size_t i = 0; i < io.count * op.in.size(); ++i) {
      T* const sum = row(io.dw, number_at(io, i), units);  // (units)
      const A* const dy = io.dy + i * units;               // (units)
      for (std::size_t u = 0; u < units; ++u) sum[u] += T(dy[u]);
    }
  }

 private:
  static T number_at(const Io<D>& io, std::size_t i) {
    return io.batch != nullptr ? io.batch[i] : T(io.x[i]);
  }
  template <class P>
  static P* row(P* table, T number, std::size_t units) {
    return table + static_cast<std::size_t>(number) * units;
  }
};

}  // namespace lockstep
