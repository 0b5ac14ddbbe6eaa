/// \file
/// How the two ends of a new connection show each other who they are. Invariants: a proof holds for
/// one run, one mesh, one pair of ranks in one direction, and one pair of nonces; comparing takes
/// the same time whether it holds or not.
#pragma once

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// What each end sends first.
struct GlooHello {
  static constexpr std::array<char, 8> name{'l', 'o', 'c', 'k', 's', 't', 'p', '1'};

  std::array<char, 8> magic{};
  std::uint64_t mesh = 0;
  std::uint32_t from = 0, to = 0;
  std::array<unsigned char, 16> nonce{};

  bool answers(const GlooHello& mine) const {
    return magic == name && mesh == mine.mesh && from == mine.to && to == mine.from;
  }
};
static_assert(sizeof(GlooHello) == 40);

using GlooProof = std::array<unsigned char, 32>;

inline GlooHello gloo_hello(std::uint64_t mesh, std::size_t from, std::size_t to) {
  GlooHello hello{
      GlooHello::name, mesh, static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to), {}};
  if (RAND_bytes(hello.nonce.data(), static_cast<int>(hello.nonce.size())) != 1)
    throw Error("gloo: OpenSSL has no random bytes; check that /dev/urandom can be read");
  return hello;
}

/// HMAC-SHA256 (RFC 2104) that `prover` sends: over the run, both ranks and both nonces. Without a
/// key it tells strangers who came by mistake, not those who know this file.
inline GlooProof gloo_proof(std::string_view key, std::string_view run, const GlooHello& prover,
                            const GlooHello& verifier) {
  if (key.empty()) key = "lockstep: a job without a secret";
  std::string text = "lockstep gloo mesh\n";
  text.append(reinterpret_cast<const char*>(&prover), sizeof prover);
  text.append(reinterpret_cast<const char*>(&verifier), sizeof verifier);
  text += run;
  GlooProof proof{};
  unsigned int length = 0;
  const auto* made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), proof.data(), &length);
  if (!made || length != proof.size())
    throw Error("gloo: OpenSSL refused HMAC-SHA256; check that its configuration permits it");
  return proof;
}

inline bool same_proof(const GlooProof& a, const GlooProof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace lockstep::detail
