/// \file
/// A model's layers as text, so that the processes of a job can compare their models. Invariants:
/// models that compute differently give different text if their ops are plain aggregates of values;
/// equal models give equal text with any compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/training/export/op_values.hpp"
#include "lockstep/training/parameters.hpp"
#include "lockstep/training/weights_file.hpp"

namespace lockstep::detail {

/// Marks parameters of ls::Frozen.
inline constexpr std::string_view frozen_mark = " frozen";

/// For each layer: its name, its inputs if they are not the previous layer's output, its op, the
/// shape of its output, its parameters. A member of an op that equals the shape of the layer's
/// input is left out: the layer before shows it.
/// \code
///   "conv2d (filters 32, ...) to (26, 26, 32), kernel (3, 3, 1, 32), bias (32); re_lu to ..."
/// \endcode
LOCKSTEP_COLD_DECL std::string describe_layers(const DescribedGraph& graph);
template <class Net>
std::string describe_layers() {
  return describe_layers(described_graph<Net>());
}

/// The members of a loss, metric or optimizer: ", options (0.9, yes)"; empty if it has none.
LOCKSTEP_COLD_DECL std::string describe_members(const OpValue& value);

/// The first value and the checksum of each parameter. Detects different initializers, and math
/// libraries that round differently.
LOCKSTEP_COLD_DECL std::string describe_values(std::span<const NamedParameter> parameters,
                                               const ValueBytes<const std::byte>& values);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checks/describe_layers.ipp"
#endif
