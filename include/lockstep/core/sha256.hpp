/// \file
/// SHA-256 (FIPS 180-4). Invariant: the digest depends on the bytes only, not on how they were cut
/// into calls.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string>

#include "lockstep/core/error.hpp"

namespace lockstep {

/// Digest of a stream of bytes, by OpenSSL.
/// \code
///   lockstep::Sha256 sha;
///   for (const auto& tensor : tensors) sha.update(std::as_bytes(tensor));
///   std::string digest = sha.hex();                // 64 small letters and digits
/// \endcode
class Sha256 {
 public:
  /// \throws Error if OpenSSL has no SHA-256, std::bad_alloc if it has no memory.
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    if (!context_) throw std::bad_alloc();
    check(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
  }

  Sha256& update(std::span<const std::byte> bytes) {
    check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
    return *this;
  }

  /// Digest of everything so far; more bytes may follow.
  std::string hex() const {
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> copy(EVP_MD_CTX_new(),
                                                                       &EVP_MD_CTX_free);
    if (!copy) throw std::bad_alloc();
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

 private:
  static void check(int result) {
    if (result != 1)
      throw Error("sha-256: OpenSSL refused it; check that its configuration permits SHA-256");
  }

  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

/// Digest of `bytes` in hexadecimal.
inline std::string sha256_hex(std::span<const std::byte> bytes) {
  return Sha256().update(bytes).hex();
}

}  // namespace lockstep
