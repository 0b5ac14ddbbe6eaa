/// \file
/// Philox4x32-10, a counter-based random number generator. Invariant: a draw is a pure function of
/// (key, counter), independent of how a batch was sliced and of the order of threads. Source: J.
/// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace lockstep {

/// The bijection: maps 128 bits of counter and 64 bits of key to 128 random bits.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  // Plain variables, since an unoptimized program indexes an array by a call.
  std::uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
  std::uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * x0, b = std::uint64_t{0xCD9E8D57u} * x2;
    x0 = static_cast<std::uint32_t>(b >> 32) ^ x1 ^ k0;
    x1 = static_cast<std::uint32_t>(b);
    x2 = static_cast<std::uint32_t>(a >> 32) ^ x3 ^ k1;
    x3 = static_cast<std::uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {x0, x1, x2, x3};
}

// Known-answer tests of the Random123 distribution.
static_assert(philox4x32({0, 0, 0, 0}, {0, 0})[0] == 0x6627e8d5u);
static_assert(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
                         {0xa4093822u, 0x299f31d0u})[3] == 0x24126ea1u);

/// FNV-1a hash of a name ("conv2d/kernel", "shuffle"), which may continue that of a prefix, `h`.
/// Stable across compilers and platforms.
constexpr std::uint64_t hash_name(std::string_view name, std::uint64_t h = 14695981039346656037u) {
  for (const char c : name) h = (h ^ static_cast<std::uint8_t>(c)) * 1099511628211u;
  return h;
}

/// The finalizer of splitmix64: mixes `a` and `b` into 64 bits, so that nearby seeds give unrelated
/// keys.
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a + 0x9E3779B97F4A7C15u * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// A random stream: `Philox(key, stream)` uses the counters (0, stream), (1, stream), ...
///
/// Satisfies std::uniform_random_bit_generator. Unlike the standard distributions, `uniform`,
/// `normal` and `below` give the same numbers with every standard library.
/// \code
///   lockstep::Philox g(lockstep::mix(seed, lockstep::hash_name("dropout")), ordinal);
///   float u = g.uniform();   // in [0, 1)
/// \endcode
class Philox {
 public:
  using result_type = std::uint32_t;

  constexpr explicit Philox(std::uint64_t key, std::uint64_t stream = 0, std::uint32_t block = 0)
      : key_{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)},
        stream_{static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
        block_{block} {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }

  constexpr result_type operator()() {
    if (lane_ == 0) words_ = philox4x32({block_++, 0, stream_[0], stream_[1]}, key_);
    const result_type word = words_[lane_];
    lane_ = (lane_ + 1) % 4;
    return word;
  }

  /// Uniform in [0, 1), with 53 random bits.
  constexpr double uniform() {
    const std::uint64_t high = (*this)(), low = (*this)();
    return static_cast<double>((high << 21) ^ (low >> 11)) * 0x1p-53;
  }

  /// Standard normal, by Box-Muller. The second value of each pair is discarded, so a draw leaves
  /// no hidden state.
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(6.283185307179586476925 * uniform());
  }

  /// Standard normal, redrawn until within two standard deviations (Keras' truncated normal).
  double truncated_normal() {
    for (;;) {
      const double x = normal();
      if (x > -2.0 && x < 2.0) return x;
    }
  }

  /// Uniform in [0, n) for n > 0, without bias. Source: D. Lemire, "Fast random integer generation
  /// in an interval", 2019.
  constexpr std::uint32_t below(std::uint32_t n) {
    std::uint64_t product = std::uint64_t{(*this)()} * n;
    if (static_cast<std::uint32_t>(product) < n) {
      const std::uint32_t threshold = (0u - n) % n;
      while (static_cast<std::uint32_t>(product) < threshold)
        product = std::uint64_t{(*this)()} * n;
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

 private:
  std::array<std::uint32_t, 2> key_, stream_;
  std::uint32_t block_;
  std::size_t lane_ = 0;
  std::array<std::uint32_t, 4> words_{};
};

}  // namespace lockstep
