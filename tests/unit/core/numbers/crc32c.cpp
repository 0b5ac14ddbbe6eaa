#include "lockstep/core/numbers/crc32c.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

using namespace lockstep::detail;

namespace {

using Bytes = std::vector<unsigned char>;

/// Bit by bit, as specified in RFC 3720.
std::uint32_t reference(const unsigned char* p, std::size_t n) {
  std::uint32_t crc = ~0u;
  for (; n > 0; ++p, --n) {
    crc ^= *p;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

Bytes random_bytes(std::size_t n) {
  Bytes bytes(n);
  std::uint32_t state = 1;
  for (auto& byte : bytes) byte = static_cast<unsigned char>((state = state * 1664525 + 1) >> 24);
  return bytes;
}

}  // namespace

TEST_CASE("CRC32C matches the examples of RFC 3720") {
  Bytes ascending(32);
  std::iota(ascending.begin(), ascending.end(), static_cast<unsigned char>(0));
  const Bytes descending(ascending.rbegin(), ascending.rend());
  CHECK(crc32c("", 0) == 0);
  CHECK(crc32c("123456789", 9) == 0xE306'9283);
  CHECK(crc32c(Bytes(32, 0x00).data(), 32) == 0x8A91'36AA);
  CHECK(crc32c(Bytes(32, 0xFF).data(), 32) == 0x62A8'AB43);
  CHECK(crc32c(ascending.data(), 32) == 0x46DD'794E);
  CHECK(crc32c(descending.data(), 32) == 0x113F'DB5C);
}

TEST_CASE("CRC32C is equal by instruction, by tables and bit by bit") {
  const Bytes bytes = random_bytes(20'000);
  std::size_t wrong = 0;
  for (std::size_t n = 0; n < 9000; n += n < 100 ? 1 : n % 13 + 1)
    for (const std::size_t from : {0u, 1u, 7u}) {
      const auto* const p = bytes.data() + from;
      const std::uint32_t expected = reference(p, n);
      wrong += crc32c(p, n) != expected;
      wrong += ~Crc32cTables::get().update(~0u, p, n) != expected;
#if defined(__x86_64__)
      if (Crc32cLanes::is_possible()) wrong += ~Crc32cLanes::get().update(~0u, p, n) != expected;
#endif
      wrong += crc32c(p + n / 3, n - n / 3, crc32c(p, n / 3)) != expected;  // in two parts
    }
  CHECK(wrong == 0);
}

TEST_CASE("CRC32C detects each single flipped bit") {
  Bytes bytes = random_bytes(5000);
  const std::uint32_t whole = crc32c(bytes.data(), bytes.size());
  std::size_t unseen = 0;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += 7) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    unseen += crc32c(bytes.data(), bytes.size()) == whole;
    bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
  }
  CHECK(unseen == 0);
}
