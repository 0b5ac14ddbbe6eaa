/// \file
/// Dropout on every device over host memory. Invariant: whether element i of an example is kept is
/// a pure function of (seed, pass, layer, ordinal of the example, i): word i % 4 of Philox block i
/// / 4 of the stream `ordinal`, under the key mix(mix(seed, layer), pass). All devices follow this
/// rule, so the mask depends on neither device, batch size nor thread count.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/layers/regularization/dropout.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<DropoutOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool in_place = true;

  static void forward(const DropoutOp& op, const Io<D>& io) { apply(op, io, io.x[0], io.y); }

  /// Draws the mask again rather than saving it from forward.
  static void backward(const DropoutOp& op, const Io<D>& io) {
    if (io.dx[0] != nullptr) apply(op, io, io.dy, io.dx[0]);
  }

 private:
  static void apply(const DropoutOp& op, const Io<D>& io, const A* from, A* to) {
    const std::size_t size = op.in.size();
    if (!io.step.training || op.rate <= 0) {
      if (from != to) std::copy_n(from, io.step.count * size, to);
      return;
    }
    const std::uint64_t key = mix(mix(io.step.seed, io.key), io.step.pass);
    const std::array<std::uint32_t, 2> words{static_cast<std::uint32_t>(key),
                                             static_cast<std::uint32_t>(key >> 32)};
    const double threshold =
        static_cast<double>(op.rate) * 0x1p32;  // a word below it drops the element
    const T scale = T(1) / (T(1) - T(op.rate));
    for (std::size_t n = 0; n < io.step.count; ++n) {
      const std::uint64_t ordinal = io.step.first_ordinal + n;
      const auto low = static_cast<std::uint32_t>(ordinal),
                 high = static_cast<std::uint32_t>(ordinal >> 32);
      const A* const in = from + n * size;  // (size)
      A* const out = to + n * size;         // (size)
      for (std::size_t i = 0; i < size; i += 4) {
        const auto draw = philox4x32({static_cast<std::uint32_t>(i / 4), 0, low, high}, words);
        const std::size_t lanes = std::min<std::size_t>(4, size - i);
        for (std::size_t lane = 0; lane < lanes; ++lane)
          out[i + lane] =
              static_cast<double>(draw[lane]) >= threshold ? A(T(in[i + lane]) * scale) : A(T(0));
      }
    }
  }
};

}  // namespace lockstep
