#pragma once

#include "lockstep/collectives/gloo_proof.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <string>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

bool GlooHello::answers(const GlooHello& mine) const {
  return magic == name && mesh == mine.mesh && from == mine.to && to == mine.from;
}

GlooHello gloo_hello(std::uint64_t mesh, std::size_t from, std::size_t to) {
  GlooHello hello{
      GlooHello::name, mesh, static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to), {}};
  if (RAND_bytes(hello.nonce.data(), static_cast<int>(hello.nonce.size())) != 1)
    throw Error("gloo: OpenSSL has no random bytes; check that /dev/urandom can be read");
  return hello;
}

GlooProof gloo_proof(std::string_view key, std::string_view run, const GlooHello& prover,
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

bool same_proof(const GlooProof& a, const GlooProof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace lockstep::detail
