#pragma once

#include "lockstep/cluster/description/cluster_file.hpp"

#include <cerrno>
#include <fstream>
#include <system_error>

#include "lockstep/cluster/description/tf_config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

ClusterSpec read_cluster_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(detail::JsonLimits{}.bytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad() || (file.fail() && !file.eof()))
    throw FileError(path, "cannot be read ({}); give a file with the JSON of a cluster",
                    std::generic_category().message(errno));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_cluster(text, path);
}

}  // namespace lockstep
