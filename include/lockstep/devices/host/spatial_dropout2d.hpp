/// \file
/// SpatialDropout2D on every device over host memory. Invariant: word k of the Philox stream
/// `ordinal`, under the key mix(mix(seed, layer), pass), decides whether channel k of an example is
/// kept, as word i decides about element i in Dropout. All devices follow this rule.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/layers/regularization/spatial_dropout2d.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<SpatialDropout2DOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  static constexpr bool in_place = true;
  /// The factor of each channel: 0 or 1 / (1 - rate).
  static constexpr std::size_t saved(const SpatialDropout2DOp& op) {
    return static_cast<std::size_t>(op.in[2]) * sizeof(T);
  }

  static void forward(const SpatialDropout2DOp& op, const Io<D>& io) {
    if (drops(op, io)) draw(op, io);
    apply(op, io, io.x[0], io.y);
  }
  static void backward(const SpatialDropout2DOp& op, const Io<D>& io) {
    if (io.dx[0] != nullptr) apply(op, io, io.dy, io.dx[0]);
  }

 private:
  static bool drops(const SpatialDropout2DOp& op, const Io<D>& io) {
    return io.step.training && op.rate > 0;
  }

  static void draw(const SpatialDropout2DOp& op, const Io<D>& io) {
    const auto channels = static_cast<std::size_t>(op.in[2]);
    const std::uint64_t key = mix(mix(io.step.seed, io.key), io.step.pass);
    const double threshold =
        static_cast<double>(op.rate) * 0x1p32;  // a word below it drops the channel
    const T scale = T(1) / (T(1) - T(op.rate));
    T* factor = reinterpret_cast<T*>(io.saved);  // (count, channels)
    for (std::size_t n = 0; n < io.step.count; ++n) {
      Philox words(key, io.step.first_ordinal + n);
      for (std::size_t k = 0; k < channels; ++k)
        *factor++ = static_cast<double>(words()) >= threshold ? scale : T(0);
    }
  }

  template <class Value>
  static void apply(const SpatialDropout2DOp& op, const Io<D>& io, const Value* from, Value* to) {
    const std::size_t size = op.in.size(), channels = static_cast<std::size_t>(op.in[2]);
    if (!drops(op, io)) {
      if (from != to) std::copy_n(from, io.step.count * size, to);
      return;
    }
    const T* const factors = reinterpret_cast<const T*>(io.saved);  // (count, channels)
    detail::for_ranges(io.device, io.step.count, (1 << 14) / size + 1, [&](Slice part) {
      for (std::size_t n = part.first; n < part.first + part.count; ++n) {
        const T* const factor = factors + n * channels;  // (channels)
        for (std::size_t i = n * size; i < (n + 1) * size; i += channels)
          for (std::size_t k = 0; k < channels; ++k)
            to[i + k] = Value(factor[k] > 0 ? T(from[i + k]) * factor[k] : T(0));
      }
    });
  }
};

}  // namespace lockstep
