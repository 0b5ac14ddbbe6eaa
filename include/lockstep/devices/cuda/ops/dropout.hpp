/// \file
/// Dropout, SpatialDropout2D and GaussianNoise on a GPU. Invariants: random numbers are those of
/// devices/host, and are drawn again in backward, so no mask is saved; a thread uses all four words
/// of a Philox block.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/philox.hpp"
#include "lockstep/layers/regularization/dropout.hpp"
#include "lockstep/layers/regularization/gaussian_noise.hpp"
#include "lockstep/layers/regularization/spatial_dropout2d.hpp"

namespace lockstep {

namespace detail::cuda {

/// A Philox block covers four of the SIZE elements of an example.
inline constexpr Source noise_source{"noise", R"cuda(
#define GROUPS ((SIZE + 3) / 4)

// Reads four elements, of which `most` exist.
__device__ inline Four read(const A* p, int most) {
#if SIZE % 4 == 0
  return *(const Four*)p;
#else
  Four all;
  for (int k = 0; k < 4; ++k) all.at[k] = k < most ? p[k] : put<A>(0.0f);
  return all;
#endif
}
__device__ inline void write(A* p, const Four& all, int most) {
#if SIZE % 4 == 0
  *(Four*)p = all;
#else
  for (int k = 0; k < 4; ++k)
    if (k < most) p[k] = all.at[k];
#endif
}
// Calls `change` with each group of four elements and its Philox block.
template <class F>
__device__ inline void change_groups(i64 count, Stream stream, const A* from, A* to, F change) {
  for (i64 q = INDEX; q < count * GROUPS; q += STRIDE) {
    const i64 n = q / GROUPS;
    const int b = (int)(q % GROUPS), most = SIZE - 4 * b;
    const i64 at = n * SIZE + 4 * b;
    Four v = read(from + at, most);
    change(v.at, block_of_words(stream, n, b));
    write(to + at, v, most);
  }
}

// Inverted dropout: y = x / (1 - rate) with probability 1 - rate, else 0.
struct Drop {
  __device__ void operator()(A* at, const u32x4& words) const {
    for (int k = 0; k < 4; ++k)
      at[k] = put<A>(words.word[k] >= THRESHOLD ? get(at[k]) * SCALE : 0.0f);
  }
};
KERNEL(dropout)(const A* from, A* to, Stream stream, i64 count) {
  change_groups(count, stream, from, to, Drop());
}

// Box-Muller: two words give two normal numbers with standard deviation SCALE.
struct AddNoise {
  __device__ void operator()(A* at, const u32x4& words) const {
    for (int k = 0; k < 4; k += 2) {
      // log((word + 1) / 2^32); near 1 by log1p of the distance from 1, to avoid cancellation
      const u32 word = words.word[k];
      const float log_u = word < 0x80000000u
                              ? logf(((float)word + 1.0f) * 2.3283064365386962891e-10f)
                              : log1pf(-((float)~word * 2.3283064365386962891e-10f));
      const float radius = SCALE * sqrtf(-2 * log_u);
      float s, c;
      sincospif((float)(int)words.word[k + 1] * 4.6566128730773925781e-10f, &s, &c);
      at[k] = put<A>(get(at[k]) + radius * c);
      at[k + 1] = put<A>(get(at[k + 1]) + radius * s);
    }
  }
};
KERNEL(noise)(const A* from, A* to, Stream stream, i64 count) {
  change_groups(count, stream, from, to, AddNoise());
}

// A thread handles four channels of eight pixels; whole channels are dropped.
KERNEL(channels)(const A* from, A* to, Stream stream, i64 count) {
  const int each = 8, parts = (PIXELS + each - 1) / each, groups = (CHANNELS + 3) / 4;
  for (i64 q = INDEX; q < count * parts * groups; q += STRIDE) {
    const int group = (int)(q % groups), part = (int)(q / groups % parts);
    const i64 n = q / groups / parts;
    const u32x4 words = block_of_words(stream, n, group);
    for (int pixel = part * each; pixel < (part + 1) * each && pixel < PIXELS; ++pixel) {
      const i64 at = (n * PIXELS + pixel) * CHANNELS + 4 * group;
      for (int k = 0; k < 4; ++k)
        if (4 * group + k < CHANNELS)
          to[at + k] = put<A>(words.word[k] >= THRESHOLD ? get(from[at + k]) * SCALE : 0.0f);
    }
  }
}
)cuda"};

/// Words below rate * 2^32 are dropped.
inline std::uint32_t threshold(float rate) {
  return static_cast<std::uint32_t>(std::ceil(static_cast<double>(rate) * 0x1p32));
}

/// The defines of the kernels.
template <class Precision>
auto noise_defines(const Shape& in, float rate, float scale) {
  const std::size_t pixels = static_cast<std::size_t>(in[0] * in[1]);
  return with_activation<Precision>(
      std::array<Define, 5>{Define("SIZE", in.size()), Define("PIXELS", pixels),
                            Define("CHANNELS", in.rank == 3 ? in[2] : 1),
                            Define("THRESHOLD", threshold(rate)), Define("SCALE", scale)});
}

/// Launches `entry` over groups of elements, `units` of them per example.
template <class Precision>
void add_noise(const Io<BasicCuda<Precision>>& io, const char* entry, std::size_t units,
               const Shape& in, float rate, float scale,
               const ActivationOf<BasicCuda<Precision>>* from,
               ActivationOf<BasicCuda<Precision>>* to) {
  if (io.step.count == 0) return;
  io.device.launch(io.device.kernel(noise_source, entry, noise_defines<Precision>(in, rate, scale)),
                   Grid::over(io.step.count * units), from, to, stream_of(io),
                   static_cast<std::int64_t>(io.step.count));
}

/// A dropout whose kernel `Entry::name` gives each thread `Entry::group` elements.
template <class Op, class Precision, class Entry>
struct DropoutKernel : KernelTraits {
  using D = BasicCuda<Precision>;
  using A = ActivationOf<D>;
  static constexpr bool in_place = true;

