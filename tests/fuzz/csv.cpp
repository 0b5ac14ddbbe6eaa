// Hostile text as a CSV file: refused by a DataError, or a table with one target for each example.
#include "lockstep/data/sources/csv.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/promises.hpp"

using fuzz::refuses_file_or_returns;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const lockstep::CsvOptions named{.missing = 0},
      bare{.delimiter = ';', .header = false, .target = "0"},
      words{.header = false, .target = "0", .missing = 0, .one_hot = {"1"}, .word_index = {"0"}};
  refuses_file_or_returns([&] {
    const auto table = lockstep::detail::parse_csv<double, std::int32_t>(text, "fuzz", named);
    require(table.targets().size() * table.shape().size() == table.features().size());
    require(table.features().size() < size);
  });
  refuses_file_or_returns([&] {
    const auto table = lockstep::detail::parse_csv<float, float>(text, "fuzz", bare);
    require(table.features().size() <= size && table.targets().size() >= 1);
  });
  refuses_file_or_returns([&] {
    const auto table = lockstep::detail::parse_csv<float, std::int32_t>(text, "fuzz", words);
    const std::size_t width = table.shape().size();
    const auto first = table.features().first(width);
    require(std::count(first.begin(), first.end(), 1.0f) >= 1);
    for (const std::int32_t word : table.targets())
      require(word >= 0 && static_cast<std::size_t>(word) < table.targets().size());
  });
  return 0;
}
