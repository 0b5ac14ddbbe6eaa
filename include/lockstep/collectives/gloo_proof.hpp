/// \file
/// Mutual authentication of the two ends of a new connection. Invariants: a proof is valid for one
/// run, one mesh, one pair of ranks in one direction, and one pair of nonces; proofs are compared
/// in constant time.
///
///     rank a                                    rank b
///       ── hello: magic, mesh, a, b, nonce_a ──>
///       <── hello: magic, mesh, b, a, nonce_b ──
///       ── HMAC(key, hello_a, hello_b, run) ───>
///       <── HMAC(key, hello_b, hello_a, run) ───
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// The first message of each end, as its bytes are sent (40, native byte order).
struct GlooHello {
  static constexpr std::array<char, 8> name{'l', 'o', 'c', 'k', 's', 't', 'p', '1'};

  std::array<char, 8> magic{};
  std::uint64_t mesh = 0;
  std::uint32_t from = 0, to = 0;
  std::array<unsigned char, 16> nonce{};

  /// Whether this is the hello of the peer that `mine` addresses, in the same mesh.
  LOCKSTEP_COLD_DECL bool answers(const GlooHello& mine) const;
};
static_assert(sizeof(GlooHello) == 40);

using GlooProof = std::array<unsigned char, 32>;

/// A hello with a fresh random nonce. \throws Error if OpenSSL has no random bytes.
LOCKSTEP_COLD_DECL GlooHello gloo_hello(std::uint64_t mesh, std::size_t from, std::size_t to);

/// The proof that `prover` sends: HMAC-SHA256 (RFC 2104) over the run, both ranks and both nonces.
/// Without a key it rejects processes that connect by mistake, but not an attacker.
LOCKSTEP_COLD_DECL GlooProof gloo_proof(std::string_view key, std::string_view run,
                                        const GlooHello& prover, const GlooHello& verifier);

/// a == b, in constant time.
LOCKSTEP_COLD_DECL bool same_proof(const GlooProof& a, const GlooProof& b);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/gloo_proof.ipp"
#endif
