/// \file
/// Embedding on a GPU. Invariants: an index outside of the table is never dereferenced: its vector
/// is 0 and has no gradient, and the next `synchronize` throws; indices that come with the batch
/// are not rounded to the activation type; gradients are added as 64-bit integers, so every order
/// gives the same bits.
///
///     dw:  largest -> max |dy| per block   choose -> the unit 2^-e   add -> int64 atomics
///          finish -> float
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/host/embedding.hpp"
#include "lockstep/layers/embedding.hpp"

namespace lockstep {

namespace detail::cuda {

/// A word of pinned host memory that a kernel sets to an index outside of the table, and the
/// vocabulary.
class EmbeddingErrorFlag {
 public:
  EmbeddingErrorFlag() {
    memory_.grow(sizeof(std::uint64_t));
    std::memset(memory_.data(), 0, sizeof(std::uint64_t));
  }
  /// The word's address; registers the check on first use.
  std::byte* get(CudaContext& context) {
    if (!std::exchange(known_, true)) context.add_error_check([this] { check(); });
    return memory_.data();
  }

 private:
  /// Throws and resets if a kernel has set the word.
  void check() {
    std::uint64_t word = 0;
    std::memcpy(&word, memory_.data(), sizeof word);
    if (word == 0) return;
    std::memset(memory_.data(), 0, sizeof word);
    const auto number = std::bit_cast<float>(static_cast<std::uint32_t>(word >> 32));
    throw_index_out_of_range(static_cast<double>(number), static_cast<int>(word & 0x7FFFFFFF));
  }

  PinnedBuffer memory_;
  bool known_ = false;
};

/// Fixed-point gradients in units of 2^-e, with the largest e for which 2^terms values of the
/// largest magnitude cannot overflow 63 bits: a unit of 2^-40 of the maximum or less for a million
/// terms. If any gradient is infinite or NaN, its place gets NaN and no other gradient is added.
inline constexpr char embedding_text[] = R"cuda(
// `batch`: x before rounding, or null.
__device__ inline float number_at(const A* x, const float* batch, i64 i) {
#ifdef ROW  // the integers are a part of each row
  i = i / STEPS * ROW + OFFSET + i % STEPS;
#endif
  return batch ? batch[i] : get(x[i]);
}
// Written so that NaN fails.
__device__ inline bool is_in_table(float number) {
  return number >= 0 && number < VOCABULARY && (float)(int)number == number;
}

// y[i, :] = table[x[i], :].
KERNEL(forward)(const A* __restrict__ x, const float* __restrict__ batch,
                const float* __restrict__ table, A* __restrict__ y, u64* error_flag, i64 n) {
  FOR_EACH(i, n) {
    const i64 at = i / UNITS;
    const int u = (int)(i - at * UNITS);
    const float number = number_at(x, batch, at);
    const bool known = is_in_table(number);
    y[i] = put<A>(known ? table[(i64)number * UNITS + u] : 0.0f);
    if (!known && u == 0) *error_flag = (u64)as_bits(number) << 32 | VOCABULARY;
  }
}

// The largest magnitude per block, as bits: NaN orders above infinity.
KERNEL(largest)(const A* __restrict__ dy, u32* __restrict__ part, i64 n) {
  __shared__ u32 size[256];
  u32 best = 0;
  for (i64 i = INDEX; i < n; i += STRIDE) {
    const u32 bits = as_bits(get(dy[i])) & 0x7FFFFFFFu;
    best = bits > best ? bits : best;
  }
  size[threadIdx.x] = best;
  __syncthreads();
  for (u32 half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half && size[threadIdx.x + half] > size[threadIdx.x])
      size[threadIdx.x] = size[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) part[blockIdx.x] = size[0];
}
// One warp computes 2^e and 2^-e if all gradients are finite, else NaN.
KERNEL(choose)(const u32* __restrict__ part, int count, double* __restrict__ unit, int terms) {
  u32 best = 0;
  for (int i = threadIdx.x; i < count; i += 32) best = part[i] > best ? part[i] : best;
  for (int d = 16; d > 0; d /= 2) {
    const u32 other = __shfl_xor_sync(0xFFFFFFFFu, best, d);
    best = other > best ? other : best;
  }
  if (threadIdx.x > 0) return;
  // All magnitudes are below 2^(exponent + 1).
  const int exponent = max((int)(best >> 23), 1) - 127;
  const bool finite = best < 0x7F800000u;
  const double nan = as_float(0x7FC00000u);
  unit[0] = finite ? ldexp(1.0, 61 - terms - exponent) : nan;
  unit[1] = finite ? ldexp(1.0, exponent + terms - 61) : nan;
}

// sums[x[i], :] += dy[i, :] in fixed point.
KERNEL(add)(const A* __restrict__ x, const float* __restrict__ batch, const A* __restrict__ dy,
            const double* __restrict__ unit, u64* sums, i64 n) {
  const double scale = unit[0];
  FOR_EACH(i, n) {
    const i64 at = i / UNITS;
    const float number = number_at(x, batch, at), g = get(dy[i]);
    if (!is_in_table(number)) continue;
    u64* const sum = sums + (i64)number * UNITS + (i - at * UNITS);
    if (scale == scale)
      atomicAdd(sum, (u64)(i64)rint(g * scale));
    else if (g - g != 0)  // infinite or NaN
      atomicAdd(sum, (u64)1);
  }
}
// Converts the sums to float; rows that no index used are exactly 0.
KERNEL(finish)(const u64* __restrict__ sums, const double* __restrict__ unit,
               float* __restrict__ dw, i64 n) {
  const double scale = unit[1];
  FOR_EACH(i, n)
    dw[i] = sums[i] == 0 ? 0.0f : (float)((double)(i64)sums[i] * scale);
}
)cuda";

}  // namespace detail::cuda

