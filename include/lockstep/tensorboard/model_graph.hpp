/// \file
/// The graph of a model for TensorBoard. Invariant: the nodes of a layer, and only these, are in a
/// scope with its name.
#pragma once

#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/tensorboard/graph_node.hpp"
#include "lockstep/training/export/architecture.hpp"

namespace lockstep {

/// A node for the input, one for each layer, and one for each parameter:
///
///     input --> conv2d/Conv2D --> max_pooling2d/MaxPooling2D --> ...
///                 ^        ^
///     conv2d/kernel        conv2d/bias
///
/// The options of a layer are attributes of its node.
/// \code
///   writer.add_graph(ls::graph_of(model.architecture()));
/// \endcode
LOCKSTEP_COLD_DECL std::vector<GraphNode> graph_of(const Architecture& model);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/tensorboard/model_graph.ipp"
#endif
