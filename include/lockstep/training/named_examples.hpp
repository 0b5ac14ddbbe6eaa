/// \file
/// Fields with names as the rows that a model reads. Invariant: features are in the order of the
/// network's inputs, targets and weights in that of its outputs, whatever the order of the fields.
///
///     | image | words |  ->  | digit | even |
///
/// Not part of <lockstep/lockstep.hpp>; include <lockstep/heads.hpp>.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/heads.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/operations/sample_weights.hpp"
#include "lockstep/data/sources/named_fields.hpp"
#include "lockstep/data/sources/tensors.hpp"
#include "lockstep/training/checks/heads.hpp"
#include "lockstep/training/model.hpp"

namespace lockstep {

/// Rows of examples in memory: arguments of `train_on_batch`, `predict` and others.
template <class T, class Target>
struct PackedExamples {
  std::vector<T> x;       ///< (examples, inputs)
  std::vector<Target> y;  ///< (examples, targets); empty without targets
  std::vector<T> w;       ///< (examples, weights); empty without weights
};

namespace detail {

/// The parts of a network's input row.
template <class Net>
std::vector<FilledPart> input_parts(const NamedFields& fields) {
  std::vector<FilledPart> parts;
  if constexpr (requires { Net::inputs.size(); })
    for (const RowPart& port : Net::inputs)
      parts.push_back({port.name, port.shape, port.shape.size(), port.offset});
  if (!parts.empty()) return parts;
  // One input without a name, which the only feature fills.
  for (const NamedField& field : fields.all())
    if (field.role == FieldRole::feature && parts.empty())
      parts.push_back({field.name, Net::input_shape, Net::input_shape.size(), 0});
  return parts;
}
/// The parts of the target row of loss L, or of its weight row.
template <class Net, class L>
std::vector<FilledPart> output_parts(const NamedFields& fields, FieldRole role) {
  const bool is_target = role == FieldRole::target;
  std::vector<FilledPart> parts;
  if constexpr (requires { L::places.size(); }) {
    for (const HeadPlace& place : L::places)
      parts.push_back(
          {Net::outputs[place.output].name, is_target ? place.target_shape : place.weight_shape,
           is_target ? place.targets : place.weights, is_target ? place.target : place.weight});
  } else {
    constexpr Shape target = L::target_shape(Net::output_shape);
    const Shape shape = is_target ? target : weighed_positions<L>(Net::output_shape);
    constexpr auto outputs = named_outputs<Net>();
    for (const RowPart& port : outputs)
      if (outputs.size() == 1) parts.push_back({port.name, shape, shape.size(), 0});
    for (const NamedField& field : fields.all())
      if (field.role == role && parts.empty())
        parts.push_back({field.name, shape, shape.size(), 0});
  }
  return parts;
}

template <class T, class Net>
std::vector<T> packed_inputs(const NamedFields& fields) {
  return packed_rows<T>(fields, FieldRole::feature, input_parts<Net>(fields),
                        Net::input_shape.size(), "input");
}
template <class T, class Net, class L>
std::vector<T> packed_targets(const NamedFields& fields) {
  return packed_rows<T>(fields, FieldRole::target, output_parts<Net, L>(fields, FieldRole::target),
                        L::target_shape(Net::output_shape).size(), "output");
}
template <class T, class Net, class L>
std::vector<T> packed_weights(const NamedFields& fields) {
  return packed_rows<T>(fields, FieldRole::weight, output_parts<Net, L>(fields, FieldRole::weight),
                        weighed_positions<L>(Net::output_shape).size(), "output");
}
/// The features, as `Element`, and the targets.
template <class Element, class Net, class S, class L, class O, class... Ms>
auto examples_of_fields(const Model<Net, S, L, O, Ms...>&, const NamedFields& fields) {
  using M = Model<Net, S, L, O, Ms...>;
  using TheLoss = typename ModelParts<Net, L, Ms...>::Loss;
  using E = std::conditional_t<std::is_void_v<Element>, typename M::T, Element>;
  auto inputs = packed_inputs<E, Net>(fields);
  return tensors(std::move(inputs), Net::input_shape,
                 packed_targets<typename M::Target, Net, TheLoss>(fields),
                 TheLoss::target_shape(Net::output_shape));
}

}  // namespace detail

/// The rows of `fields` for a model. Targets and weights may be missing, for `predict`.
/// \throws UsageError, which names the field, if it is missing, is not one of the network, or has
/// another size; if a label is not a whole number, or float would round a whole number.
/// \code
///   const auto batch = ls::pack(model, fields);
///   model.train_on_batch(batch.x, batch.y);
/// \endcode
template <class Net, class S, class L, class O, class... Ms>
auto pack(const Model<Net, S, L, O, Ms...>&, const NamedFields& fields) {
  using M = Model<Net, S, L, O, Ms...>;
  using TheLoss = typename detail::ModelParts<Net, L, Ms...>::Loss;
  PackedExamples<typename M::T, typename M::Target> result;
  result.x = detail::packed_inputs<typename M::T, Net>(fields);
  if (fields.has(FieldRole::target))
    result.y = detail::packed_targets<typename M::Target, Net, TheLoss>(fields);
  if (fields.has(FieldRole::weight))
    result.w = detail::packed_weights<typename M::T, Net, TheLoss>(fields);
  return result;
}

/// A pipeline of the features and targets of `fields` for a model: rows with the inputs one after
/// the other, and the targets likewise. `Element`: type of the inputs in memory, by default that of
/// the device; std::uint8_t keeps images in a quarter of the memory of float. \throws UsageError as
/// `pack`, or if there are weights, which `weighted_examples` reads.
/// \code
///   auto train = ls::examples(model, fields) | ls::shuffle(10'000) | ls::batch(64);
/// \endcode
template <class Element = void, class Net, class S, class L, class O, class... Ms>
auto examples(const Model<Net, S, L, O, Ms...>& model, const NamedFields& fields) {
  if (fields.has(FieldRole::weight))
    throw UsageError("data: the fields have weights; write ls::weighted_examples(model, fields)");
  return detail::examples_of_fields<Element>(model, fields);
}
/// The same with the sample weights of `fields`; outputs without such have weight 1.
template <class Element = void, class Net, class S, class L, class O, class... Ms>
auto weighted_examples(const Model<Net, S, L, O, Ms...>& model, const NamedFields& fields) {
  using TheLoss = typename detail::ModelParts<Net, L, Ms...>::Loss;
  constexpr Shape each = detail::weighed_positions<TheLoss>(Net::output_shape);
  auto weights =
      detail::packed_weights<typename Model<Net, S, L, O, Ms...>::T, Net, TheLoss>(fields);
  return detail::examples_of_fields<Element>(model, fields) |
         sample_weights(std::move(weights), each);
}

}  // namespace lockstep
