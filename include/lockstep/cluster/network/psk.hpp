/// \file
/// TLS 1.3 with an external pre-shared key (RFC 8446, psk_dhe_ke). Invariants: no certificate is
/// ever accepted instead of the key; there are no tickets, no early data and no resumption.
///
///     client (worker)                                    server (chief)
///     ClientHello: identity = job id, binder       ---->  key = HKDF(secret, identity);
///                                                         checks the binder: same secret
///     checks Finished: same secret                 <----  ServerHello, Finished
///     Hello                                        ---->  checks that the job id is its own
#pragma once

#include <openssl/ssl.h>

#include <asio/ssl.hpp>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/cluster/network/secret.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// True for the alerts of a server that derives another key for the client's job. Anyone can send
/// them: they prove nothing.
LOCKSTEP_COLD_DECL bool is_alert_of_other_secret(const asio::error_code& error);

/// The answers of an address that suggest that its process has another secret. A client tries again
/// until its deadline, or while they go on for ten seconds without another kind of answer.
class OtherSecret {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void note(Time now, std::string sentence) {
    if (sentence_.empty()) first_ = now;
    last_ = now;
    sentence_ = std::move(sentence);
  }
  void clear() { sentence_.clear(); }
  bool lasts() const { return !sentence_.empty() && last_ - first_ >= std::chrono::seconds(10); }
  /// For the error; empty: there has been another answer since, or none.
  const std::string& sentence() const { return sentence_; }

 private:
  Time first_{}, last_{};
  std::string sentence_{};
};

/// One side's TLS context. The client sends its job id as the identity; the server derives the key
/// of any job from its secret, so that it can name a job that it refuses.
class PskContext {
 public:
  enum class Side { client, server };

  /// \throws ClusterError if OpenSSL, or its configuration, refuses the cipher suite.
  LOCKSTEP_COLD_DECL PskContext(Side side, Secret secret, std::string job);
  PskContext(const PskContext&) = delete;
  PskContext& operator=(const PskContext&) = delete;

  asio::ssl::context& tls() { return context_; }

  /// After the handshake: true if both sides proved the key; before its end, at the server: true if
  /// the client did, by the binder of its first message. OpenSSL counts an external key as a resumed
  /// session.
  static bool proved(SSL* connection) { return SSL_session_reused(connection) == 1; }
  /// After the handshake, at the server: the identity whose key the client has proved.
  LOCKSTEP_COLD_DECL static std::string identity(SSL* connection);
  /// After the handshake: n bytes that both sides compute and nobody else knows (RFC 8446, 7.5).
  /// \return false if OpenSSL fails.
  LOCKSTEP_COLD_DECL static bool export_key(SSL* connection, std::string_view label,
                                            unsigned char* out, std::size_t n);

 private:
  /// The index under which an SSL_CTX holds its PskContext.
  LOCKSTEP_COLD_DECL static int slot();
  /// The context of a connection, for the C callbacks.
  LOCKSTEP_COLD_DECL static const PskContext& of(SSL* connection);

  /// The key as a session object, as OpenSSL expects; null if memory ran out.
  LOCKSTEP_COLD_DECL static SSL_SESSION* make_session(SSL* connection, std::string_view job);
  /// OpenSSL's callbacks, of the client and of the server. A return of 0 aborts the handshake.
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
#include "lockstep/cluster/network/psk.ipp"
#endif
