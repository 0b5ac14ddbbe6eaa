/// \file
/// RandomFlip on every device over host memory. Invariant: an example is flipped if and only if the
/// first word of its stream is below 2^31.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/images/image_sampling.hpp"
#include "lockstep/layers/preprocessing/random_flip.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<RandomFlipOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using A = detail::ElementOf<D>;

  static void forward(const RandomFlipOp& op, const Io<D>& io) {
    if (io.step.training)
      flip(op, io, io.x[0], io.y);
    else
      std::copy_n(io.x[0], io.step.count * op.in.size(), io.y);
  }
  /// A flip is its own inverse. The random word is drawn again rather than saved from forward.
  static void backward(const RandomFlipOp& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    if (io.step.training)
      flip(op, io, io.dy, io.dx[0]);
    else
      std::copy_n(io.dy, io.step.count * op.in.size(), io.dx[0]);
  }

 private:
  static void flip(const RandomFlipOp& op, const Io<D>& io, const A* from, A* to) {
    const auto height = static_cast<std::size_t>(op.in[0]),
               width = static_cast<std::size_t>(op.in[1]),
               channels = static_cast<std::size_t>(op.in[2]);
    for (std::size_t n = 0; n < io.step.count; ++n, from += op.in.size(), to += op.in.size()) {
      if (detail::example_noise(io, n)() >= 0x80000000u) {
        std::copy_n(from, op.in.size(), to);
        continue;
      }
      for (std::size_t r = 0; r < height; ++r) {
        const std::size_t source = op.mode == FlipMode::horizontal ? r : height - 1 - r;
        const A* const in = from + source * width * channels;  // (width, channels)
        A* const out = to + r * width * channels;              // (width, channels)
        if (op.mode == FlipMode::vertical) {
          std::copy_n(in, width * channels, out);
          continue;
        }
        for (std::size_t c = 0; c < width; ++c)
          for (std::size_t k = 0; k < channels; ++k)
            out[c * channels + k] = in[(width - 1 - c) * channels + k];
      }
    }
  }
};

}  // namespace lockstep
