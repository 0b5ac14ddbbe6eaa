// Hostile bytes as an NPY file: refused by a DataError, or an array whose bytes fit its shape, and
// whose numbers can be asked for in every type.
#include "lockstep/data/sources/npy.hpp"

#include <cstddef>
#include <cstdint>

#include "fuzz/promises.hpp"

using fuzz::refuses_file_or_returns;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  refuses_file_or_returns([&] {
    const auto array = lockstep::detail::parse_npy({data, size}, "fuzz");
    std::size_t count = 1;
    for (const std::size_t extent : array.extents) count *= extent;
    require(array.size() == count && array.bytes.size() < size && array.dtype().size() == 3);
    refuses_file_or_returns([&] { require(array.values<std::uint8_t>().size() == count); });
    refuses_file_or_returns([&] { require(array.values<std::int32_t>().size() == count); });
    refuses_file_or_returns([&] { require(array.values<float>().size() == count); });
    require(array.kind != 'f' || array.values<double>().size() == count);
    refuses_file_or_returns([&] {
      const auto examples = lockstep::tensors<double, double>(array, array);
      require(examples.size() == array.extents[0]);
    });
  });
  return 0;
}