  static void forward(const Op& op, const Io<D>& io) { apply(op, io, io.x[0], io.y); }
  /// Draws the mask again.
  static void backward(const Op& op, const Io<D>& io) {
    if (io.dx[0] != nullptr) apply(op, io, io.dy, io.dx[0]);
  }

 private:
  static void apply(const Op& op, const Io<D>& io, const A* from, A* to) {
    if (!io.step.training || op.rate <= 0)
      copy_values(io, op.in.size(), from, to);
    else
      add_noise<Precision>(io, Entry::name, (op.in.size() + Entry::group - 1) / Entry::group, op.in,
                           op.rate, 1 / (1 - op.rate), from, to);
  }
};
/// Four elements per thread.
struct DropoutEntry {
  static constexpr const char* name = "dropout";
  static constexpr std::size_t group = 4;
};
/// Four channels of eight pixels per thread.
struct ChannelsEntry {
  static constexpr const char* name = "channels";
  static constexpr std::size_t group = 32;
};

}  // namespace detail::cuda

/// Drops single elements.
template <class Precision>
struct Kernel<DropoutOp, BasicCuda<Precision>>
    : detail::cuda::DropoutKernel<DropoutOp, Precision, detail::cuda::DropoutEntry> {
  using library_kernel = Kernel;
};

/// Drops whole channels of an example.
template <class Precision>
struct Kernel<SpatialDropout2DOp, BasicCuda<Precision>>
    : detail::cuda::DropoutKernel<SpatialDropout2DOp, Precision, detail::cuda::ChannelsEntry> {
  using library_kernel = Kernel;
};

/// Adds noise in training; its gradient is the identity.
template <class Precision>
struct Kernel<GaussianNoiseOp, BasicCuda<Precision>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  static constexpr bool in_place = true;

  static void forward(const GaussianNoiseOp& op, const Io<D>& io) {
    if (!io.step.training || op.stddev <= 0)
      detail::cuda::copy_values(io, op.in.size(), io.x[0], io.y);
    else
      detail::cuda::add_noise<Precision>(io, "noise", (op.in.size() + 3) / 4, op.in, 0, op.stddev,
                                         io.x[0], io.y);
  }
  static void backward(const GaussianNoiseOp& op, const Io<D>& io) {
    if (io.dx[0] != nullptr) detail::cuda::copy_values(io, op.in.size(), io.dy, io.dx[0]);
  }
};

static_assert(HasKernel<DropoutOp, Cuda> && HasKernel<SpatialDropout2DOp, Cuda> &&
              HasKernel<GaussianNoiseOp, Cuda>);

}  // namespace lockstep
