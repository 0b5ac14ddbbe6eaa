/// \file
/// The fields of a model's batches: what its network, loss and metrics read. Invariant: the fields
/// of every batch of a model, from a pipeline or from memory, are at these positions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "lockstep/concepts/fields.hpp"
#include "lockstep/concepts/loaded_batch.hpp"
#include "lockstep/concepts/loss.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep::detail {

/// The batches of network Net with loss L.
template <class Net, class L>
struct BatchLayout {
  static constexpr std::size_t target = 1, weight = 2;  ///< positions; the input is first
  static constexpr Shape target_shape = L::target_shape(Net::output_shape);
  /// One weight for each position that the loss has.
  static constexpr Shape weight_shape = weighed_positions<L>(Net::output_shape);
  static constexpr std::array<Field, 3> fields{
      Field{"x", Net::input_shape, FieldType::real, FieldRole::feature},
      Field{"y", target_shape, field_type_of<typename L::target_type>, FieldRole::target},
      Field{"w", weight_shape, FieldType::real, FieldRole::weight}};
  /// The outputs that have a loss, and the range of weights of one of them in an example's.
  static constexpr std::size_t outputs = [] {
    if constexpr (requires { L::places; })
      return L::places.size();
    else
      return std::size_t{1};
  }();
  static constexpr Slice weights_of([[maybe_unused]] std::size_t output) {
    if constexpr (requires { L::places; })
      return {L::places[output].weight, L::places[output].weights};
    else
      return {0, weight_shape.size()};
  }

  /// A batch in the caller's memory; absent fields are null.
  template <class T>
  static LoadedBatch in_memory(const BatchSlice& slice, const T* x,
                               const target_as<typename L::target_type, T>* y = nullptr,
                               const T* w = nullptr) {
    return {.field = {x, y, w}, .slice = slice};
  }
};

/// `batch`, whose values are in host memory of a device that computes in T, from its rows `slice`
/// on.
template <class T>
LoadedBatch rows_of(const LoadedBatch& batch, std::span<const Field> fields,
                    const BatchSlice& slice) {
  LoadedBatch part = batch;
  part.slice = slice;
  const std::size_t before = slice.first - batch.slice.first;
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (batch.field[i] != nullptr)
      part.field[i] = batch.rows<std::byte>(i) +
                      before * fields[i].shape.size() * bytes_of_element<T>(fields[i].type);
  return part;
}

}  // namespace lockstep::detail
