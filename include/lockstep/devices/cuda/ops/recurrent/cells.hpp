/// \file
/// The formulas of one unit of LSTM, GRU and SimpleRNN as text, those of layers/recurrent/*.hpp.
/// Invariant: the activations are in the namespaces `output` and `gate`, with the texts of
/// pointwise.hpp.
///
/// CudaCell<Op> defines `void cell_forward(float* z, float* state)` and `void cell_backward(float*
/// z, const float* before, const float* after, float* d)`; a GRU also `reset` and `reset_backward`.
#pragma once

#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/devices/cuda/program.hpp"
#include "lockstep/devices/cuda/support/scalar_text.hpp"
#include "lockstep/layers/recurrent/gru.hpp"
#include "lockstep/layers/recurrent/lstm.hpp"
#include "lockstep/layers/recurrent/simple_rnn.hpp"

namespace lockstep::detail::cuda {

/// The functions of an op: CudaCell<Op>::text.
template <class O>
struct CudaCell;

template <class A>
struct CudaCell<SimpleRNNOp<A>> {
  static constexpr char text[] = R"cuda(
__device__ inline void cell_forward(float* z, float* state) { state[0] = output_of(z[0]); }
__device__ inline void cell_backward(float* z, const float*, const float*, float* d) {
  z[0] = d[0] * output::derivative(z[0]);
  d[0] = 0;
}
)cuda";
};

template <class A, class R>
struct CudaCell<LSTMOp<A, R>> {
  static constexpr char text[] = R"cuda(
__device__ inline void cell_forward(float* z, float* state) {
  const float i = gate_of(z[0]), forget = gate_of(z[1]), candidate = output_of(z[2]);
  const float o = gate_of(z[3]);
  state[1] = forget * state[1] + i * candidate;
  state[0] = o * output::value(state[1]);
}
__device__ inline void cell_backward(float* z, const float* before, const float* after, float* d) {
  const float i = kept_gate(z[0]), forget = kept_gate(z[1]), candidate = kept_output(z[2]);
  const float o = kept_gate(z[3]), a = output::value(after[1]);
  const float dc = d[1] + d[0] * o * output::derivative(OUTPUT_FROM_Y ? a : after[1]);
  z[3] = d[0] * a * gate::derivative(z[3]);
  z[0] = dc * candidate * gate::derivative(z[0]);
  z[1] = dc * before[1] * gate::derivative(z[1]);
  z[2] = dc * i * output::derivative(z[2]);
  d[0] = 0;
  d[1] = dc * forget;
}
)cuda";
};

template <class A, class R>
struct CudaCell<GRUOp<true, A, R>> {
  static constexpr char text[] = R"cuda(
__device__ inline void cell_forward(float* z, float* state) {
  const float update = gate_of(z[0]), r = gate_of(z[1]);
  z[2] += r * z[3];
  const float candidate = output_of(z[2]);
  state[0] = update * state[0] + (1 - update) * candidate;
}
__device__ inline void cell_backward(float* z, const float* before, const float*, float* d) {
  const float update = kept_gate(z[0]), r = kept_gate(z[1]), candidate = kept_output(z[2]);
  z[2] = d[0] * (1 - update) * output::derivative(z[2]);
  z[0] = d[0] * (before[0] - candidate) * gate::derivative(z[0]);
  d[0] *= update;
  z[1] = z[2] * z[3] * gate::derivative(z[1]);
  z[3] = z[2] * r;
}
)cuda";
};