/// Keeps x, the indices. Backward is four launches and a memset.
template <class Precision>
struct Kernel<EmbeddingOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x = true, skips_dw = true;

  /// Scratch: two units, the maximum of each block, the integer sums.
  struct Prepared {
    std::size_t table;
    std::size_t scratch_bytes() const { return head + table * sizeof(std::uint64_t); }
    static constexpr std::size_t max_blocks = 256,
                                 head = 2 * sizeof(double) + max_blocks * sizeof(std::uint32_t);
  };
  static Prepared prepare(const EmbeddingOp& op, typename D::Context&, std::size_t) {
    return {op.table_size()};
  }

  static void forward(const EmbeddingOp& op, const Io<D>& io, Prepared&) {
    const bool rounded = sizeof(A) < sizeof(T) && io.batch == nullptr;
    const int digits = !rounded                     ? std::numeric_limits<T>::digits
                       : std::is_same_v<A, float16> ? 11
                                                    : 8;
    if (static_cast<double>(op.vocabulary) > std::ldexp(1.0, digits))
      detail::throw_vocabulary_too_large(op.vocabulary, digits);
    const std::size_t n = io.step.count * op.out().size();
    if (n == 0) return;
    launch(op, io, "forward", detail::cuda::Grid::over(n), io.x[0], io.batch, io.w, io.y,
           io.device.template handle<detail::cuda::EmbeddingErrorFlag>().get(io.device),
           static_cast<std::int64_t>(n));
  }

  static void backward(const EmbeddingOp& op, const Io<D>& io, Prepared& p) {
    if (io.dx[0] != nullptr)
      io.device.clear(reinterpret_cast<std::byte*>(io.dx[0]),
                      io.step.count * op.x_size() * sizeof(A));
    if (io.dw == nullptr) return;
    const std::size_t n = io.step.count * op.out().size();
    if (n == 0) {
      io.device.clear(reinterpret_cast<std::byte*>(io.dw), p.table * sizeof(T));
      return;
    }
    double* const unit = reinterpret_cast<double*>(io.scratch);
    std::uint32_t* const part = reinterpret_cast<std::uint32_t*>(unit + 2);
    std::byte* const sums = io.scratch + Prepared::head;
    detail::cuda::Grid grid = detail::cuda::Grid::over(n);
    grid.blocks[0] = std::min<unsigned>(grid.blocks[0], Prepared::max_blocks);
    io.device.clear(sums, p.table * sizeof(std::uint64_t));
    launch(op, io, "largest", grid, io.dy, part, static_cast<std::int64_t>(n));
    launch(op, io, "choose", detail::cuda::Grid::over(32, 32), part,
           static_cast<int>(grid.blocks[0]), unit,
           static_cast<int>(std::bit_width(io.step.count * op.in.size())));
    launch(op, io, "add", detail::cuda::Grid::over(n), io.x[0], io.batch, io.dy, unit, sums,
           static_cast<std::int64_t>(n));
    launch(op, io, "finish", detail::cuda::Grid::over(p.table), sums, unit, io.dw,
           static_cast<std::int64_t>(p.table));
  }

 private:
  static constexpr detail::cuda::Source source{"embedding", detail::cuda::embedding_text};
  template <class... Ts>
  static void launch(const EmbeddingOp& op, const Io<D>& io, const char* entry,
                     const detail::cuda::Grid& grid, const Ts&... arguments) {
    using detail::cuda::Define;
    const Define vocabulary("VOCABULARY", op.vocabulary), units("UNITS", op.units);
    const auto run = [&](const auto& given) {
      const auto defines = detail::cuda::with_activation<Precision>(given);
      io.device.launch(io.device.kernel(source, entry, defines), grid, arguments...);
    };
    if (op.reads_row())
      run(std::array{vocabulary, units, Define("ROW", op.row), Define("OFFSET", op.first - 1),
                     Define("STEPS", op.in[0])});
    else
      run(std::array{vocabulary, units});
  }
};

static_assert(HasKernel<EmbeddingOp, Cuda>);

}  // namespace lockstep
