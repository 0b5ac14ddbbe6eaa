/// \file
/// The cluster description from a file. Invariant: at most 1 MiB is read, the longest description
/// that is accepted.
#pragma once

#include <string>

#include "lockstep/cluster/description/spec.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/files/json_document.hpp"

namespace lockstep {

/// Reads a file that holds the value of "cluster" in TF_CONFIG.
/// \code
///   {"chief": ["10.0.0.1:12345"], "worker": ["10.0.0.2:12345", "10.0.0.3:12345"]}
/// \endcode
/// \throws FileError if the file cannot be read, ClusterError if it does not describe a cluster.
LOCKSTEP_COLD_DECL ClusterSpec read_cluster_file(const std::string& path);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/description/cluster_file.ipp"
#endif