/// z[0] and z[1] are what `reset` kept; cell_backward leaves z[1] to reset_backward.
template <class A, class R>
struct CudaCell<GRUOp<false, A, R>> {
  static constexpr char text[] = R"cuda(
__device__ inline void reset(float* z, float h, float factor) {
  gate_of(z[0]);
  z[3] = gate_of(z[1]) * h * factor;
}
__device__ inline void cell_forward(float* z, float* state) {
  const float update = kept_gate(z[0]), candidate = output_of(z[2]);
  state[0] = update * state[0] + (1 - update) * candidate;
}
__device__ inline void cell_backward(float* z, const float* before, const float*, float* d) {
  const float update = kept_gate(z[0]), candidate = kept_output(z[2]);
  z[2] = d[0] * (1 - update) * output::derivative(z[2]);
  z[0] = d[0] * (before[0] - candidate) * gate::derivative(z[0]);
  d[0] *= update;
}
__device__ inline void reset_backward(float* z, float h, float factor, float dq, float* d) {
  const float r = kept_gate(z[1]);
  *d += dq * factor * r;
  z[1] = dq * factor * h * gate::derivative(z[1]);
}
)cuda";
};

/// Activations between formulas: `output_of(z)` returns y and leaves in z what the derivative reads,
/// `kept_output(z)` returns y from that.
inline constexpr char output_text[] = R"cuda(
__device__ inline float output_of(float& z) {
  const float y = output::value(z);
  if (OUTPUT_FROM_Y) z = y;
  return y;
}
__device__ inline float kept_output(float z) { return OUTPUT_FROM_Y ? z : output::value(z); }
)cuda";
inline constexpr char gate_text[] = R"cuda(
__device__ inline float gate_of(float& z) {
  const float y = gate::value(z);
  if (GATE_FROM_Y) z = y;
  return y;
}
__device__ inline float kept_gate(float z) { return GATE_FROM_Y ? z : gate::value(z); }
)cuda";

template <class O>
using OutputOpOf = std::remove_cvref_t<decltype(std::declval<const O&>().activation)>;
template <class O>
concept HasGateOp = requires(const O& op) { op.recurrent_activation; };

/// Whether all activations of a recurrent op have a text.
template <class O>
constexpr bool has_cell_text() {
  if constexpr (!HasCudaText<OutputOpOf<O>>)
    return false;
  else if constexpr (HasGateOp<O>)
    return HasCudaText<
        std::remove_cvref_t<decltype(std::declval<const O&>().recurrent_activation)>>;
  else
    return true;
}

template <class O>
constexpr auto cell_functions() {
  if constexpr (HasGateOp<O>) {
    using Gate = std::remove_cvref_t<decltype(std::declval<const O&>().recurrent_activation)>;
    return JoinedText("namespace output {\n", CudaText<OutputOpOf<O>>::functions,
                      "}\nnamespace gate {\n", CudaText<Gate>::functions, "}\n", output_text,
                      gate_text, CudaCell<O>::text);
  } else {
    return JoinedText("namespace output {\n", CudaText<OutputOpOf<O>>::functions, "}\n",
                      output_text, CudaCell<O>::text);
  }
}
/// The functions that the kernels of an op call.
template <class O>
inline constexpr auto cell_text = cell_functions<O>();

/// Appends the numbers of an op's activations. \throws UsageError if both have a number of the same
/// name, with two values.
template <class O>
void add_cell_defines(const O& op, std::vector<Define>& all) {
  const auto add = [&](const auto& activation) {
    using A = std::remove_cvref_t<decltype(activation)>;
    for (const Define& define : CudaText<A>::defines(activation)) {
      for (const Define& known : all)
        if (known.name() == define.name() && !(known == define))
          throw UsageError(
              "cuda: the activation and the recurrent activation of a recurrent layer differ in {}, "
              "which has one value per kernel; give both the same, or use other activations",
              define.name());
      all.push_back(define);
    }
  };
  all.emplace_back("OUTPUT_FROM_Y", OutputOpOf<O>::from_y);
  add(op.activation);
  if constexpr (HasGateOp<O>) {
    all.emplace_back("GATE_FROM_Y", std::remove_cvref_t<decltype(op.recurrent_activation)>::from_y);
    add(op.recurrent_activation);
  }
}

}  // namespace lockstep::detail::cuda
