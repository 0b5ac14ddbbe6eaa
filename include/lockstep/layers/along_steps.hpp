/// \file
/// Layers over (steps, channels), computed as layers over images with a single row. Invariant: such
/// an op has no separate kernel; on each device the kernel of the image op does the work.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/inner_kernel.hpp"

namespace lockstep {

/// Applies `op` to images (1, steps, channels) and drops the row from its result.
template <class O>
struct AlongSteps {
  static constexpr std::string_view members = "along_steps";
  O op;
  constexpr Shape out() const {
    const Shape o = op.out();
    return o.rank == 3 ? shape(o[1], o[2]) : o;
  }
  constexpr double flops() const {
    if constexpr (requires { op.flops(); })
      return op.flops();
    else
      return 0;
  }
  constexpr std::size_t weights() const { return detail::weights_of(op); }
  constexpr std::size_t state() const { return detail::state_of(op); }
  bool operator==(const AlongSteps&) const = default;
};

namespace detail {

/// The image shape (1, steps, channels) of an input (steps, channels).
constexpr Shape as_row(Shape in) { return shape(1, in[0], in[1]); }

/// The kernel traits of the image op, forwarded.
template <class O, class D>
struct AlongStepsTraits : KernelTraits {
  using Inner = Kernel<O, D>;
  static constexpr bool keeps_x = Inner::keeps_x, keeps_y = Inner::keeps_y,
                        in_place = Inner::in_place, dx_in_place = Inner::dx_in_place,
                        updates = Inner::updates, skips_dw = Inner::skips_dw;
  static constexpr bool exchanges(const AlongSteps<O>& a) { return Inner::exchanges(a.op); }
  static constexpr bool updates_state(const AlongSteps<O>& a) { return Inner::updates_state(a.op); }
  static constexpr std::size_t saved(const AlongSteps<O>& a) { return Inner::saved(a.op); }
  static constexpr std::size_t saved_once(const AlongSteps<O>& a) {
    return Inner::saved_once(a.op);
  }
};

}  // namespace detail

template <class O, class D>
  requires HasKernel<O, D>
struct Kernel<AlongSteps<O>, D> : detail::AlongStepsTraits<O, D> {
  using library_kernel = std::conditional_t<detail::of_library<O, D>, Kernel, void>;
  using Prepared = detail::InnerKernel<O, D>;
  template <std::same_as<ForwardOnly>... Only>
  static Prepared prepare(const AlongSteps<O>& a, typename D::Context& context, std::size_t count,
                          Only... only) {
    return {a.op, context, count, only...};
  }
  static void forward(const AlongSteps<O>& a, const Io<D>& io, Prepared& prepared) {
    prepared.forward(a.op, io);
  }
  static void backward(const AlongSteps<O>& a, const Io<D>& io, Prepared& prepared) {
    prepared.backward(a.op, io);
  }
};

}  // namespace lockstep
