/// \file
/// Compile-time requirements on the arguments of `ls::TextGenerator`, one error message each.
#pragma once

#include <type_traits>

#include "lockstep/inference/predictor_checks.hpp"
#include "lockstep/inference/step_network.hpp"

namespace lockstep::detail {

/// The first requirement that a text generator does not meet, in the order in which they are checked.
enum class GeneratorFault {
  none,
  network,
  layers,  ///< the network has already printed its error
  shapes,
  mixes_steps,
  custom_op,
  probabilities,
  predictor
};

/// List<Op> of the first op type that reads other steps; List<> if there is none.
template <class Net>
using MixingOp =
    decltype(first_mixing<Net::graph>(typename std::remove_cvref_t<decltype(Net::graph)>::ops{}));

/// Whether the network ends with Softmax.
template <class Net>
constexpr bool ends_with_softmax() {
  constexpr auto last = static_cast<std::size_t>(Net::graph.output) - 1;
  return Net::graph.node[last].type ==
         index_in<SoftmaxOp>(typename std::remove_cvref_t<decltype(Net::graph)>::ops{});
}

template <class Net, class D>
constexpr GeneratorFault generator_fault_of() {
  if constexpr (!Network<Net>)
    return GeneratorFault::network;
  else if constexpr (!Net::valid)
    return GeneratorFault::layers;
  else if constexpr (Net::input_shape.rank != 1 || Net::output_shape.rank != 2 ||
                     Net::output_shape[0] != Net::input_shape[0])
    return GeneratorFault::shapes;
  else if constexpr (!std::is_same_v<MixingOp<Net>, List<>>)
    return GeneratorFault::mixes_steps;
  else if constexpr (!StepNetwork<Net>::valid)
    return GeneratorFault::custom_op;
  else if constexpr (ends_with_softmax<Net>())
    return GeneratorFault::probabilities;
  else if constexpr (predictor_fault_of<StepNetwork<Net>, D>() != PredictorFault::none)
    return GeneratorFault::predictor;
  else
    return GeneratorFault::none;
}

/// The error message of a fault.
template <GeneratorFault, class Net, class D>
struct GeneratorVerdict {};

template <class Net, class D>
struct GeneratorVerdict<GeneratorFault::network, Net, D> {
  static_assert(Network<Net>,
                "lockstep::TextGenerator: the first argument is not a network; derive it from "
                "Sequential<Input<steps>, layers...>");
};
template <class Net, class D>
struct GeneratorVerdict<GeneratorFault::shapes, Net, D> {
  static_assert(always_false<Net>,
                "lockstep::TextGenerator: the network does not map (steps) to (steps, vocabulary); "
                "begin with Input<steps>, Embedding, and end with Dense<vocabulary>");
};
/// Op, as an argument, names the layer.
template <class Op>
struct MixingVerdict {
  static_assert(always_false<Op>,
                "lockstep::TextGenerator: 'Op' computes a step from others; use layers that act on "
                "each step alone, and attention with ls::causal, or give a custom op 'one_step()'");
};
template <class Op>
  requires is_any_of<Op, MultiHeadAttentionOp, GroupedQueryAttentionOp>
struct MixingVerdict<Op> {
  static_assert(always_false<Op>,
                "lockstep::TextGenerator: an attention layer reads later steps, another value or a "
                "mask; add ls::causal, and give it one operand without a mask");
};
template <class Ops>
struct FirstMixingVerdict;
template <class Op>
struct FirstMixingVerdict<List<Op>> : MixingVerdict<Op> {};
template <class Net, class D>
struct GeneratorVerdict<GeneratorFault::mixes_steps, Net, D> : FirstMixingVerdict<MixingOp<Net>> {};
template <class Net, class D>
struct GeneratorVerdict<GeneratorFault::custom_op, Net, D> {
  static_assert(
      always_false<Net>,
      "lockstep::TextGenerator: 'one_step()' of an op returns an op of another shape; its "
      "result must have 1 as first extent, and otherwise the shape of the layer's");
};
template <class Net, class D>
struct GeneratorVerdict<GeneratorFault::probabilities, Net, D> {
  static_assert(always_false<Net>,
                "lockstep::TextGenerator: the network ends with Softmax, so its outputs are not "
                "logits; leave it out, and train with a loss of '.from_logits = true'");
};
template <class Net, class D>
struct GeneratorVerdict<GeneratorFault::predictor, Net, D>
    : PredictorVerdict<predictor_fault_of<StepNetwork<Net>, D>(), StepNetwork<Net>, D> {};

}  // namespace lockstep::detail
