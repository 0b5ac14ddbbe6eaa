/// \file
/// Batches gathered from rows that are resident on a GPU, and rescaling. Invariant: results equal
/// those of detail::copy_row.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/rows.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/philox.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr Source gather_rows_source{"gather_rows", R"cuda(
#if BYTES
typedef unsigned char Element;
#else
typedef float Element;
#endif
// Converts and, if the pipeline rescales, scales an element.
__device__ inline float number(Element e, float scale, float offset) {
#if SCALES
  return (float)e * scale + offset;
#else
  return (float)e;
#endif
}

// rows: (rows, SIZE), targets: (rows, TARGETS), x: (count, SIZE), y: (count, TARGETS) or null. Rows
// whose size is a multiple of 4 are read four elements at a time.
KERNEL(gather_rows)(const Element* __restrict__ rows, const Target* __restrict__ targets,
                    const u32* __restrict__ index, float* __restrict__ x, Target* __restrict__ y,
                    float scale, float offset, i64 count) {
  for (i64 n = blockIdx.y; n < count; n += gridDim.y) {
    const i64 row = index[n];
    const Element* const from = rows + row * SIZE;
    float* const to = x + n * SIZE;
#if SIZE % 4 == 0
    for (i64 i = INDEX; i < SIZE / 4; i += STRIDE) {
      Four out;
#if BYTES
      const u32 four = ((const u32*)from)[i];
      for (int k = 0; k < 4; ++k)
        out.at[k] = number((Element)(four >> 8 * k & 255), scale, offset);
#else
      const Four in = ((const Four*)from)[i];
      for (int k = 0; k < 4; ++k) out.at[k] = number(in.at[k], scale, offset);
#endif
      ((Four*)to)[i] = out;
    }
#else
    for (i64 i = INDEX; i < SIZE; i += STRIDE) to[i] = number(from[i], scale, offset);
#endif
    if (y && blockIdx.x == 0)
      for (int i = threadIdx.x; i < TARGETS; i += blockDim.x)
        y[n * TARGETS + i] = targets[row * TARGETS + i];
  }
}
)cuda"};

inline constexpr Source scale_rows_source{"scale_rows", R"cuda(
KERNEL(scale_rows)(float* x, float scale, float offset, i64 n) {
  FOR_EACH(i, n) x[i] = x[i] * scale + offset;
}
)cuda"};

}  // namespace detail::cuda

/// Rows of bytes or floats.
template <class Precision>
struct Kernel<GatherRows, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  template <class Element, class Target>
    requires(std::same_as<Element, std::uint8_t> || std::same_as<Element, float>)  //
  static void run(const GatherRows& op,
                  const GatherRowsIo<BasicCuda<Precision>, Element, Target>& io) {
    if (io.count == 0) return;
    io.device.launch(io.device.kernel(detail::cuda::gather_rows_source, "gather_rows",
                                      {{"BYTES", std::same_as<Element, std::uint8_t>},
                                       {"LABELS", std::same_as<Target, std::int32_t>},
                                       {"SCALES", op.scales},
                                       {"SIZE", io.size},
                                       {"TARGETS", io.target_size}}),
                     detail::cuda::example_grid(io.count, (io.size + 3) / 4), io.rows, io.targets,
                     io.index, io.x, io.y, static_cast<float>(op.scale),
                     static_cast<float>(op.offset), static_cast<std::int64_t>(io.count));
  }
};

/// x = x * scale + offset, in place.
template <class Precision>
struct Kernel<pipeline::Scaling, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  static constexpr bool in_place = true;
  static void run(const pipeline::Scaling& op, const ChangeRowsIo<BasicCuda<Precision>>& io) {
    const std::size_t n = io.count * io.in.size();
    if (n == 0) return;
    io.device.launch(io.device.kernel(detail::cuda::scale_rows_source, "scale_rows", {}),
                     detail::cuda::Grid::over(n), io.y, static_cast<float>(op.scale),
                     static_cast<float>(op.offset), static_cast<std::int64_t>(n));
  }
};

static_assert(HasKernel<GatherRows, Cuda> && HasKernel<pipeline::Scaling, Cuda>);

}  // namespace lockstep
