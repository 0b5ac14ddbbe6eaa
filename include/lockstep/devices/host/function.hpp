/// \file
/// Functions with sums or maxima over the last axis on every device over host memory. Those without
/// are Pointwise. Invariant: a row is computed by one thread, in the same order for any number of
/// threads; backward computes the values that it needs again, from x.
#pragma once

#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/functions/code.hpp"
#include "lockstep/functions/evaluate.hpp"
#include "lockstep/layers/function.hpp"

namespace lockstep {
namespace detail {

/// The two passes over a row, with the vectors or scalars of Math. All lambdas are inlined, see
/// functions/evaluate.hpp.
template <class C, class Math>
struct FunctionRow {
  using Op = functions::Operation;
  static constexpr bool is_row = FunctionOp<C>::is_row;

  template <class A>
  [[gnu::always_inline, gnu::no_instrument_function]] static inline void forward(const A* x, A* y,
                                                                                 std::size_t n) {
    using P = functions::Forward<C>;
    functions::Nodes<P, Math> nodes;
    functions::RowPasses<P, Math>::run(
        nodes, n,
        [x](auto& values, std::size_t k, std::size_t count)
            __attribute__((always_inline, no_instrument_function)) {
              typename Math::V v;
              Math::load(v, x + k, count);
              values.template set<Op::input>(v);
            },
        [y](const auto& values, std::size_t k, std::size_t count)
            __attribute__((always_inline, no_instrument_function)) {
              typename Math::V v;
              values.template get<static_cast<std::size_t>(P::root)>(v);
              Math::store(y + k, v, count);
            },
        !is_row);
    if constexpr (is_row)
      *y = A(static_cast<typename Math::T>(
          nodes.template row_value<static_cast<std::size_t>(P::value)>()));
  }
  template <class A>
  [[gnu::always_inline, gnu::no_instrument_function]] static inline void backward(const A* x,
                                                                                  const A* dy,
                                                                                  A* dx,
                                                                                  std::size_t n) {
    using P = functions::Backward<C>;
    functions::Nodes<P, Math> nodes;
    if constexpr (is_row)
      nodes.template set_row<Op::slope>(static_cast<double>(static_cast<typename Math::T>(*dy)));
    functions::RowPasses<P, Math>::run(
        nodes, n,
        [=](auto& values, std::size_t k, std::size_t count)
            __attribute__((always_inline, no_instrument_function)) {
              typename Math::V v;
              Math::load(v, x + k, count);
              values.template set<Op::input>(v);
              if constexpr (!is_row) {
                Math::load(v, dy + k, count);
                values.template set<Op::slope>(v);
              }
            },
        [dx](const auto& values, std::size_t k, std::size_t count)
            __attribute__((always_inline, no_instrument_function)) {
              typename Math::V v;
              values.template get<static_cast<std::size_t>(P::root)>(v);
              Math::store(dx + k, v, count);
            });
  }
};

/// Calls each(row) for the rows of a batch, on all threads.
template <class D, class C, class Each>
void for_function_rows(const FunctionOp<C>& op, const Io<D>& io, const Each& each) {
  const auto n = static_cast<std::size_t>(op.in.channels());
  const std::size_t grain = 16384 / (8 * n) + 1;  // waking a thread takes as long as some rows
  for_ranges(io.device, io.step.count * op.in.size() / n, grain, [&](Slice part) {
    for (std::size_t row = part.first; row < part.first + part.count; ++row) each(row, n);
  });
}

}  // namespace detail

template <class C, HostDevice D>
  requires FunctionOp<C>::reduces
struct Kernel<FunctionOp<C>, D> : KernelTraits {
  using library_kernel = Kernel;
  using Row = detail::FunctionRow<C, functions::ScalarMath<typename D::real>>;
  static constexpr bool keeps_x = true;

  static void forward(const FunctionOp<C>& op, const Io<D>& io) {
    detail::for_function_rows(op, io, [&](std::size_t row, std::size_t n) {
      Row::forward(io.x[0] + row * n, io.y + row * (Row::is_row ? 1 : n), n);
    });
  }
  static void backward(const FunctionOp<C>& op, const Io<D>& io) {
    if (io.dx[0] == nullptr) return;
    detail::for_function_rows(op, io, [&](std::size_t row, std::size_t n) {
      Row::backward(io.x[0] + row * n, io.dy + row * (Row::is_row ? 1 : n), io.dx[0] + row * n, n);
    });
  }
};

}  // namespace lockstep
