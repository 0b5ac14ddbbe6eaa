/// \file
/// MaxPooling2D on the reference device. Invariants: forward saves the index of the winning tap,
/// in one byte per output if the window has at most 256 taps, otherwise in four; among equal
/// maxima the first in row-major order wins, and the last NaN wins over all others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/devices/reference/pooling2d.hpp"
#include "lockstep/layers/pooling/max_pooling2d.hpp"

namespace lockstep {

template <class T>
struct Kernel<MaxPooling2DOp, Reference<T>> : KernelTraits {
  using library_kernel = Kernel;
  static constexpr std::size_t saved(const MaxPooling2DOp& op) {
    return op.out().size() * (fits_a_byte(op) ? 1 : sizeof(std::uint32_t));
  }

  static void forward(const MaxPooling2DOp& op, const Io<Reference<T>>& io) {
    const T* const x = io.x[0];  // (count, height, width, channels)
    T* const y = io.y;           // (count, height', width', channels)
    detail::for_each_window(op.window, io.step.count, [&](std::size_t out, const auto& taps) {
      int winner = -1;
      T best{};
      taps([&](int tap, std::size_t in) {
        if (winner >= 0 && !(x[in] > best) && !detail::is_nan(x[in])) return;
        winner = tap;
        best = x[in];
      });
      y[out] = best;
      save(op, io.saved, out, winner);
    });
  }

  static void backward(const MaxPooling2DOp& op, const Io<Reference<T>>& io) {
    if (io.dx[0] == nullptr) return;
    const T* const dy = io.dy;  // (count, height', width', channels)
    T* const dx = io.dx[0];     // (count, height, width, channels)
    std::fill_n(dx, io.step.count * op.window.in.size(), T(0));
    detail::for_each_window(op.window, io.step.count, [&](std::size_t out, const auto& taps) {
      const int winner = load(op, io.saved, out);
      taps([&](int tap, std::size_t in) {
        if (tap == winner) dx[in] += dy[out];
      });
    });
  }

 private:
  static constexpr bool fits_a_byte(const MaxPooling2DOp& op) {
    return op.window.pool.height * op.window.pool.width <= 256;
  }
  static void save(const MaxPooling2DOp& op, std::byte* saved, std::size_t i, int winner) {
    if (fits_a_byte(op)) {
      saved[i] = static_cast<std::byte>(winner);
    } else {
      const auto wide = static_cast<std::uint32_t>(winner);
      std::memcpy(saved + i * sizeof wide, &wide, sizeof wide);
    }
  }
  static int load(const MaxPooling2DOp& op, const std::byte* saved, std::size_t i) {
    if (fits_a_byte(op)) return static_cast<int>(saved[i]);
    std::uint32_t wide = 0;
    std::memcpy(&wide, saved + i * sizeof wide, sizeof wide);
    return static_cast<int>(wide);
  }
};

static_assert(HasKernel<MaxPooling2DOp, Reference<double>>);

}  // namespace lockstep
