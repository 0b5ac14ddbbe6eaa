// Hostile bytes as a gzip file: refused by a DataError, or no more bytes than deflate can pack into
// it. The same bytes as deflate data between a header and the trailer that belongs to them: read as
// zlib inflates them, or refused unless they happen to be whole members and zero bytes.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "fuzz/gzip.hpp"
#include "fuzz/promises.hpp"
#include "lockstep/files/byte_reader.hpp"

using fuzz::require;

namespace {

std::optional<std::string> read(const std::string& path) {
  try {
    const auto bytes = lockstep::detail::read_whole(path);
    return std::string(bytes.begin(), bytes.end());
  } catch (const lockstep::DataError& error) {
    require(cluster_test::fit_to_print(error.what()));
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = read(fuzz::as_file(data, size));
  require(!bytes || bytes->size() <= size * 1032);
  const std::string given(reinterpret_cast<const char*>(data), size);
  if (given.starts_with("\x1f\x8b")) require(bytes == fuzz::gunzipped(given));

  const auto content = fuzz::inflated(data, size);
  const std::string inside = content.value_or(std::string());
  const std::string file =
      fuzz::gzip({reinterpret_cast<const char*>(data), size}, inside.data(), inside.size());
  require(read(fuzz::as_file(file.data(), file.size())) ==
          (content ? content : fuzz::gunzipped(file)));
  return 0;
}
