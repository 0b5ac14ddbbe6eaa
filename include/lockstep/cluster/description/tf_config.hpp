/// \file
/// TensorFlow's TF_CONFIG. Invariants: the result is a cluster whose entries are all valid;
/// messages name an entry by its path in the JSON; unknown keys, and jobs that take no part in
/// training, are reported, not dropped silently.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/description/spec.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/files/json_document.hpp"

namespace lockstep {

/// The parts of TF_CONFIG that are present.
struct TfConfig {
  std::optional<ClusterSpec> cluster{};
  std::optional<Task> task{};
  /// Jobs that take no part in training; the evaluator's hosts are also in `cluster`.
  std::vector<std::string> other_jobs{};
  std::vector<std::string> notes{};  ///< unknown keys and those jobs, one sentence each
};

/// Parses TF_CONFIG, either part of which may be missing. `ClusterSpec::check` verifies that the
/// task is in the cluster. Unless the strategy `has_servers`, the job ps takes no part in training.
/// \code
///   auto config = lockstep::parse_tf_config(R"({"cluster":{"worker":["10.0.0.1:12345"]},
///                                             "task":{"type":"worker","index":0}})");
/// \endcode
/// \throws ClusterError that names the entry by its path, with a correction.
LOCKSTEP_COLD_DECL TfConfig parse_tf_config(std::string_view text,
                                            std::string_view name = "TF_CONFIG",
                                            bool has_servers = false);

/// Parses a cluster alone, in the syntax of TF_CONFIG's "cluster". Unlike TF_CONFIG, which other
/// programs may share, it must not hold unknown jobs. `name` begins the messages. \throws
/// ClusterError
LOCKSTEP_COLD_DECL ClusterSpec parse_cluster(std::string_view text, std::string_view name);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/description/tf_config.ipp"
#endif
