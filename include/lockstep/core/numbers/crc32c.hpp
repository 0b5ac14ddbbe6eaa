/// \file
/// CRC32C (Castagnoli, RFC 3720): detects every error burst of up to 32 bits, and all other
/// corruption with probability 1 - 2^-32. It does not protect against deliberate changes.
/// Invariant: the processor's instruction and the tables give the same results.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Fallback without the processor's instruction: eight bytes at a time, by tables.
class Crc32cTables {
 public:
  LOCKSTEP_DECL static const Crc32cTables& get();

  /// The register after n more bytes, not inverted.
  LOCKSTEP_DECL std::uint32_t update(std::uint32_t crc, const unsigned char* p,
                                     std::size_t n) const;

 private:
  LOCKSTEP_DECL Crc32cTables();

  std::array<std::array<std::uint32_t, 256>, 8> table_{};
};

#if defined(__x86_64__)
/// By SSE 4.2. The instruction has a latency of three cycles, so three lanes of the data are
/// processed in parallel; `shift` then advances the register of one lane over the bytes of the
/// next.
class Crc32cLanes {
 public:
  LOCKSTEP_DECL static const Crc32cLanes& get();
  static bool is_possible() { return __builtin_cpu_supports("sse4.2"); }

  [[gnu::target("sse4.2")]] LOCKSTEP_DECL std::uint32_t update(std::uint32_t crc,
                                                               const unsigned char* p,
                                                               std::size_t n) const;

 private:
  static constexpr std::size_t lane = 1360;  // three fill all but 16 of 4096 bytes

  /// The shift is linear: the result for a register is the xor of the results for its bits.
  LOCKSTEP_DECL Crc32cLanes();
  LOCKSTEP_DECL std::uint32_t shift(std::uint32_t crc) const;
  LOCKSTEP_DECL static std::uint64_t word(const unsigned char* p);

  std::array<std::array<std::uint32_t, 256>, 4> table_{};
};
#endif

/// CRC32C of n bytes that follow data with the CRC32C `before`.
/// \code
///   crc32c("123456789", 9) == 0xE3069283
/// \endcode
LOCKSTEP_DECL std::uint32_t crc32c(const void* p, std::size_t n, std::uint32_t before = 0);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/numbers/crc32c.ipp"
#endif
