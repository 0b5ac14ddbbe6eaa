#include "lockstep/collectives/tcp/wire.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/fmt_core.hpp"

namespace {

using lockstep::WireKey;
using lockstep::detail::RecordHead;
using lockstep::detail::Wire;

std::string record(Wire& wire, const std::string& payload) {
  std::string bytes(sizeof(RecordHead) + payload.size() + 16, '\0');
  const std::size_t n =
      wire.write(RecordHead::Kind::data, reinterpret_cast<const std::byte*>(payload.data()),
                 payload.size(), reinterpret_cast<std::byte*>(bytes.data()));
  bytes.resize(n);
  return bytes;
}

std::optional<std::string> payload_of(Wire& wire, const std::string& bytes) {
  RecordHead head;
  std::memcpy(&head, bytes.data(), sizeof head);
  std::string payload(head.bytes, '\0');
  const bool intact =
      wire.read(head, reinterpret_cast<const std::byte*>(bytes.data() + sizeof head),
                reinterpret_cast<std::byte*>(payload.data()));
  return intact ? std::optional(payload) : std::nullopt;
}

WireKey key() {
  WireKey result;
  for (std::size_t i = 0; i < 16; ++i) result.key[i] = static_cast<unsigned char>(i);
  return result;
}

}  // namespace

TEST_CASE("records arrive as they were sent, in their order and not in another") {
  for (const bool sealed : {false, true}) {
    const auto secret = sealed ? std::optional(key()) : std::nullopt;
    Wire sends(secret), receives(secret), late(secret);
    std::vector<std::string> records;
    for (const std::string text : {"one", "", "three"}) records.push_back(record(sends, text));
    CHECK(payload_of(receives, records[0]) == "one");
    CHECK(payload_of(receives, records[1]) == "");
    CHECK(payload_of(receives, records[2]) == "three");
    CHECK(payload_of(late, records[1]) == std::nullopt);  // record 0 was dropped
    CHECK((records[2].find("three") != std::string::npos) == !sealed);
    Wire again(secret);
    CHECK(payload_of(again, records[0]) == "one");
    CHECK(payload_of(again, records[0]) == std::nullopt);  // repeated
  }
}

TEST_CASE("a record with any bit changed is not accepted") {
  for (const bool sealed : {false, true}) {
    const auto secret = sealed ? std::optional(key()) : std::nullopt;
    Wire sends(secret);
    const std::string bytes = record(sends, "a gradient");
    for (std::size_t bit = 4 * 8; bit < bytes.size() * 8; ++bit) {  // the length is checked before
      std::string changed = bytes;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      Wire receives(secret);
      CHECK(payload_of(receives, changed) == std::nullopt);
    }
  }
}

// Computed with Python's cryptography: AESGCM(bytes(range(16))).encrypt(nonce, payload, head).
TEST_CASE("sealed records are AES-128-GCM with the nonce xor the number") {
  Wire sends(key());
  const std::string first = record(sends, "lockstep"), second = record(sends, "lockstep");
  const auto hex = [](const std::string& bytes) {
    std::string text;
    for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
    return text;
  };
  CHECK(hex(first) ==
        "0800000002000000"
        "25b9e438eaefc3fcc9becf97bd60eb2685cf1cc63c774046");
  CHECK(hex(second) ==
        "0800000002000000"
        "d6bacc08be9daf5e5147b8b7f6d99204be4d6e32aad36e69");
}
