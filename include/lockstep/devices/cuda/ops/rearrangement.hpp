/// \file
/// Rearrangements on a GPU: one thread per element of the target.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/layers/reshaping/rearrangement.hpp"

namespace lockstep {

namespace detail::cuda {

/// EXTENTk, FROMk, BEGINk, STRIDEk: the members of axis k. TO_SIZE and FROM_SIZE: elements per
/// example.
inline constexpr Source rearrangement_source{"rearrangement", R"cuda(
#define AXIS(k)                                         \
  {                                                     \
    const int step = (int)(place % EXTENT##k) + BEGIN##k; \
    place /= EXTENT##k;                                 \
    inside = inside && step >= 0 && step < FROM##k;     \
    source += step * STRIDE##k;                         \
  }
KERNEL(rearrange)(const A* __restrict__ from, A* __restrict__ to, i64 n) {
  FOR_EACH(i, n) {
    const i64 example = i / TO_SIZE;
    u32 place = (u32)(i - example * TO_SIZE);
    int source = 0;
    bool inside = true;
    AXIS(4)
    AXIS(3)
    AXIS(2)
    AXIS(1)
    AXIS(0)
    const A* const begin = from + example * FROM_SIZE;
#if REPEATS == 1
    to[i] = inside ? begin[source] : put<A>(0.0f);
#else
    float sum = 0;
    if (inside)
      for (int r = 0; r < REPEATS; ++r) sum += get(begin[source + r * REPEAT_STRIDE]);
    to[i] = put<A>(sum);
#endif
  }
}
)cuda"};

}  // namespace detail::cuda

/// Backward needs neither x nor y.
template <Rearranges Op, class Precision>
struct Kernel<Op, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;

  static void forward(const Op& op, const Io<D>& io) {
    run(op.rearrangement(), io, op.in.size(), io.x[0], io.y);
  }
  static void backward(const Op& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    run(op.rearrangement().transposed(), io, op.out().size(), io.dy, io.dx[0]);
  }

 private:
  template <class A>
  static void run(const Rearrangement& map, const Io<D>& io, std::size_t from_size, const A* from,
                  A* to) {
    using detail::cuda::Define;
    const std::size_t n = io.step.count * map.size();
    if (n == 0) return;
    const auto& a = map.axis;
    const auto defines = detail::cuda::with_activation<Precision>(
        std::array{Define("EXTENT0", a[0].extent), Define("EXTENT1", a[1].extent),
                   Define("EXTENT2", a[2].extent), Define("EXTENT3", a[3].extent),
                   Define("EXTENT4", a[4].extent), Define("FROM0", a[0].from),
                   Define("FROM1", a[1].from),     Define("FROM2", a[2].from),
                   Define("FROM3", a[3].from),     Define("FROM4", a[4].from),
                   Define("BEGIN0", a[0].begin),   Define("BEGIN1", a[1].begin),
                   Define("BEGIN2", a[2].begin),   Define("BEGIN3", a[3].begin),
                   Define("BEGIN4", a[4].begin),   Define("STRIDE0", a[0].stride),
                   Define("STRIDE1", a[1].stride), Define("STRIDE2", a[2].stride),
                   Define("STRIDE3", a[3].stride), Define("STRIDE4", a[4].stride),
                   Define("TO_SIZE", map.size()),  Define("FROM_SIZE", from_size),
                   Define("REPEATS", map.repeats), Define("REPEAT_STRIDE", map.repeat_stride)});
    io.device.launch(io.device.kernel(detail::cuda::rearrangement_source, "rearrange", defines),
                     detail::cuda::Grid::over(n), from, to, static_cast<std::int64_t>(n));
  }
};

}  // namespace lockstep
