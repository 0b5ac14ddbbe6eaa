/// \file
/// RandomContrast and RandomBrightness on every device over host memory. Invariants: an image's
/// change is a function of the first uniform draw of its stream; means are summed in double.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/images/image_sampling.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/layers/preprocessing/random_color.hpp"

namespace lockstep {

template <RandomColorOp Op, HostDevice D>
struct Kernel<Op, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = detail::ElementOf<D>;
  static constexpr bool keeps_x = true;  // which values the range limits

  static void forward(const Op& op, const Io<D>& io) {
    if (!io.step.training) {
      std::copy_n(io.x[0], io.step.count * op.in.size(), io.y);
      return;
    }
    for_each_channel(op, io, [&](const Channel& channel, std::size_t first, std::size_t step) {
      const T lower = T(op.range.lower), upper = T(op.range.upper);
      for (std::size_t i = 0; i < channel.pixels; ++i) {
        const std::size_t at = first + i * step;
        const T value = channel.changed(T(io.x[0][at]));
        io.y[at] = A(value < lower ? lower : value > upper ? upper : value);
      }
    });
  }

  /// dx = contrast g + (1 - contrast) mean(g), where g is dy without the values that the range
  /// limits.
  static void backward(const Op& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    if (!io.step.training) {
      std::copy_n(io.dy, io.step.count * op.in.size(), io.dx[0]);
      return;
    }
    for_each_channel(op, io, [&](const Channel& channel, std::size_t first, std::size_t step) {
      const T lower = T(op.range.lower), upper = T(op.range.upper);
      const auto gradient = [&](std::size_t at) {
        const T value = channel.changed(T(io.x[0][at]));
        return value < lower || value > upper ? T(0) : T(io.dy[at]);
      };
      T of_mean = 0;
      if constexpr (Op::changes_contrast) {
        double sum = 0;
        for (std::size_t i = 0; i < channel.pixels; ++i)
          sum += static_cast<double>(gradient(first + i * step));
        of_mean = T((1 - channel.contrast) * sum / static_cast<double>(channel.pixels));
      }
      for (std::size_t i = 0; i < channel.pixels; ++i) {
        const std::size_t at = first + i * step;
        io.dx[0][at] = A(T(channel.contrast) * gradient(at) + of_mean);
      }
    });
  }

 private:
  struct Channel {
    std::size_t pixels;
    double contrast, plus, mean;
    T changed(T x) const {
      if constexpr (Op::changes_contrast)
        return T(contrast) * (x - T(mean)) + T(mean);
      else
        return x + T(plus);
    }
  };

  /// Calls f(channel, its first element, the distance between two) for each channel of each image.
  template <class F>
  static void for_each_channel(const Op& op, const Io<D>& io, const F& f) {
    const auto channels = static_cast<std::size_t>(op.in[2]);
    const std::size_t pixels = op.in.size() / channels;
    detail::for_ranges(io.device, io.step.count, (1 << 13) / op.in.size() + 1, [&](Slice part) {
      for (std::size_t n = part.first; n < part.first + part.count; ++n) {
        const ColorChange change = op.change(detail::example_noise(io, n).uniform());
        for (std::size_t k = 0; k < channels; ++k) {
          const std::size_t first = n * op.in.size() + k;
          double sum = 0;
          if constexpr (Op::changes_contrast)
            for (std::size_t i = 0; i < pixels; ++i)
              sum += static_cast<double>(io.x[0][first + i * channels]);
          f(Channel{pixels, change.contrast, change.plus, sum / static_cast<double>(pixels)}, first,
            channels);
        }
      }
    });
  }
};

}  // namespace lockstep
