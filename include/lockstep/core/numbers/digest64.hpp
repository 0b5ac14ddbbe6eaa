/// \file
/// A fast 64-bit digest, for comparisons among processes that trust each other. Not cryptographic:
/// see Sha256 for that. Invariant: the digest depends on the order and the sizes of the parts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "lockstep/core/rng.hpp"

namespace lockstep {

/// Four lanes of 8 bytes each, so that a core hashes several gigabytes in a second.
/// \code
///   lockstep::Digest64 digest;
///   digest.add(std::as_bytes(std::span(weights)));
///   if (digest.value() != digest_of_peer) ...
/// \endcode
class Digest64 {
 public:
  Digest64& add(std::span<const std::byte> bytes) {
    state_ = mix(state_, bytes.size());
    Lanes lane{}, words{};
    for (std::size_t i = 0; i < lanes; ++i) lane[i] = mix(state_, i);
    const std::byte* p = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= sizeof words; p += sizeof words, left -= sizeof words) {
      std::memcpy(words.data(), p, sizeof words);
      absorb(lane, words);
    }
    if (left > 0) {
      words = {};
      std::memcpy(words.data(), p, left);
      absorb(lane, words);
    }
    for (const std::uint64_t value : lane) state_ = mix(state_, value);
    return *this;
  }
  Digest64& add(std::uint64_t value) {
    state_ = mix(state_, value);
    return *this;
  }
  std::uint64_t value() const { return state_; }

 private:
  static constexpr std::size_t lanes = 4;
  using Lanes = std::array<std::uint64_t, lanes>;

  static void absorb(Lanes& lane, const Lanes& words) {
    for (std::size_t i = 0; i < lanes; ++i) lane[i] = mix(lane[i], words[i]);
  }

  std::uint64_t state_ = 0;
};

}  // namespace lockstep
