#pragma once

#include "lockstep/collectives/tcp/wire.hpp"

#include <openssl/evp.h>

#include <cstring>

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/crc32c.hpp"

namespace lockstep::detail {

void Wire::FreeCipher::operator()(evp_cipher_ctx_st* cipher) const { EVP_CIPHER_CTX_free(cipher); }

Wire::Wire(const std::optional<WireKey>& key) {
  if (!key) return;
  cipher_.reset(EVP_CIPHER_CTX_new());
  // Encrypting and decrypting are both set per record; the key schedule is the same.
  if (!cipher_ || EVP_CipherInit_ex(cipher_.get(), EVP_aes_128_gcm(), nullptr, key->key.data(),
                                    nullptr, 1) != 1)
    throw Error("data connections: OpenSSL refused AES-128-GCM; check its configuration");
  nonce_ = key->nonce;
}

std::array<unsigned char, 12> Wire::next_nonce() {
  std::array<unsigned char, 12> nonce = nonce_;
  const std::uint64_t number = number_++;
  for (std::size_t i = 0; i < 8; ++i)
    nonce[4 + i] = static_cast<unsigned char>(nonce[4 + i] ^ (number >> (8 * (7 - i))));
  return nonce;
}

std::uint32_t Wire::start_crc(const RecordHead& head) {
  const std::uint64_t number = number_++;
  return crc32c(&head, sizeof head, crc32c(&number, sizeof number));
}

std::size_t Wire::write(RecordHead::Kind kind, const std::byte* payload, std::size_t n,
                        std::byte* out) {
  const RecordHead head{static_cast<std::uint32_t>(n), kind, {}};
  std::memcpy(out, &head, sizeof head);
  std::byte* const body = out + sizeof head;
  if (!sealed()) {
    if (n > 0) std::memcpy(body, payload, n);
    const std::uint32_t crc = crc32c(body, n, start_crc(head));
    std::memcpy(body + n, &crc, sizeof crc);
    return sizeof head + n + sizeof crc;
  }
  const auto nonce = next_nonce();
  auto* const to = reinterpret_cast<unsigned char*>(body);
  int length = 0;
  const bool done =
      EVP_EncryptInit_ex(cipher_.get(), nullptr, nullptr, nullptr, nonce.data()) == 1 &&
      EVP_EncryptUpdate(cipher_.get(), nullptr, &length,
                        reinterpret_cast<const unsigned char*>(out), sizeof head) == 1 &&
      (n == 0 || EVP_EncryptUpdate(cipher_.get(), to, &length,
                                   reinterpret_cast<const unsigned char*>(payload),
                                   static_cast<int>(n)) == 1) &&
      EVP_EncryptFinal_ex(cipher_.get(), to + n, &length) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher_.get(), EVP_CTRL_GCM_GET_TAG, 16, to + n) == 1;
  if (!done) throw Error("data connections: OpenSSL failed to encrypt a record");
  return sizeof head + n + 16;
}

bool Wire::read(const RecordHead& head, const std::byte* body, std::byte* payload) {
  const std::size_t n = head.bytes;
  if (!sealed()) {
    const std::uint32_t crc = crc32c(body, n, start_crc(head));
    if (std::memcmp(body + n, &crc, sizeof crc) != 0) return false;
    if (n > 0) std::memcpy(payload, body, n);
    return true;
  }
  const auto nonce = next_nonce();
  std::array<unsigned char, 16> tag;
  std::memcpy(tag.data(), body + n, tag.size());
  int length = 0;
  return EVP_DecryptInit_ex(cipher_.get(), nullptr, nullptr, nullptr, nonce.data()) == 1 &&
         EVP_DecryptUpdate(cipher_.get(), nullptr, &length,
                           reinterpret_cast<const unsigned char*>(&head), sizeof head) == 1 &&
         (n == 0 || EVP_DecryptUpdate(cipher_.get(), reinterpret_cast<unsigned char*>(payload),
                                      &length, reinterpret_cast<const unsigned char*>(body),
                                      static_cast<int>(n)) == 1) &&
         EVP_CIPHER_CTX_ctrl(cipher_.get(), EVP_CTRL_GCM_SET_TAG, 16, tag.data()) == 1 &&
         EVP_DecryptFinal_ex(cipher_.get(), tag.data(), &length) == 1;  // writes nothing
}

}  // namespace lockstep::detail
