// Hostile bytes as an IDX file, plain or gzip: refused by a DataError, or as many elements as its
// extents say, no more than the file can fill.
#include "lockstep/data/idx.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "fuzz/promises.hpp"

using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  require(ftruncate(file, 0) == 0);
  require(pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  for (const int rank : {1, 3}) try {
      const auto idx = lockstep::read_idx(path, rank);
      std::size_t count = 1;
      for (const std::size_t extent : idx.extents) count *= extent;
      require(idx.extents.size() == static_cast<std::size_t>(rank));
      require(idx.bytes.size() == count && count <= size * 1032);
    } catch (const lockstep::DataError& error) {
      require(cluster_test::fit_to_print(error.what()));
    }
  return 0;
}
