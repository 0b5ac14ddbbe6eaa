/// \file
/// The cluster from a file. Invariant: never more than the longest legal
/// description is read.
#pragma once

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include "lockstep/cluster/json_document.hpp"
#include "lockstep/cluster/spec.hpp"
#include "lockstep/cluster/tf_config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// Reads a file that holds what stands at "cluster" in TF_CONFIG.
/// \code
///   {"chief": ["10.0.0.1:12345"], "worker": ["10.0.0.2:12345", "10.0.0.3:12345"]}
/// \endcode
/// \throws FileError if it cannot be read, ClusterError if it describes no cluster.
inline ClusterSpec read_cluster_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(detail::longest_json + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad() || (file.fail() && !file.eof()))
    throw FileError(path, {"cannot be read (", std::generic_category().message(errno),
                           "); give a file with the JSON of a cluster"});
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_cluster(text, path);
}

}  // namespace lockstep
