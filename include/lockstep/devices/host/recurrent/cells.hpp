/// \file
/// Shared by the recurrent kernels of all devices over host memory: activations, and the masks of
/// dropout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/layers/recurrent/recurrent_options.hpp"

namespace lockstep::detail {

/// The activations of a recurrent op, for one type of numbers.
template <template <class> class Form, class A, class R = A>
struct CellActivations {
  Form<A> output;
  Form<R> gate;
};
template <template <class> class Form, class O>
auto cell_activations(const O& op) {
  using A = std::remove_cvref_t<decltype(op.activation)>;
  if constexpr (requires { op.recurrent_activation; }) {
    using R = std::remove_cvref_t<decltype(op.recurrent_activation)>;
    return CellActivations<Form, A, R>{{op.activation}, {op.recurrent_activation}};
  } else {
    return CellActivations<Form, A>{{op.activation}, {op.activation}};
  }
}

/// The masks of a recurrent layer of `gates` gates in one step of training. Invariant: whether an
/// element of an example's masks is kept follows the rule of Dropout (dropout.hpp), as if they were
/// one row:
///
///     recurrent_dropout = 0     | features |
///     recurrent_dropout > 0     | features for gate 0 | 1 | ... | units for gate 0 | 1 | ... |
class RecurrentMasks {
 public:
  RecurrentMasks(const RecurrentLayer& layer, int gates, bool training)
      : by_gate_(layer.recurrent_dropout > 0),
        on_(training && (layer.dropout > 0 || layer.recurrent_dropout > 0)),
        dropout_(layer.dropout),
        recurrent_dropout_(layer.recurrent_dropout),
        input_size_((by_gate_ ? static_cast<std::size_t>(gates) : 1) * layer.features()),
        state_size_(by_gate_ ? static_cast<std::size_t>(gates) * layer.width() : 0) {}

  /// Whether there are any in this step.
  explicit operator bool() const { return on_; }
  /// Whether each gate has masks of its own.
  bool by_gate() const { return by_gate_; }
  /// Elements of an example's masks: those of the input, then those of the state.
  std::size_t size() const { return input_size_ + state_size_; }
  /// Where the mask of the state begins, or if `by_gate` those of all gates.
  std::size_t state() const { return input_size_; }

  /// Writes an example's masks: 0, or 1 / (1 - rate).
  template <class D, class T>
  void draw(const Io<D>& io, std::size_t example, T* to) const {
    const std::uint64_t key = mix(mix(io.step.seed, io.key), io.step.pass),
                        ordinal = io.step.first_ordinal + example;
    Philox words(key, ordinal);
    fill(words, dropout_, to, input_size_);
    fill(words, recurrent_dropout_, to + input_size_, state_size_);
  }

 private:
  template <class T>
  static void fill(Philox& words, float rate, T* to, std::size_t size) {
    const double threshold = static_cast<double>(rate) * 0x1p32;
    const T kept = T(1) / (T(1) - T(rate));
    for (std::size_t i = 0; i < size; ++i)
      to[i] = static_cast<double>(words()) >= threshold ? kept : T(0);
  }

  bool by_gate_, on_;
  float dropout_, recurrent_dropout_;
  std::size_t input_size_, state_size_;
};

}  // namespace lockstep::detail
