// Hostile bytes as an NPZ file: refused by a DataError, when it is opened or when an array is asked
// for, or arrays that fit their shapes.
#include "lockstep/data/sources/npz.hpp"

#include <cstddef>
#include <cstdint>

#include "fuzz/promises.hpp"

using fuzz::refuses_file_or_returns;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  refuses_file_or_returns([&] {
    const lockstep::NpzFile file("fuzz", {data, data + size});
    for (const auto& name : file.names())
      refuses_file_or_returns([&] {
        const auto array = file.array(name);
        require(array.bytes.size() <= size * 1032);
        require(array.size() * array.item_size == array.bytes.size());
      });
    refuses_file_or_returns([&] { file.array("a name that is not there"); });
  });
  return 0;
}
