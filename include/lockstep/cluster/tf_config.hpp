/// \file
/// TensorFlow's TF_CONFIG. Invariants: what leaves is a cluster whose every entry was checked; a
/// message names the entry by its path in the JSON; what is unknown is told, not dropped.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/json_document.hpp"
#include "lockstep/cluster/spec.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// The parts of TF_CONFIG that were there.
struct TfConfig {
  std::optional<ClusterSpec> cluster{};
  std::optional<Task> task{};
  std::vector<std::string> notes{};  ///< keys that mean nothing here, a sentence each
};

namespace detail {}  // namespace detail

/// Reads the text of TF_CONFIG, of which either part may be missing. Whether the task is in the
/// cluster is asked with `ClusterSpec::check`.
/// \code
///   auto config = lockstep::parse_tf_config(R"({"cluster":{"worker":["10.0.0.1:12345"]},
///                                             "task":{"type":"worker","index":0}})");
/// \endcode
/// \throws ClusterError that names what is wrong by its path, and what to write instead.
LOCKSTEP_COLD_DECL TfConfig parse_tf_config(std::string_view text,
                                            std::string_view name = "TF_CONFIG");

/// Reads a cluster alone, in the grammar of TF_CONFIG's "cluster". `name` begins the messages.
/// \throws ClusterError
LOCKSTEP_COLD_DECL ClusterSpec parse_cluster(std::string_view text, std::string_view name);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/tf_config.ipp"
#endif
