/// \file
/// A layer applied to each step of a sequence. Invariant: its op has no separate kernel; on each
/// device the kernel of the layer runs over a batch of all steps.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/inner_kernel.hpp"
#include "lockstep/layers/reshaping/flatten.hpp"

namespace lockstep {

/// y[n, s] = layer(x[n, s]) for each step s.
template <class O>
struct TimeDistributedOp {
  static constexpr std::string_view members = "in layer";
  Shape in;
  O op;
  constexpr std::size_t steps() const { return static_cast<std::size_t>(in[0]); }
  constexpr Shape out() const {
    const Shape step = op.out();
    return {step.rank + 1, {in[0], step[0], step[1], step[2], 1}};
  }
  constexpr double flops() const {
    if constexpr (requires { op.flops(); })
      return in[0] * op.flops();
    else
      return 0;
  }
  constexpr std::size_t weights() const { return detail::weights_of(op); }
  constexpr std::size_t state() const { return detail::state_of(op); }
  bool operator==(const TimeDistributedOp&) const = default;
};

namespace detail {

/// The shape of one step.
constexpr Shape step_of(Shape in) {
  return {in.rank > 0 ? in.rank - 1 : 0, {in[1], in[2], in[3], 1, 1}};
}

/// The activation of L; void without one.
template <class L>
struct ActivationOfStep {
  using type = void;
};
template <HasActivation L>
struct ActivationOfStep<L> {
  using type = typename L::activation;
};

template <class L>
struct CheckTimeDistributed {
  static_assert(Layer<L>,
                "lockstep::TimeDistributed: its argument is not a layer; write one "
                "TimeDistributed for each layer of a block");
};
template <Layer L>
struct CheckTimeDistributed<L> {
  static_assert(
      !std::is_same_v<decltype(L::op(Shape{})), ViewOp>,
      "lockstep::TimeDistributed: Flatten and Reshape move no data; write Reshape for the "
      "whole shape, steps included");
};

/// A kernel call for a batch of all steps. Its operands are those of the call for sequences.
template <class D>
struct CallForSteps {
  CallForSteps(const Io<D>& sequences, std::size_t steps)
      : step(sequences.step),
        x_size(sequences.x_size == nullptr ? 0 : *sequences.x_size / steps),
        io{step,           sequences.device,  sequences.key,   sequences.x,
           sequences.y,    sequences.w,       sequences.state, sequences.saved,
           sequences.once, sequences.scratch, sequences.dy,    sequences.dx,
           sequences.dw,   sequences.batch,   &x_size,         sequences.update} {
    static_cast<BatchSlice&>(step) = {step.first * steps, step.count * steps,
                                      step.global_count * steps, step.pass,
                                      step.first_ordinal * steps};
  }
  CallForSteps(const CallForSteps&) = delete;
  StepContext step;
  std::size_t x_size;  // of a step
  Io<D> io;
};

/// The kernel traits of the layer's op, forwarded.
template <class O, class D>
struct TimeDistributedTraits : KernelTraits {
  using Inner = Kernel<O, D>;
  static constexpr bool keeps_x = Inner::keeps_x, keeps_y = Inner::keeps_y,
                        in_place = Inner::in_place, dx_in_place = Inner::dx_in_place,
                        updates = Inner::updates, skips_dw = Inner::skips_dw;
  static constexpr std::size_t saved(const TimeDistributedOp<O>& t) {
    return t.steps() * Inner::saved(t.op);
  }
  static constexpr std::size_t saved_once(const TimeDistributedOp<O>& t) {
    return Inner::saved_once(t.op);
  }
};

}  // namespace detail

template <class O, class D>
  requires HasKernel<O, D>
struct Kernel<TimeDistributedOp<O>, D> : detail::TimeDistributedTraits<O, D> {
  using Prepared = detail::InnerKernel<O, D>;
  template <std::same_as<ForwardOnly>... Only>
  static Prepared prepare(const TimeDistributedOp<O>& t, typename D::Context& context,
                          std::size_t count, Only... only) {
    return {t.op, context, count * t.steps(), only...};
  }
  static void forward(const TimeDistributedOp<O>& t, const Io<D>& io, Prepared& prepared) {
    prepared.forward(t.op, detail::CallForSteps<D>(io, t.steps()).io);
  }
  static void backward(const TimeDistributedOp<O>& t, const Io<D>& io, Prepared& prepared) {
    prepared.backward(t.op, detail::CallForSteps<D>(io, t.steps()).io);
  }
};

/// Keras' TimeDistributed: L on each step, with the same weights. Input (steps, ..), output (steps,
/// ..), the shapes of L's input and output after the steps; the parameters are those of L. L has no
/// state, as BatchNormalization does.
/// \code
///   struct Video : ls::Sequential<ls::Input<16, 32, 32, 3>,
///                                 ls::TimeDistributed<ls::Conv2D<8, 3, ls::relu>>,
///                                 ls::TimeDistributed<ls::GlobalAveragePooling2D>,
///                                 ls::LSTM<32>, ls::Dense<5>> {};
/// \endcode
template <class L>
struct TimeDistributed {
  static constexpr std::string_view name = "time_distributed";
  using activation = typename detail::ActivationOfStep<L>::type;
  static constexpr bool supports_masking = true;
  static constexpr bool has_state(Shape in) {
    return detail::state_of(L::op(detail::step_of(in))) > 0;
  }
  template <Shape In>
  struct Requires {
    static_assert(In.rank < 2 || L::accepts(detail::step_of(In)),
                  "lockstep::TimeDistributed: the layer does not accept the shape of a step");
    static_assert(In.rank >= 2, "lockstep::TimeDistributed: the input has no steps");
    static_assert(In.rank < 2 || !L::accepts(detail::step_of(In)) || !has_state(In),
                  "lockstep::TimeDistributed: the layer has state; it accepts layers without "
                  "moving statistics");
  };
  static constexpr bool accepts(Shape in) {
    return in.rank >= 2 && L::accepts(detail::step_of(in)) && !has_state(in) &&
           L::op(detail::step_of(in)).out().rank < 4;
  }
  static constexpr auto op(Shape in) {
    return TimeDistributedOp<decltype(L::op(in))>{in, L::op(detail::step_of(in))};
  }
  static constexpr auto parameters(Shape in) { return L::parameters(detail::step_of(in)); }

  static_assert(sizeof(detail::CheckTimeDistributed<L>) > 0);
};
}  // namespace lockstep
