// SHA-256 against the examples of FIPS 180 (NIST, "Examples with intermediate values", SHA256.pdf).
#include "lockstep/core/numbers/sha256.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <string_view>

namespace ls = lockstep;

namespace {
std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
}  // namespace

TEST_CASE("sha-256 matches the examples of FIPS 180") {
  CHECK(ls::sha256_hex({}) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(ls::sha256_hex(bytes("abc")) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(ls::sha256_hex(bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(ls::sha256_hex(bytes(std::string(1'000'000, 'a'))) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("sha-256 does not depend on how the bytes are split") {
  ls::Sha256 sha;
  CHECK(sha.update(bytes("a")).update({}).hex() ==
        "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb");
  CHECK(sha.update(bytes("b")).update(bytes("c")).hex() == ls::sha256_hex(bytes("abc")));
}
