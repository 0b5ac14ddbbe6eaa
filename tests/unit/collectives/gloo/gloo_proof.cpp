#include "lockstep/collectives/gloo_proof.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <string>

namespace {

using lockstep::detail::gloo_hello;
using lockstep::detail::gloo_proof;
using lockstep::detail::GlooHello;
using lockstep::detail::GlooProof;
using lockstep::detail::same_proof;

/// A hello whose nonce is first, first + 1, ...
GlooHello hello(std::uint64_t mesh, std::size_t from, std::size_t to, unsigned char first) {
  GlooHello h = gloo_hello(mesh, from, to);
  for (auto& byte : h.nonce) byte = first++;
  return h;
}

std::string hex(const GlooProof& proof) {
  std::string text;
  for (const unsigned byte : proof)
    for (const unsigned digit : {byte >> 4, byte & 15u}) text += "0123456789abcdef"[digit];
  return text;
}

}  // namespace

TEST_CASE("a proof is the HMAC-SHA256 of both hellos and the run") {
  // Python: hmac.new(b"a secret of a job", b"lockstep gloo mesh\n" + a + b + b"run 7", sha256),
  // with a = b"lockstp1" + struct.pack("<QII", 3, 1, 2) + bytes(range(0, 16)) and b likewise.
  CHECK(hex(gloo_proof("a secret of a job", "run 7", hello(3, 1, 2, 0), hello(3, 2, 1, 100))) ==
        "2c21c7a9355f01a9f5ddb46e97504ca5b4afebeafb2e033955b442991c63bd0d");
}

TEST_CASE("a proof is valid only for what it was made for") {
  const GlooProof proof = gloo_proof("key", "run", hello(1, 2, 3, 4), hello(1, 3, 2, 5));
  const auto differs = [&](const GlooProof& other) { return !same_proof(proof, other); };
  CHECK(same_proof(proof, gloo_proof("key", "run", hello(1, 2, 3, 4), hello(1, 3, 2, 5))));
  CHECK(differs(gloo_proof("kez", "run", hello(1, 2, 3, 4), hello(1, 3, 2, 5))));
  CHECK(differs(gloo_proof("", "run", hello(1, 2, 3, 4), hello(1, 3, 2, 5))));
  CHECK(differs(gloo_proof("key", "ru", hello(1, 2, 3, 4), hello(1, 3, 2, 5))));
  CHECK(differs(gloo_proof("key", "run", hello(2, 2, 3, 4), hello(2, 3, 2, 5))));
  CHECK(differs(gloo_proof("key", "run", hello(1, 2, 4, 4), hello(1, 4, 2, 5))));
  CHECK(differs(gloo_proof("key", "run", hello(1, 2, 3, 5), hello(1, 3, 2, 5))));
  CHECK(differs(gloo_proof("key", "run", hello(1, 2, 3, 4), hello(1, 3, 2, 6))));
  // Reflected to the process that made it.
  CHECK(differs(gloo_proof("key", "run", hello(1, 3, 2, 5), hello(1, 2, 3, 4))));
}

TEST_CASE("a hello is answered only by the other end of the same connection") {
  const GlooHello mine = gloo_hello(7, 1, 2);
  CHECK(gloo_hello(7, 2, 1).answers(mine));
  CHECK(!gloo_hello(8, 2, 1).answers(mine));
  CHECK(!gloo_hello(7, 3, 1).answers(mine));
  CHECK(!gloo_hello(7, 2, 3).answers(mine));
  CHECK(!mine.answers(mine));
  CHECK(!GlooHello{}.answers(mine));
}

TEST_CASE("no two hellos have the same nonce") {
  CHECK(gloo_hello(7, 1, 2).nonce != gloo_hello(7, 1, 2).nonce);
}
