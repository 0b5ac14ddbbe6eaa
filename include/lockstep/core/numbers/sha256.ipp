#pragma once

#include "lockstep/core/numbers/sha256.hpp"

#include <openssl/evp.h>

#include <array>
#include <new>

namespace lockstep {

Sha256::Sha256() : context_(make()) {
  check(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
}

Sha256& Sha256::update(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
  return *this;
}

std::string Sha256::hex() const {
  const Context copy = make();
  check(EVP_MD_CTX_copy_ex(copy.get(), context_.get()));
  std::array<unsigned char, 32> digest{};
  check(EVP_DigestFinal_ex(copy.get(), digest.data(), nullptr));
  constexpr const char* digits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * digest.size());
  for (const unsigned byte : digest) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Context Sha256::make() {
  Context context(EVP_MD_CTX_new());
  if (!context) throw std::bad_alloc();
  return context;
}

void Sha256::check(int result) {
  if (result != 1)
    throw Error(
        "sha256: OpenSSL rejected the algorithm; check that its configuration permits SHA-256");
}

std::string sha256_hex(std::span<const std::byte> bytes) { return Sha256().update(bytes).hex(); }

}  // namespace lockstep
