/// \file
/// Virtual time and random numbers of a simulation.
#pragma once

#include <cstdint>
#include <limits>

namespace lockstep::testing::detail {

/// Nanoseconds since the start of the simulation.
using SimTime = std::int64_t;
inline constexpr SimTime never = std::numeric_limits<SimTime>::max();
inline constexpr SimTime microsecond = 1'000, millisecond = 1'000'000, second = 1'000'000'000;

/// SplitMix64 (Steele, Lea, Flood 2014): all decisions of a simulation come from one of these.
class SimRandom {
 public:
  explicit SimRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// A number below `n`, which is at least 1.
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  /// A number in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace lockstep::testing::detail
