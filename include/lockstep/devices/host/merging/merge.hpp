/// \file
/// Element-by-element merges of any number of values on every device over host memory: the op's
/// scalar functions. A device with a faster kernel for some op specializes Kernel further.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/layers/merging/merge.hpp"

namespace lockstep {

namespace detail {

template <class Op, class D>
struct MergeKernel : KernelTraits {
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x = Op::reads_inputs, in_place = !Op::reads_inputs;

  /// In blocks, each of which visits one operand after the other. Sums are rounded once.
  static void forward(const Op& op, const Io<D>& io) {
    for_ranges(io.device, io.step.count * op.out().size(), grain, [&](Slice part) {
      std::array<T, block> all;
      for (std::size_t begin = part.first; begin < part.first + part.count; begin += block) {
        const std::size_t n = std::min(block, part.first + part.count - begin);
        for (std::size_t i = 0; i < n; ++i) all[i] = T(io.x[0][begin + i]);
        for (std::size_t k = 1; k < op.operands(); ++k) {
          const A* const x = io.x[k] + begin;
          for (std::size_t i = 0; i < n; ++i) all[i] = op.fold(all[i], T(x[i]));
        }
        for (std::size_t i = 0; i < n; ++i) io.y[begin + i] = A(op.finish(all[i]));
      }
    });
  }

  /// dx[k] may be dy: each element of dy is read before it is written.
  static void backward(const Op& op, const Io<D>& io) {
    if (op.operands() == 2)
      write_gradients(op, io, std::integral_constant<std::size_t, 2>());
    else
      write_gradients(op, io, op.operands());
  }

 private:
  static constexpr std::size_t grain = 1 << 14;  // minimum elements per thread
  static constexpr std::size_t block = 256;      // elements

  static void write_gradients(const Op& op, const Io<D>& io, auto operands) {
    for_ranges(io.device, io.step.count * op.out().size(), grain, [&](Slice part) {
      for (std::size_t i = part.first; i < part.first + part.count; ++i) {
        const T dy = T(io.dy[i]);
        const auto x = [&](std::size_t k) { return T(io.x[k][i]); };
        for (std::size_t k = 0; k < operands; ++k)
          if (io.dx[k] != nullptr) io.dx[k][i] = A(op.dx(dy, x, k));
      }
    });
  }
};

}  // namespace detail

template <Merge Op, HostDevice D>
struct Kernel<Op, D> : detail::MergeKernel<Op, D> {
  using library_kernel = Kernel;
};

template <class M, HostDevice D>
struct Kernel<MaskedMergeOp<M>, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = ActivationOf<D>;
  using Op = MaskedMergeOp<M>;
  static constexpr bool keeps_x = true;

  static void forward(const Op& op, const Io<D>& io) {
    for_steps(op, io, [&](const std::vector<std::size_t>& merged, std::size_t first) {
      for (std::size_t i = first; i < first + op.width(); ++i) {
        if (merged.empty()) {
          io.y[i] = M::keeps_padded ? io.x[0][i] : A(T(0));
          continue;
        }
        T all = T(io.x[merged[0]][i]);
        for (std::size_t j = 1; j < merged.size(); ++j)
          all = op.merge.fold(all, T(io.x[merged[j]][i]));
        io.y[i] = A(op.merge.finish(all));
      }
    });
  }

  /// dx[k] may be dy: each element of dy is read before it is written.
  static void backward(const Op& op, const Io<D>& io) {
    for_steps(op, io, [&](const std::vector<std::size_t>& merged, std::size_t first) {
      const M some = op.of(std::max<std::size_t>(1, merged.size()));
      for (std::size_t i = first; i < first + op.width(); ++i) {
        const T dy = T(io.dy[i]);
        const auto x = [&](std::size_t j) { return T(io.x[merged[j]][i]); };
        for (std::size_t k = 0, j = 0; k < op.values(); ++k) {
          T dx = merged.empty() && M::keeps_padded && k == 0 ? dy : T(0);
          if (j < merged.size() && merged[j] == k) dx = some.dx(dy, x, j++);
          if (io.dx[k] != nullptr) io.dx[k][i] = A(dx);
        }
      }
    });
  }

 private:
  /// Calls step(values that are merged, first element) for each step.
  template <class Step>
  static void for_steps(const Op& op, const Io<D>& io, const Step& step) {
    const std::size_t width = op.width();
    detail::for_ranges(io.device, io.step.count * op.out().size() / width, 16384 / width + 1,
                       [&](Slice part) {
                         std::vector<std::size_t> merged;
                         for (std::size_t s = part.first; s < part.first + part.count; ++s) {
                           merged.clear();
                           for (std::size_t k = 0; k < op.values(); ++k)
                             if (io.x[op.values() + k][s] != A(T(0))) merged.push_back(k);
                           step(merged, s * width);
                         }
                       });
  }
};

}  // namespace lockstep
