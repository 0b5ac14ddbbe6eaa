/// \file
/// A product with the matrix of another layer, transposed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/concepts/layer.hpp"
#include "lockstep/core/fixed_string.hpp"
#include "lockstep/core/rng.hpp"

namespace lockstep {

/// y[.., r] = sum over c of x[.., c] * matrix[r, c], for each vector along the last axis.
struct TiedDenseOp {
  static constexpr std::string_view members = ".rows .columns .leading";
  int rows = 1, columns = 1;  ///< of the matrix
  Shape leading{};            ///< all axes of x but the last

  constexpr Shape out() const {
    Shape all = leading;
    all.extent[static_cast<std::size_t>(all.rank++)] = rows;
    return all;
  }
  /// Vectors per example.
  constexpr std::size_t vectors() const { return leading.size(); }
  constexpr std::size_t weights() const {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  }
  constexpr double flops() const { return 2.0 * rows * columns * static_cast<double>(vectors()); }
  /// The op of a single vector.
  constexpr TiedDenseOp of_vector() const { return {rows, columns, {}}; }
  bool operator==(const TiedDenseOp&) const = default;
};

/// Dense without a bias whose kernel is the transposed matrix of `Shared<Key, Layer>`, which stands
/// before it (Press and Wolf, 2017; Inan et al., 2017). Layer is an Embedding<V, D>, or another
/// layer whose weights are one matrix (V, D), such as Dense<D, ls::no_bias> with V inputs. Input
/// (.., D), output (.., V). It has no parameters of its own: its gradient is added to that of the
/// matrix.
/// \code
///   struct Words : ls::Sequential<ls::Input<32>, ls::Shared<"tokens", ls::Embedding<20'000, 64>>,
///                                 ls::Dense<64, ls::tanh>, ls::TiedDense<"tokens">> {};
/// \endcode
template <FixedString Key>
struct TiedDense {
  using is_composite = void;
  using children = List<>;
  using ops = List<TiedDenseOp>;
  static constexpr bool layers_ok = true;
  static constexpr std::uint64_t key_hash = hash_name(Key.view());
  static constexpr std::string_view label = "tied_dense";

  static constexpr bool accepts(const Shape& in, const Shape& matrix) {
    return in.rank >= 1 && matrix.rank == 2 && in.channels() == matrix[1];
  }
  static constexpr TiedDenseOp op(Shape in, const Shape& matrix) {
    in.extent[static_cast<std::size_t>(--in.rank)] = 1;
    return {matrix[0], matrix[1], in};
  }
  template <class Walk, class Value>
  static constexpr Value append(Walk& walk, Value v) {
    return walk.template tie<TiedDense>(v);
  }
};

}  // namespace lockstep
