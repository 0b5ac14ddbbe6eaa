/// \file
/// Element-by-element merges of any number of values on a GPU, and those of values with masks.
/// Invariant: one element per thread. CudaText<Op> defines `float fold(float all, float x)`, `float
/// finish(float all)` and `float dx(float dy, const float* x, int k, int n)`, in which x has n elements
/// if the op declares `reads_inputs`.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/operand_list.hpp"
#include "lockstep/devices/cuda/support/scalar_text.hpp"
#include "lockstep/layers/merging/add.hpp"
#include "lockstep/layers/merging/average.hpp"
#include "lockstep/layers/merging/maximum.hpp"
#include "lockstep/layers/merging/merge.hpp"
#include "lockstep/layers/merging/minimum.hpp"
#include "lockstep/layers/merging/multiply.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr char operand_lists_text[] = R"cuda(
#if OPERANDS <= 12
struct Inputs { const A* x[OPERANDS]; };
struct Gradients { A* dx[OPERANDS]; };
#else  // the lists that `list` has written
struct Inputs { const A* const* x; };
struct Gradients { A* const* dx; };
#endif
struct Pointers { void* at[12]; };
KERNEL(list)(Pointers some, void** to, i64 count) {
  FOR_EACH(i, count) to[i] = some.at[i];
}
)cuda";
inline constexpr char merge_text[] = R"cuda(
KERNEL(forward)(Inputs in, A* y, i64 n) {
  FOR_EACH(i, n) {
    float all = get(in.x[0][i]);
    for (int k = 1; k < OPERANDS; ++k) all = fold(all, get(in.x[k][i]));
    y[i] = put<A>(finish(all));
  }
}
// Each gradient may be null, and all inputs are unless READS_INPUTS. One gradient may be dy.
KERNEL(backward)(Inputs in, const A* dy, Gradients to, i64 n) {
  FOR_EACH(i, n) {
    float x[READS_INPUTS ? OPERANDS : 1];
    if (READS_INPUTS)
      for (int k = 0; k < OPERANDS; ++k) x[k] = get(in.x[k][i]);
    const float slope = get(dy[i]);
    for (int k = 0; k < OPERANDS; ++k)
      if (to.dx[k]) to.dx[k][i] = put<A>(dx(slope, x, k, OPERANDS));
  }
}
)cuda";
/// The OPERANDS are the values, and then the mask of each of them. WIDTH: elements of a step.
inline constexpr char masked_merge_text[] = R"cuda(
#define VALUES (OPERANDS / 2)
__device__ inline bool counts(const Inputs& in, int k, i64 i) {
  return get(in.x[VALUES + k][i / WIDTH]) != 0;
}
KERNEL(forward)(Inputs in, A* y, i64 n) {
  FOR_EACH(i, n) {
    bool some = false;
    float all = 0;
    for (int k = 0; k < VALUES; ++k) {
      if (!counts(in, k, i)) continue;
      const float x = get(in.x[k][i]);
      all = some ? fold(all, x) : x;
      some = true;
    }
    y[i] = put<A>(some ? finish(all) : KEEPS_PADDED ? get(in.x[0][i]) : 0.0f);
  }
}
// Each gradient may be null. One may be dy.
KERNEL(backward)(Inputs in, const A* dy, Gradients to, i64 n) {
  FOR_EACH(i, n) {
    float x[VALUES];
    int merged = 0;
    for (int k = 0; k < VALUES; ++k)
      if (counts(in, k, i)) x[merged++] = get(in.x[k][i]);
    const float slope = get(dy[i]);
    for (int k = 0, at = 0; k < VALUES; ++k) {
      float own = KEEPS_PADDED && merged == 0 && k == 0 ? slope : 0.0f;
      if (counts(in, k, i)) own = dx(slope, x, at++, merged);
      if (to.dx[k]) to.dx[k][i] = put<A>(own);
    }
  }
}
)cuda";

inline constexpr char sum_text[] = R"cuda(
__device__ inline float fold(float sum, float x) { return sum + x; }
__device__ inline float finish(float sum) { return sum; }
__device__ inline float dx(float dy, const float*, int, int) { return dy; }
)cuda";
inline constexpr char mean_text[] = R"cuda(
__device__ inline float fold(float sum, float x) { return sum + x; }
__device__ inline float finish(float sum) { return sum / OPERANDS; }
__device__ inline float dx(float dy, const float*, int, int n) { return dy / n; }
)cuda";
inline constexpr char product_text[] = R"cuda(
__device__ inline float fold(float product, float x) { return product * x; }
__device__ inline float finish(float product) { return product; }
__device__ inline float dx(float dy, const float* x, int k, int n) {
  for (int j = 0; j < n; ++j)
    if (j != k) dy *= x[j];
  return dy;
}
)cuda";
/// Of MaximumOp and MinimumOp, after the text of is_first.
inline constexpr char choice_text[] = R"cuda(
__device__ inline float fold(float chosen, float x) { return is_first(chosen, x) ? chosen : x; }
__device__ inline float finish(float chosen) { return chosen; }
__device__ inline float dx(float dy, const float* x, int k, int n) {
  int chosen = 0;
  float all = x[0];
  for (int j = 1; j < n; ++j)
    if (!is_first(all, x[j])) all = x[j], chosen = j;
  return chosen == k ? dy : 0.0f;
}
)cuda";
inline constexpr char first_of_maximum[] = R"cuda(
__device__ inline bool is_first(float a, float b) { return a >= b || a != a; }
)cuda";
inline constexpr char first_of_minimum[] = R"cuda(
__device__ inline bool is_first(float a, float b) { return a <= b || a != a; }
)cuda";

