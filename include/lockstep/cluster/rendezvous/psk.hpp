/// \file
/// TLS 1.3 with a key that both sides know beforehand (RFC 8446, psk_dhe_ke). Invariants: no
/// certificate is ever accepted in place of the key; no tickets, no early data, no resumption.
#pragma once

#include <openssl/ssl.h>

#include <asio/ssl.hpp>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/cluster/rendezvous/secret.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// One side's TLS. The client says which job it belongs to; the server makes the key of any job
/// from its secret, so that it can name the job that it refuses.
class PskContext {
 public:
  enum class Side { client, server };

  LOCKSTEP_COLD_DECL PskContext(Side side, Secret secret, std::string job);
  PskContext(const PskContext&) = delete;
  PskContext& operator=(const PskContext&) = delete;

  asio::ssl::context& tls() { return context_; }

  /// After the handshake: true if the key made it, and nothing else.
  static bool proved(SSL* connection) { return SSL_session_reused(connection) == 1; }

 private:
  LOCKSTEP_COLD_DECL static int slot();
  LOCKSTEP_COLD_DECL static const PskContext& of(SSL* connection);

  /// The key as OpenSSL wants it; null if memory ran out.
  LOCKSTEP_COLD_DECL static SSL_SESSION* make_session(SSL* connection, std::string_view job);
  LOCKSTEP_COLD_DECL static int use_session(SSL* connection, const EVP_MD* digest,
                                            const unsigned char** identity, std::size_t* size,
                                            SSL_SESSION** session) noexcept;
  LOCKSTEP_COLD_DECL static int find_session(SSL* connection, const unsigned char* identity,
                                             std::size_t size, SSL_SESSION** session) noexcept;

  Secret secret_;
  std::string job_;
  asio::ssl::context context_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/psk.ipp"
#endif
