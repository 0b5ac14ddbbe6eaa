// Properties of parsers of hostile text that the fuzzers check.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "unit/cluster/support.hpp"

namespace fuzz {

inline void require(bool promise) {
  if (!promise) std::abort();
}

/// The path of a file in memory with these bytes; the next call of the same `place` writes over it.
template <int place = 0>
const std::string& as_file(const void* data, std::size_t size) {
  static const int file = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  require(ftruncate(file, 0) == 0);
  require(pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  return path;
}

/// f() returns, or throws a ClusterError whose message is fit to print.
template <class F>
void refuses_or_returns(F&& f) {
  try {
    f();
  } catch (const lockstep::ClusterError& error) {
    require(cluster_test::fit_to_print(error.what()));
  }
}

/// f() returns, or throws a FileError about the file "fuzz" whose message is fit to print.
template <class F>
void refuses_file_or_returns(F&& f) {
  try {
    f();
  } catch (const lockstep::FileError& error) {
    require(cluster_test::fit_to_print(error.what()));
    require(std::string_view(error.what()).substr(0, 4) == "fuzz");
  }
}

}  // namespace fuzz
