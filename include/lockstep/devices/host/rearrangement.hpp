/// \file
/// Rearrangements on every device over host memory: copies of rows of the last axis. Invariant:
/// each element of the target is written by one thread, so the bits do not depend on the number of
/// threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/layers/reshaping/rearrangement.hpp"

namespace lockstep {
namespace detail {

/// Rearranges `count` examples, of `from_size` elements each in the source.
template <class D>
struct HostRearrangement {
  using T = typename D::real;
  using A = ActivationOf<D>;
  using Index = std::ptrdiff_t;
  static constexpr std::size_t outer = Rearrangement::most_axes - 1;  // axes before the last

  Rearrangement map;
  Index from_size;
  const A* from;
  A* to;

  void run(typename D::Context& context, std::size_t count) const {
    const std::size_t length = at(map.axis[outer].extent), rows = map.size() / length;
    const std::size_t terms = length * at(map.repeats);
    for_ranges(context, count * rows, 16384 / terms + 1,
               [&](Slice part) { rearrange_rows(part, rows); });
  }

 private:
  static constexpr std::size_t block = 64;  // elements accumulated per pass

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  /// Rows of the target, which count over all examples.
  void rearrange_rows(Slice part, std::size_t rows) const {
    std::array<int, outer> step{};
    std::size_t rest = part.first % rows;
    for (std::size_t k = outer; k-- > 0;) {
      step[k] = static_cast<int>(rest % at(map.axis[k].extent));
      rest /= at(map.axis[k].extent);
    }
    const RearrangedAxis& last = map.axis[outer];
    const int first = std::clamp(-last.begin, 0, last.extent);
    const int end = std::clamp(last.from - last.begin, first, last.extent);
    for (std::size_t r = part.first; r < part.first + part.count; ++r) {
      Index source = static_cast<Index>(r / rows) * from_size;
      bool inside = true;
      for (std::size_t k = 0; k < outer; ++k) {
        const RearrangedAxis& a = map.axis[k];
        const int i = step[k] + a.begin;
        inside = inside && i >= 0 && i < a.from;
        source += static_cast<Index>(i) * a.stride;
      }
      A* const row = to + r * at(last.extent);
      if (inside) {
        std::fill_n(row, first, A(0));
        read_row(source + static_cast<Index>(first + last.begin) * last.stride, last.stride,
                 at(end - first), row + first);
        std::fill_n(row + end, last.extent - end, A(0));
      } else {
        std::fill_n(row, last.extent, A(0));
      }
      for (std::size_t k = outer; k-- > 0;) {
        if (++step[k] < map.axis[k].extent) break;
        step[k] = 0;
      }
    }
  }

  void read_row(Index source, int stride, std::size_t n, A* row) const {
    if (n == 0) return;
    const A* const begin = from + source;
    if (map.repeats > 1) return sum_rows(begin, stride, n, row);
    if (stride == 1)
      std::copy_n(begin, n, row);
    else
      for (std::size_t i = 0; i < n; ++i) row[i] = begin[static_cast<Index>(i) * stride];
  }
  void sum_rows(const A* begin, int stride, std::size_t n, A* row) const {
    for (std::size_t first = 0; first < n; first += block) {
      std::array<T, block> sum{};
      const std::size_t width = std::min(block, n - first);
      for (int r = 0; r < map.repeats; ++r) {
        const A* const term =
            begin + static_cast<Index>(first) * stride + static_cast<Index>(r) * map.repeat_stride;
        for (std::size_t i = 0; i < width; ++i)
          sum[i] += static_cast<T>(term[static_cast<Index>(i) * stride]);
      }
      for (std::size_t i = 0; i < width; ++i) row[first + i] = static_cast<A>(sum[i]);
    }
  }
};

}  // namespace detail

/// Backward needs neither x nor y.
template <Rearranges Op, HostDevice D>
struct Kernel<Op, D> : KernelTraits {
  using library_kernel = Kernel;

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
    const detail::HostRearrangement<D> all{map, static_cast<std::ptrdiff_t>(from_size), from, to};
    all.run(io.device, io.step.count);
  }
};

}  // namespace lockstep
