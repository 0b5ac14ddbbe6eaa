/// \file
/// A node of the graph that TensorBoard shows.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/shape.hpp"

namespace lockstep {

/// A node. TensorBoard draws names that begin with the same "scope/" as one box.
/// \code
///   writer.add_graph({{"input", "Input", {}, ls::shape(28, 28, 1)},
///                     {"dense/kernel", "Parameter", {}, {}},
///                     {"dense/Dense", "Dense", {"input", "dense/kernel"}, ls::shape(10)}});
/// \endcode
struct GraphNode {
  std::string name;                 ///< unique: "conv2d/Conv2D"
  std::string op;                   ///< class: "Conv2D"
  std::vector<std::string> inputs;  ///< names of other nodes
  std::optional<Shape> output{};    ///< shape of the output for one example
  /// Shown in the node's panel: {"filters", "32"}.
  std::vector<std::pair<std::string, std::string>> attributes{};
};

}  // namespace lockstep
