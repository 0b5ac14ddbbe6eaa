#pragma once

#include "lockstep/core/numbers/crc32c.hpp"

#include <cstring>

namespace lockstep::detail {

const Crc32cTables& Crc32cTables::get() {
  static const Crc32cTables tables;
  return tables;
}

std::uint32_t Crc32cTables::update(std::uint32_t crc, const unsigned char* p, std::size_t n) const {
  for (; n >= 8; p += 8, n -= 8) {
    std::uint32_t low = crc;
    for (unsigned i = 0; i < 4; ++i) low ^= std::uint32_t{p[i]} << (8 * i);
    crc = 0;
    for (unsigned i = 0; i < 4; ++i)
      crc ^= table_[7 - i][low >> (8 * i) & 0xFF] ^ table_[3 - i][p[4 + i]];
  }
  for (; n > 0; ++p, --n) crc = crc >> 8 ^ table_[0][(crc ^ *p) & 0xFF];
  return crc;
}

Crc32cTables::Crc32cTables() {
  constexpr std::uint32_t polynomial = 0x82F6'3B78;  // in reflected bit order
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
    table_[0][byte] = crc;
  }
  for (std::size_t i = 1; i < 8; ++i)
    for (std::size_t byte = 0; byte < 256; ++byte)
      table_[i][byte] = table_[i - 1][byte] >> 8 ^ table_[0][table_[i - 1][byte] & 0xFF];
}

#if defined(__x86_64__)
const Crc32cLanes& Crc32cLanes::get() {
  static const Crc32cLanes lanes;
  return lanes;
}

[[gnu::target("sse4.2")]] std::uint32_t Crc32cLanes::update(std::uint32_t crc,
                                                            const unsigned char* p,
                                                            std::size_t n) const {
  for (; n >= 3 * lane; p += 3 * lane, n -= 3 * lane) {
    std::uint64_t a = crc, b = 0, c = 0;
    for (std::size_t i = 0; i < lane; i += 8) {
      a = __builtin_ia32_crc32di(a, word(p + i));
      b = __builtin_ia32_crc32di(b, word(p + lane + i));
      c = __builtin_ia32_crc32di(c, word(p + 2 * lane + i));
    }
    crc = shift(shift(static_cast<std::uint32_t>(a)) ^ static_cast<std::uint32_t>(b)) ^
          static_cast<std::uint32_t>(c);
  }
  std::uint64_t wide = crc;
  for (; n >= 8; p += 8, n -= 8) wide = __builtin_ia32_crc32di(wide, word(p));
  crc = static_cast<std::uint32_t>(wide);
  for (; n > 0; ++p, --n) crc = __builtin_ia32_crc32qi(crc, *p);
  return crc;
}

Crc32cLanes::Crc32cLanes() {
  const std::array<unsigned char, lane> zeros{};
  std::array<std::uint32_t, 32> bit{};
  for (std::size_t i = 0; i < 32; ++i)
    bit[i] = Crc32cTables::get().update(std::uint32_t{1} << i, zeros.data(), lane);
  for (std::size_t byte = 0; byte < 4; ++byte)
    for (std::size_t value = 0; value < 256; ++value)
      for (std::size_t i = 0; i < 8; ++i)
        if (value >> i & 1) table_[byte][value] ^= bit[8 * byte + i];
}

std::uint32_t Crc32cLanes::shift(std::uint32_t crc) const {
  return table_[0][crc & 0xFF] ^ table_[1][crc >> 8 & 0xFF] ^ table_[2][crc >> 16 & 0xFF] ^
         table_[3][crc >> 24];
}

std::uint64_t Crc32cLanes::word(const unsigned char* p) {
  std::uint64_t value = 0;
  std::memcpy(&value, p, sizeof value);
  return value;
}

#endif

#if defined(__x86_64__)
// g++ and clang have different names for this instruction.
#if defined(__clang__)
#define LOCKSTEP_MULTIPLY(a, b, halves) __builtin_ia32_pclmulqdq512(a, b, halves)
#else
#define LOCKSTEP_MULTIPLY(a, b, halves) __builtin_ia32_vpclmulqdq_v8di(a, b, halves)
#endif
/// By carry-less multiplication of 512 bits (VPCLMULQDQ), for long data: V. Gopal et al., "Fast CRC
/// Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009.
class Crc32cFold {
  typedef long long Lane __attribute__((vector_size(64)));  // nvcc ignores attributes of `using`

 public:
  static constexpr std::size_t block = 256, least = 2 * block;

  static bool is_possible() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
  }

  /// Folds all whole blocks, given the register `crc` of the data before them, into one block `to`.
  /// From a register of 0, this block leads to the same register as the whole blocks. \return the
  /// number of bytes folded.
  [[gnu::target("avx512f,vpclmulqdq")]] static std::size_t fold(std::uint32_t crc,
                                                                const unsigned char* p,
                                                                std::size_t n, unsigned char* to) {
    Lane a, b, c, d, next;
    std::memcpy(&a, p, 64);
    std::memcpy(&b, p + 64, 64);
    std::memcpy(&c, p + 128, 64);
    std::memcpy(&d, p + 192, 64);
    a[0] ^= crc;
    // x^(8 block + 32) and x^(8 block - 32) modulo the polynomial, in reflected bit order.
    const Lane factor{0xdcb1'7aa4, 0xb9e0'2b86, 0xdcb1'7aa4, 0xb9e0'2b86,
                      0xdcb1'7aa4, 0xb9e0'2b86, 0xdcb1'7aa4, 0xb9e0'2b86};
    std::size_t at = block;
    for (; n - at >= block; at += block) {
      std::memcpy(&next, p + at, 64);
      a = next ^ LOCKSTEP_MULTIPLY(a, factor, 0) ^ LOCKSTEP_MULTIPLY(a, factor, 0x11);
      std::memcpy(&next, p + at + 64, 64);
      b = next ^ LOCKSTEP_MULTIPLY(b, factor, 0) ^ LOCKSTEP_MULTIPLY(b, factor, 0x11);
      std::memcpy(&next, p + at + 128, 64);
      c = next ^ LOCKSTEP_MULTIPLY(c, factor, 0) ^ LOCKSTEP_MULTIPLY(c, factor, 0x11);
      std::memcpy(&next, p + at + 192, 64);
      d = next ^ LOCKSTEP_MULTIPLY(d, factor, 0) ^ LOCKSTEP_MULTIPLY(d, factor, 0x11);
    }
    std::memcpy(to, &a, 64);
    std::memcpy(to + 64, &b, 64);
    std::memcpy(to + 128, &c, 64);
    std::memcpy(to + 192, &d, 64);
    return at;
  }
};
#undef LOCKSTEP_MULTIPLY
#endif

std::uint32_t crc32c(const void* p, std::size_t n, std::uint32_t before) {
  const auto* const bytes = static_cast<const unsigned char*>(p);
#if defined(__x86_64__)
  static const bool has_lanes = Crc32cLanes::is_possible(),
                    folds = has_lanes && Crc32cFold::is_possible();
  if (folds && n >= Crc32cFold::least) {
    unsigned char last[Crc32cFold::block];
    const std::size_t folded = Crc32cFold::fold(~before, bytes, n, last);
    const Crc32cLanes& lanes = Crc32cLanes::get();
    return ~lanes.update(lanes.update(0, last, sizeof last), bytes + folded, n - folded);
  }
  if (has_lanes) return ~Crc32cLanes::get().update(~before, bytes, n);
#endif
  return ~Crc32cTables::get().update(~before, bytes, n);
}

}  // namespace lockstep::detail
