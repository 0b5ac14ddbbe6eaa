// Hostile bytes as an IDX file, plain or gzip: rejected by a DataError, or read with the number of
// elements in its header, bounded by the size of the file. Compressed by gzip: the same result.
#include "lockstep/data/sources/idx.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fuzz/gzip.hpp"
#include "fuzz/promises.hpp"

using fuzz::require;

namespace {

std::optional<lockstep::IdxBytes> read(const std::string& path, int rank, std::size_t size) {
  try {
    auto idx = lockstep::read_idx(path, rank);
    std::size_t count = 1;
    for (const std::size_t extent : idx.extents) count *= extent;
    require(idx.extents.size() == static_cast<std::size_t>(rank));
    require(idx.bytes.size() == count && count <= size * 1032);
    return idx;
  } catch (const lockstep::DataError& error) {
    require(cluster_test::fit_to_print(error.what()));
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string& plain = fuzz::as_file<0>(data, size);
  const std::string bytes = fuzz::gzip(fuzz::deflated(data, size), data, size);
  const std::string& packed = fuzz::as_file<1>(bytes.data(), bytes.size());
  const bool is_gzip = size >= 2 && data[0] == 0x1f && data[1] == 0x8b;
  for (const int rank : {1, 3}) {
    const auto idx = read(plain, rank, size), same = read(packed, rank, bytes.size());
    if (is_gzip) continue;
    require(idx.has_value() == same.has_value());
    require(!idx || (idx->extents == same->extents && idx->bytes == same->bytes));
  }
  return 0;
}
