/// \file
/// The cluster from a file. Invariant: never more than the longest legal
/// description is read.
#pragma once

#include <string>

#include "lockstep/cluster/json_document.hpp"
#include "lockstep/cluster/spec.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// Reads a file that holds what stands at "cluster" in TF_CONFIG.
/// \code
///   {"chief": ["10.0.0.1:12345"], "worker": ["10.0.0.2:12345", "10.0.0.3:12345"]}
/// \endcode
/// \throws FileError if it cannot be read, ClusterError if it describes no cluster.
LOCKSTEP_COLD_DECL ClusterSpec read_cluster_file(const std::string& path);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/cluster_file.ipp"
#endif
