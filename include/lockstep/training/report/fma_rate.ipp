#pragma once

#include "lockstep/training/report/fma_rate.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

namespace lockstep::detail {

#if defined(__clang__)
#define LOCKSTEP_FMA_OPTIMIZED
#define LOCKSTEP_FMA_CONTRACT _Pragma("clang fp contract(fast)")
#else
#define LOCKSTEP_FMA_OPTIMIZED [[gnu::optimize("O2", "fp-contract=fast")]]
#define LOCKSTEP_FMA_CONTRACT
#endif
#if defined(__x86_64__)
#define LOCKSTEP_FMA_TARGET(isa) [[gnu::target(isa)]]
#else
#define LOCKSTEP_FMA_TARGET(isa)
#endif

/// Defines a loop of FmaLoop on vectors of `size` bytes. Each element converges to 0.5, the fixed
/// point of a -> a / 2 + 1 / 4. A macro, since templates and lambdas do not apply the target attribute to their vectors.
#define LOCKSTEP_FMA_LOOP(name, T, isa, size)                                                  \
  LOCKSTEP_FMA_OPTIMIZED LOCKSTEP_FMA_TARGET(isa) inline double name(long iterations, T one) { \
    LOCKSTEP_FMA_CONTRACT                                                                      \
    using Vector [[gnu::vector_size(size)]] = T;                                               \
    const Vector factor = Vector{} + T(0.5) * one, term = Vector{} + T(0.25) * one;            \
    /* different starts: equal sums would be merged into one */                                \
    Vector a = term, b = a + term, c = b + term, d = c + term, e = d + term, f = e + term;     \
    Vector g = f + term, h = g + term, i = h + term, j = i + term, k = j + term, l = k + term; \
    for (; iterations > 0; --iterations) {                                                     \
      a = a * factor + term;                                                                   \
      b = b * factor + term;                                                                   \
      c = c * factor + term;                                                                   \
      d = d * factor + term;                                                                   \
      e = e * factor + term;                                                                   \
      f = f * factor + term;                                                                   \
      g = g * factor + term;                                                                   \
      h = h * factor + term;                                                                   \
      i = i * factor + term;                                                                   \
      j = j * factor + term;                                                                   \
      k = k * factor + term;                                                                   \
      l = l * factor + term;                                                                   \
    }                                                                                          \
    const Vector sum = a + b + c + d + e + f + g + h + i + j + k + l;                          \
    double total = 0;                                                                          \
    for (unsigned n = 0; n < size / sizeof(T); ++n) total += static_cast<double>(sum[n]);      \
    return total;                                                                              \
  }

LOCKSTEP_FMA_LOOP(fma_loop_128, float, "sse2", 16)
LOCKSTEP_FMA_LOOP(fma_loop_128_double, double, "sse2", 16)
#if defined(__x86_64__)
LOCKSTEP_FMA_LOOP(fma_loop_256, float, "avx2,fma", 32)
LOCKSTEP_FMA_LOOP(fma_loop_256_double, double, "avx2,fma", 32)
LOCKSTEP_FMA_LOOP(fma_loop_512, float, "avx512f", 64)
LOCKSTEP_FMA_LOOP(fma_loop_512_double, double, "avx512f", 64)
#endif

#undef LOCKSTEP_FMA_LOOP
#undef LOCKSTEP_FMA_TARGET
#undef LOCKSTEP_FMA_CONTRACT
#undef LOCKSTEP_FMA_OPTIMIZED

FmaLoop widest_fma_loop() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") != 0) return {fma_loop_512, fma_loop_512_double, 64};
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0)
    return {fma_loop_256, fma_loop_256_double, 32};
#endif
  return {fma_loop_128, fma_loop_128_double, 16};
}

double fma_rate(bool in_double, std::size_t threads,
                FunctionRef<void(FunctionRef<void()>)> in_each_thread) {
  using SteadyClock = std::chrono::steady_clock;
  constexpr int rounds = 10;
  constexpr double goal = 3e-3;  // seconds of a round; starting a team takes microseconds
  const FmaLoop loop = widest_fma_loop();
  const std::size_t lanes = loop.bytes / (in_double ? sizeof(double) : sizeof(float));
  const volatile float one = 1;  // hides the constants from the optimizer
  long iterations = 10'000;
  const auto run = [&] {
    const double sum = in_double ? loop.in_double(iterations, one) : loop.in_float(iterations, one);
    asm volatile("" : : "m"(sum));  // the loop must run even though nobody reads its sum
  };
  // The fastest of `rounds` calls: one that another program interrupts takes milliseconds longer.
  const auto seconds_of = [&](auto&& call) {
    double best = std::numeric_limits<double>::infinity();
    for (int round = 0; round < rounds; ++round) {
      const SteadyClock::time_point begin = SteadyClock::now();
      call();
      best = std::min(best, std::chrono::duration<double>(SteadyClock::now() - begin).count());
    }
    return std::max(best, 1e-9);
  };
  iterations = static_cast<long>(std::clamp(1e4 * goal / seconds_of(run), 1e4, 1e7));
  const double seconds = seconds_of([&] { in_each_thread(run); });
  return 2.0 * 12 * static_cast<double>(lanes * threads) * static_cast<double>(iterations) /
         seconds;
}

}  // namespace lockstep::detail
