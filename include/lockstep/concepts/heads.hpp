/// \file
/// Heads: the outputs of a network that have a loss of their own. Invariant: targets and weights of
/// all heads lie in one row per example, in the order of the network's outputs.
///
///     output row   | digit: 10 numbers | tags: 5 x 3 numbers |
///     target row   | digit: a label    | tags: 5 labels      |   labels as whole numbers
///     weight row   | digit             | tags: 5             |
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/concepts/loss.hpp"
#include "lockstep/core/fixed_string.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep {

/// The place of a head in the rows of an example.
struct HeadPlace {
  std::size_t output = 0;                               ///< among the network's outputs
  Shape shape, target_shape, weight_shape;              ///< of the output, a target, its weights
  std::size_t prediction = 0;                           ///< first element in the output row
  std::size_t target = 0, targets = 1;                  ///< first element, elements
  std::size_t weight = 0, weights = 1;                  ///< the same; a weight per position
  std::size_t row = 1, target_row = 1, weight_row = 1;  ///< elements of the whole rows
};

/// The op of the mean of a head's loss, which the kernel of all losses has added.
template <FixedString output_name>
struct HeadLossOp {};

namespace detail {

/// The concatenation of `Texts::parts`, an array of std::string_view.
template <class Texts>
struct Joined {
  static constexpr std::size_t size = [] {
    std::size_t all = 0;
    for (const std::string_view part : Texts::parts) all += part.size();
    return all;
  }();
  static constexpr std::array<char, size> text = [] {
    std::array<char, size> to{};
    std::size_t at = 0;
    for (const std::string_view part : Texts::parts)
      for (const char c : part) to[at++] = c;
    return to;
  }();
  static constexpr std::string_view value{text.data(), size};
};

/// The targets of a row as its loss and its metrics read them: labels of a head are whole numbers
/// in the target row.
template <class Target, std::size_t count, class T>
class HeadTargets {
  static constexpr bool are_labels = std::same_as<Target, std::int32_t>;

 public:
  explicit HeadTargets(const T* from) : from_(from) {
    if constexpr (are_labels)
      for (std::size_t k = 0; k < count; ++k) labels_[k] = static_cast<std::int32_t>(from[k]);
  }
  const target_as<Target, T>* data() const {
    if constexpr (are_labels)
      return labels_.data();
    else
      return from_;
  }

 private:
  const T* from_;
  std::array<std::int32_t, are_labels ? count : 0> labels_{};
};

/// The op of one of the `rows` of an example.
template <std::size_t rows, class Op>
Op op_of_row(const Op& op) {
  if constexpr (rows > 1)
    return op.row();
  else
    return op;
}

}  // namespace detail
}  // namespace lockstep
