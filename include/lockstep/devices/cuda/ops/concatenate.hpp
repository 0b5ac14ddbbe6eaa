/// \file
/// Concatenate on a GPU: one thread per element of y. A launch copies up to PARTS operands, which are
/// one after the other in each row of y.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/operand_list.hpp"
#include "lockstep/layers/merging/concatenate.hpp"

namespace lockstep {

namespace detail::cuda {

/// Ends of the operands of a launch in a row of y, relative to the first of them.
struct RowEnds {
  std::int64_t at[most_listed]{};
};

inline constexpr Source concatenate_source{"concatenate", R"cuda(
struct Inputs { const A* x[PARTS]; };
struct Gradients { A* dx[PARTS]; };
struct Ends { i64 at[12]; };
struct Place { i64 part, x, y; };  // an element of the operands: which operand, where, and where in y
__device__ inline Place place_of(i64 i, const Ends& ends, i64 first) {
  const i64 size = ends.at[PARTS - 1], row = i / size, k = i - row * size;
  int part = 0;
  while (k >= ends.at[part]) ++part;
  const i64 begin = part ? ends.at[part - 1] : 0;
  return {part, row * (ends.at[part] - begin) + k - begin, row * ROW + first + k};
}
KERNEL(forward)(Inputs in, Ends ends, i64 first, A* __restrict__ y, i64 n) {
  FOR_EACH(i, n) {
    const Place p = place_of(i, ends, first);
    y[p.y] = in.x[p.part][p.x];
  }
}
// Each gradient may be null.
KERNEL(backward)(Gradients to, Ends ends, i64 first, const A* __restrict__ dy, i64 n) {
  FOR_EACH(i, n) {
    const Place p = place_of(i, ends, first);
    if (to.dx[p.part]) to.dx[p.part][p.x] = dy[p.y];
  }
}
)cuda"};

}  // namespace detail::cuda

template <class Precision>
struct Kernel<ConcatenateOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;

  static void forward(const ConcatenateOp& op, const Io<D>& io) {
    run(op, io, "forward", io.x, io.y);
  }
  static void backward(const ConcatenateOp& op, const Io<D>& io) {
    run(op, io, "backward", io.dx, static_cast<const ActivationOf<D>*>(io.dy));
  }

 private:
  /// One launch for each `most_listed` operands.
  template <class Pointer>
  static void run(const ConcatenateOp& op, const Io<D>& io, const char* entry,
                  const Pointer* pointers, auto* y) {
    const std::size_t rows = op.rows(), row = op.out().size() / rows;
    if (io.step.count == 0) return;
    for (std::size_t k = 0, first = 0; k < op.operands();) {
      const std::size_t parts = std::min(op.operands() - k, detail::cuda::most_listed);
      detail::cuda::RowEnds ends;
      std::size_t size = 0;
      for (std::size_t j = 0; j < parts; ++j)
        ends.at[j] = static_cast<std::int64_t>(size += io.x_size[k + j] / rows);
      const auto defines = detail::cuda::with_activation<Precision>(
          std::array{detail::cuda::Define("ROW", row), detail::cuda::Define("PARTS", parts)});
      const std::size_t n = io.step.count * rows * size;
      if (std::any_of(pointers + k, pointers + k + parts, [](Pointer p) { return p != nullptr; }))
        io.device.launch(io.device.kernel(detail::cuda::concatenate_source, entry, defines),
                         detail::cuda::Grid::over(n),
                         detail::cuda::OperandList(pointers + k, parts), ends,
                         static_cast<std::int64_t>(first), y, static_cast<std::int64_t>(n));
      first += size;
      k += parts;
    }
  }
};

static_assert(HasKernel<ConcatenateOp, Cuda>);

}  // namespace lockstep
