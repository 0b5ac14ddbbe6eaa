#include "lockstep/core/numbers/digest64.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

namespace {

namespace ls = lockstep;

std::uint64_t digest(const std::vector<float>& values) {
  return ls::Digest64().add(std::as_bytes(std::span(values))).value();
}

}  // namespace

TEST_CASE("a flipped bit anywhere, and any two flipped signs, change the digest") {
  std::vector<float> values(37);  // the last block has 5 of 8 values
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.25f * static_cast<float>(i) - 3;
  std::set<std::uint64_t> found{digest(values)};
  std::size_t changes = 1;
  const auto bytes = std::as_writable_bytes(std::span(values));
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit, ++changes) {
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
    found.insert(digest(values));
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
  }
  for (std::size_t i = 0; i < values.size(); ++i)
    for (std::size_t k = 0; k < i; ++k, ++changes) {
      if (values[i] == 0 || values[k] == 0) values[12] = 1;
      values[i] = -values[i];
      values[k] = -values[k];
      found.insert(digest(values));
      values[i] = -values[i];
      values[k] = -values[k];
    }
  CHECK(found.size() >= changes);
}

TEST_CASE("the digest depends on the order and the sizes of the parts") {
  const std::vector<float> a{1, 2, 3}, b{4}, c{1, 2}, d{3, 4}, none;
  const auto of = [](const std::vector<float>& first, const std::vector<float>& second) {
    ls::Digest64 both;
    return both.add(std::as_bytes(std::span(first))).add(std::as_bytes(std::span(second))).value();
  };
  CHECK(std::set{of(a, b), of(b, a), of(c, d), of(none, a), of(a, none), digest(a), digest(none)}
            .size() == 7);
  CHECK(of(a, b) == of(a, b));
}
