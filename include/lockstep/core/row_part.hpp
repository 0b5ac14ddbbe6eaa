/// \file
/// The named inputs and outputs of a network.
#pragma once

#include <cstddef>
#include <string_view>

#include "lockstep/core/shape.hpp"

namespace lockstep {

/// An input or output of a network: a part of the row of one example. A network with several inputs
/// reads one row, in which they follow each other; one with several outputs writes such a row.
/// \code
///   struct TwoTowers : ls::Graph<ls::In<"image", 28, 28, 1>, ls::In<"words", 64>, ...> {};
///   TwoTowers::inputs   {"image", (28, 28, 1), 0}, {"words", (64), 784}
///   a row of the batch  [image: 784 numbers | words: 64 numbers]
/// \endcode
struct RowPart {
  std::string_view name;
  Shape shape;             ///< of one example
  std::size_t offset = 0;  ///< elements from the start of the row
};

}  // namespace lockstep
