/// \file
/// SHA-256 (FIPS 180-4). Invariant: the digest depends only on the bytes, not on how they are split
/// over calls.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

struct evp_md_ctx_st;  // OpenSSL's

namespace lockstep {

/// Incremental digest, computed by OpenSSL.
/// \code
///   lockstep::Sha256 sha;
///   for (const auto& tensor : tensors) sha.update(std::as_bytes(tensor));
///   std::string digest = sha.hex();                // 64 lower-case hexadecimal digits
/// \endcode
class Sha256 {
 public:
  /// \throws Error if OpenSSL has no SHA-256; std::bad_alloc if it is out of memory.
  LOCKSTEP_COLD_DECL Sha256();

  LOCKSTEP_COLD_DECL Sha256& update(std::span<const std::byte> bytes);

  /// Digest of all bytes so far; more may follow.
  LOCKSTEP_COLD_DECL std::string hex() const;

 private:
  LOCKSTEP_COLD_DECL static void check(int result);

  struct Free {
    LOCKSTEP_COLD_DECL void operator()(evp_md_ctx_st* context) const;
  };
  using Context = std::unique_ptr<evp_md_ctx_st, Free>;

  LOCKSTEP_COLD_DECL static Context make();
  Context context_;
};

/// Digest of `bytes` as hexadecimal digits.
LOCKSTEP_COLD_DECL std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/numbers/sha256.ipp"
#endif
