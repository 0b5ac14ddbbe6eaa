#pragma once

#include "lockstep/training/asynchronous/distant_tables.hpp"

namespace lockstep::detail {

/// Whether the first elements are the same in one call and in two.
[[gnu::cold]] inline bool draws_each_alone(const NamedParameter& p, std::uint64_t seed) {
  const std::size_t half = 4 * static_cast<std::size_t>(p.shape.channels());
  if (2 * half > p.shape.size()) return false;
  std::vector<double> one(2 * half), two(2 * half);
  Philox a = generator_of(p, seed), b = generator_of(p, seed);
  p.initializer(a, p.shape, p.fans, one);
  p.initializer(b, p.shape, p.fans, std::span(two).first(half));
  p.initializer(b, p.shape, p.fans, std::span(two).last(half));
  return one == two;
}

void draw_in_blocks(const NamedParameter& p, std::uint64_t seed, std::size_t end,
                    FunctionRef<void(std::span<const double>, std::size_t)> keep) {
  constexpr std::size_t most = std::size_t{1} << 16;
  const std::size_t all = p.shape.size(), each = draws_each_alone(p, seed) ? most : all;
  std::vector<double> values(std::min(each, all));
  Philox generator = generator_of(p, seed);
  for (std::size_t first = 0; first < std::min(end, all); first += each) {
    const std::span<double> next(values.data(), std::min(each, all - first));
    p.initializer(generator, p.shape, p.fans, next);
    keep(next, first);
  }
}

}  // namespace lockstep::detail
