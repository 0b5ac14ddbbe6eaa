#pragma once

#include "lockstep/cluster/network/psk.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <memory>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

bool is_alert_of_other_secret(const asio::error_code& error) {
  if (error.category() != asio::error::get_ssl_category()) return false;
  const int reason = ERR_GET_REASON(static_cast<unsigned long>(error.value()));
  return reason == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER || reason == SSL_R_TLSV1_ALERT_DECRYPT_ERROR;
}

PskContext::PskContext(Side side, Secret secret, std::string job)
    : secret_(std::move(secret)),
      job_(std::move(job)),
      context_(side == Side::client ? asio::ssl::context::tlsv13_client
                                    : asio::ssl::context::tlsv13_server) {
  SSL_CTX* const tls = context_.native_handle();
  // Without any trusted authority every certificate fails, so only the key can succeed. The server
  // requests no certificate.
  if (side == Side::client) SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_options(tls, SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
  if (SSL_CTX_set_ciphersuites(tls, "TLS_AES_128_GCM_SHA256") != 1 ||
      SSL_CTX_set_num_tickets(tls, 0) != 1 || SSL_CTX_set_ex_data(tls, slot(), this) != 1)
    throw ClusterError(
        "rendezvous: OpenSSL refused TLS 1.3 with AES-128-GCM; check its configuration");
  constexpr int level_of_128_bits = 3;
  if (const int level = SSL_CTX_get_security_level(tls); level > level_of_128_bits)
    throw ClusterError(
        "rendezvous: OpenSSL's configuration on this machine has security level {} (CipherString = "
        "...@SECLEVEL={}), which allows no cipher of 128 bits, as lockstep's connections use; lower "
        "it to {}, or set OPENSSL_CONF to a file that does for this process",
        level, level, level_of_128_bits);
  if (side == Side::client)
    SSL_CTX_set_psk_use_session_callback(tls, &use_session);
  else
    SSL_CTX_set_psk_find_session_callback(tls, &find_session);
}

std::string PskContext::identity(SSL* connection) {
  void* bytes = nullptr;
  std::size_t size = 0;
  SSL_SESSION* const session = SSL_get_session(connection);
  if (!session || SSL_SESSION_get0_ticket_appdata(session, &bytes, &size) != 1) return {};
  return {static_cast<const char*>(bytes), size};
}

bool PskContext::export_key(SSL* connection, std::string_view label, unsigned char* out,
                            std::size_t n) {
  return SSL_export_keying_material(connection, out, n, label.data(), label.size(), nullptr, 0,
                                    0) == 1;
}

int PskContext::slot() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

const PskContext& PskContext::of(SSL* connection) {
  return *static_cast<const PskContext*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(connection), slot()));
}

SSL_SESSION* PskContext::make_session(SSL* connection, std::string_view job) {
  constexpr std::array<unsigned char, 2> aes_128_gcm_sha256{0x13, 0x01};
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(connection, aes_128_gcm_sha256.data());
  std::unique_ptr<SSL_SESSION, decltype(&SSL_SESSION_free)> session(SSL_SESSION_new(),
                                                                    &SSL_SESSION_free);
  // The key does not expire: OpenSSL compares wall-clock times, which may jump during a handshake.
  constexpr long ten_years = 10L * 365 * 24 * 3600;
  // The key is wiped below.
  auto key = of(connection).secret_.key(job);
  const bool made = session && cipher &&
                    SSL_SESSION_set1_master_key(session.get(), key.data(), key.size()) == 1 &&
                    SSL_SESSION_set_cipher(session.get(), cipher) == 1 &&
                    SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) == 1 &&
                    SSL_SESSION_set_timeout(session.get(), ten_years) == 1 &&
                    SSL_SESSION_set1_ticket_appdata(session.get(), job.data(), job.size()) == 1;
  OPENSSL_cleanse(key.data(), key.size());
  return made ? session.release() : nullptr;
}

int PskContext::use_session(SSL* connection, const EVP_MD* digest, const unsigned char** identity,
                            std::size_t* size, SSL_SESSION** session) noexcept {
  *session = nullptr;
  // Called again for another hash after a HelloRetryRequest: the key only fits SHA-256.
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

int PskContext::find_session(SSL* connection, const unsigned char* identity, std::size_t size,
                             SSL_SESSION** session) noexcept {
  *session = nullptr;
  constexpr std::size_t max_job_bytes = 256;
  // No session: OpenSSL goes on without a key, and `proved` is false.
  if (size == 0 || size > max_job_bytes) return 1;
  try {
    *session = make_session(connection, {reinterpret_cast<const char*>(identity), size});
  } catch (...) {
    return 0;
  }
  return *session ? 1 : 0;
}

}  // namespace lockstep::detail