/// The text of an op without numbers.
template <const auto&... Parts>
struct PlainText {
  static constexpr JoinedText functions{Parts...};
  static std::array<CudaDefine, 0> defines(const auto&) { return {}; }
};

}  // namespace detail::cuda

template <>
struct CudaText<AddOp> : detail::cuda::PlainText<detail::cuda::sum_text> {};
template <>
struct CudaText<AverageOp> : detail::cuda::PlainText<detail::cuda::mean_text> {};
template <>
struct CudaText<MultiplyOp> : detail::cuda::PlainText<detail::cuda::product_text> {};
template <>
struct CudaText<MaximumOp>
    : detail::cuda::PlainText<detail::cuda::first_of_maximum, detail::cuda::choice_text> {};
template <>
struct CudaText<MinimumOp>
    : detail::cuda::PlainText<detail::cuda::first_of_minimum, detail::cuda::choice_text> {};

namespace detail::cuda {

inline std::size_t operands_of(const Merge auto& op) { return op.operands(); }
template <class M>
std::size_t operands_of(const MaskedMergeOp<M>& op) {
  return 2 * op.values();
}
template <Merge Op>
auto defines_of(const Op& op) {
  return with_define(CudaText<Op>::defines(op), {"READS_INPUTS", Op::reads_inputs ? 1 : 0});
}
template <class M>
auto defines_of(const MaskedMergeOp<M>& op) {
  return with_define(with_define(CudaText<M>::defines(op.merge), {"WIDTH", op.width()}),
                     {"KEEPS_PADDED", M::keeps_padded ? 1 : 0});
}

/// Up to twelve operands are an argument; longer lists are written to scratch.
template <class Op, class Precision, const Source& source>
struct MergeKernel : KernelTraits {
  using D = BasicCuda<Precision>;
  using A = ActivationOf<D>;

  struct Prepared {
    std::size_t scratch_bytes() const { return listed; }
    std::size_t listed;
  };
  static Prepared prepare(const Op& op, typename D::Context&, std::size_t) {
    const std::size_t operands = operands_of(op);
    return {operands > most_listed ? 2 * operands * sizeof(void*) : 0};
  }

  static void forward(const Op& op, const Io<D>& io, Prepared&) {
    const std::size_t n = io.step.count * op.out().size();
    if (n == 0) return;
    with_list(op, io, io.x, 0, [&](const auto& x) {
      launch(op, io, "forward", n, x, io.y, static_cast<std::int64_t>(n));
    });
  }
  static void backward(const Op& op, const Io<D>& io, Prepared&) {
    const std::size_t n = io.step.count * op.out().size();
    if (n == 0 || std::all_of(io.dx, io.dx + operands_of(op), [](A* p) { return p == nullptr; }))
      return;
    with_list(op, io, io.x, 0, [&](const auto& x) {
      with_list(op, io, io.dx, operands_of(op), [&](const auto& dx) {
        launch(op, io, "backward", n, x, io.dy, dx, static_cast<std::int64_t>(n));
      });
    });
  }

 private:
  /// Calls run with a list of pointers as an argument; `place` is that of a longer one in scratch.
  template <class Pointer, class Run>
  static void with_list(const Op& op, const Io<D>& io, const Pointer* pointers, std::size_t place,
                        const Run& run) {
    using List = OperandList<Pointer>;
    const std::size_t operands = operands_of(op);
    if (operands <= most_listed) return run(List(pointers, operands));
    Pointer* const to = reinterpret_cast<Pointer*>(io.scratch) + place;
    for (std::size_t first = 0; first < operands; first += most_listed) {
      const std::size_t count = std::min(operands - first, most_listed);
      launch(op, io, "list", count, List(pointers + first, count), to + first,
             static_cast<std::int64_t>(count));
    }
    run(to);
  }
  template <class... Ts>
  static void launch(const Op& op, const Io<D>& io, const char* entry, std::size_t n,
                     const Ts&... arguments) {
    const auto defines =
        with_activation<Precision>(with_define(defines_of(op), {"OPERANDS", operands_of(op)}));
    io.device.launch(io.device.kernel(source, entry, defines), Grid::over(n), arguments...);
  }
};

inline constexpr JoinedText any_merge_text{operand_lists_text, merge_text};
inline constexpr JoinedText any_masked_merge_text{operand_lists_text, masked_merge_text};
template <class Op>
inline constexpr Source merge_source{"merge", any_merge_text, CudaText<Op>::functions};
template <class M>
inline constexpr Source masked_merge_source{"masked_merge", any_masked_merge_text,
                                            CudaText<M>::functions};

}  // namespace detail::cuda

/// y may be x[0] unless backward reads it; the kernels read an element before they write it.
template <Merge Op, class Precision>
  requires HasCudaText<Op>
struct Kernel<Op, BasicCuda<Precision>>
    : detail::cuda::MergeKernel<Op, Precision, detail::cuda::merge_source<Op>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = Op::reads_inputs, in_place = !Op::reads_inputs;
};

template <class M, class Precision>
  requires HasCudaText<M>
struct Kernel<MaskedMergeOp<M>, BasicCuda<Precision>>
    : detail::cuda::MergeKernel<MaskedMergeOp<M>, Precision, detail::cuda::masked_merge_source<M>> {
  using library_kernel = Kernel;
  static constexpr bool keeps_x = true;
};

static_assert(HasKernel<AddOp, Cuda> && HasKernel<MultiplyOp, Cuda> && HasKernel<AverageOp, Cuda> &&
              HasKernel<MaximumOp, Cuda> && HasKernel<MinimumOp, Cuda> &&
              HasKernel<MaskedMergeOp<MultiplyOp>, Cuda>);

}  // namespace lockstep
