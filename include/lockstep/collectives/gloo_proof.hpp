/// \file
/// How the two ends of a new connection show each other who they are. Invariants: a proof holds for
/// one run, one mesh, one pair of ranks in one direction, and one pair of nonces; comparing takes
/// the same time whether it holds or not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// What each end sends first.
struct GlooHello {
  static constexpr std::array<char, 8> name{'l', 'o', 'c', 'k', 's', 't', 'p', '1'};

  std::array<char, 8> magic{};
  std::uint64_t mesh = 0;
  std::uint32_t from = 0, to = 0;
  std::array<unsigned char, 16> nonce{};

  LOCKSTEP_COLD_DECL bool answers(const GlooHello& mine) const;
};
static_assert(sizeof(GlooHello) == 40);

using GlooProof = std::array<unsigned char, 32>;

LOCKSTEP_COLD_DECL GlooHello gloo_hello(std::uint64_t mesh, std::size_t from, std::size_t to);

/// HMAC-SHA256 (RFC 2104) that `prover` sends: over the run, both ranks and both nonces. Without a
/// key it tells strangers who came by mistake, not those who know this file.
LOCKSTEP_COLD_DECL GlooProof gloo_proof(std::string_view key, std::string_view run,
                                        const GlooHello& prover, const GlooHello& verifier);

LOCKSTEP_COLD_DECL bool same_proof(const GlooProof& a, const GlooProof& b);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/gloo_proof.ipp"
#endif
