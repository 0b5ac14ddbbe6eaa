/// \file
/// TLS 1.3 with a key that both sides know beforehand (RFC 8446, psk_dhe_ke). Invariants: no
/// certificate is ever accepted in place of the key; no tickets, no early data, no resumption.
#pragma once

#include <openssl/ssl.h>

#include <array>
#include <asio/ssl.hpp>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/cluster/rendezvous/secret.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// One side's TLS. The client says which job it belongs to; the server makes the key of any job
/// from its secret, so that it can name the job that it refuses.
class PskContext {
 public:
  enum class Side { client, server };

  PskContext(Side side, Secret secret, std::string job)
      : secret_(std::move(secret)),
        job_(std::move(job)),
        context_(side == Side::client ? asio::ssl::context::tlsv13_client
                                      : asio::ssl::context::tlsv13_server) {
    SSL_CTX* const tls = context_.native_handle();
    // With an empty store of authorities every certificate fails. The server asks for none.
    if (side == Side::client) SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_options(tls, SSL_OP_NO_TICKET);
    SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
    if (SSL_CTX_set_ciphersuites(tls, "TLS_AES_128_GCM_SHA256") != 1 ||
        SSL_CTX_set_num_tickets(tls, 0) != 1 || SSL_CTX_set_ex_data(tls, slot(), this) != 1)
      throw Error("rendezvous: OpenSSL refused TLS 1.3 with AES-128-GCM; check its configuration");
    if (side == Side::client)
      SSL_CTX_set_psk_use_session_callback(tls, &use_session);
    else
      SSL_CTX_set_psk_find_session_callback(tls, &find_session);
  }
  PskContext(const PskContext&) = delete;
  PskContext& operator=(const PskContext&) = delete;

  asio::ssl::context& tls() { return context_; }

  /// After the handshake: true if the key made it, and nothing else.
  static bool proved(SSL* connection) { return SSL_session_reused(connection) == 1; }

 private:
  static int slot() {
    static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
    return index;
  }
  static const PskContext& of(SSL* connection) {
    return *static_cast<const PskContext*>(
        SSL_CTX_get_ex_data(SSL_get_SSL_CTX(connection), slot()));
  }

  /// The key as OpenSSL wants it; null if memory ran out.
  static SSL_SESSION* make_session(SSL* connection, std::string_view job) {
    constexpr std::array<unsigned char, 2> aes_128_gcm_sha256{0x13, 0x01};
    const SSL_CIPHER* const cipher = SSL_CIPHER_find(connection, aes_128_gcm_sha256.data());
    std::unique_ptr<SSL_SESSION, decltype(&SSL_SESSION_free)> session(SSL_SESSION_new(),
                                                                      &SSL_SESSION_free);
    auto key = of(connection).secret_.key(job);
    const bool made = session && cipher &&
                      SSL_SESSION_set1_master_key(session.get(), key.data(), key.size()) == 1 &&
                      SSL_SESSION_set_cipher(session.get(), cipher) == 1 &&
                      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) == 1;
    OPENSSL_cleanse(key.data(), key.size());
    return made ? session.release() : nullptr;
  }

  static int use_session(SSL* connection, const EVP_MD* digest, const unsigned char** identity,
                         std::size_t* size, SSL_SESSION** session) noexcept {
    *session = nullptr;
    if (digest && EVP_MD_get_type(digest) != NID_sha256) return 1;
    const PskContext& self = of(connection);
    try {
      *session = make_session(connection, self.job_);
    } catch (...) {
      return 0;
    }
    *identity = reinterpret_cast<const unsigned char*>(self.job_.data());
    *size = self.job_.size();
    return *session ? 1 : 0;
  }

  static int find_session(SSL* connection, const unsigned char* identity, std::size_t size,
                          SSL_SESSION** session) noexcept {
    *session = nullptr;
    constexpr std::size_t longest_job = 256;
    if (size == 0 || size > longest_job) return 1;
    try {
      *session = make_session(connection, {reinterpret_cast<const char*>(identity), size});
    } catch (...) {
      return 0;
    }
    return *session ? 1 : 0;
  }

  Secret secret_;
  std::string job_;
  asio::ssl::context context_;
};

}  // namespace lockstep::detail
