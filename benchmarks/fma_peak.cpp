/// \file
/// Measures the machine's float32 peak: multiply-adds on registers only, in the given number of
/// threads. A benchmark's share of peak is its FLOP/s divided by this figure from the same run.
///
/// Uses the processor's widest vector instruction set, chosen at run time. A loop keeps 12
/// accumulators, more than latency times units (4 x 2) on today's cores, and its operands fit into
/// the 16 registers of AVX2. A multiply-add counts as two operations. All threads start together,
/// a round's time is that of the slowest thread, and the best round is printed.
///
/// Usage: fma_peak [--threads N] [--seconds S]   prints {"gflops": x, "isa": "...", "threads": N}

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#define FMA_PEAK_TARGET(isa) __attribute__((target(isa)))
#else
#define FMA_PEAK_TARGET(isa)
#endif

/// Defines `name(iterations, value)`: 12 x iterations multiply-adds on vectors of `bytes` bytes.
/// A macro, since neither templates nor lambdas apply the target attribute to their vectors.
#define FMA_PEAK_LOOP(name, isa, bytes)                                                        \
  FMA_PEAK_TARGET(isa) float name(long iterations, float value) {                              \
    using Vector = float __attribute__((vector_size(bytes)));                                  \
    const Vector factor = Vector{} + 0.5f * value;                                             \
    const Vector term = Vector{} + 0.25f * value;                                              \
    /* different starts: equal accumulators would be merged into one */                        \
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
    float total = 0;                                                                           \
    for (unsigned lane = 0; lane < sizeof(Vector) / sizeof(float); ++lane) total += sum[lane]; \
    return total;                                                                              \
  }

namespace {

constexpr int accumulators = 12;
constexpr int rounds = 5;
using Clock = std::chrono::steady_clock;

FMA_PEAK_LOOP(loop_128, "sse2", 16)

#if defined(__x86_64__)
FMA_PEAK_LOOP(loop_256, "avx2,fma", 32)
FMA_PEAK_LOOP(loop_512, "avx512f", 64)
#endif

struct Loop {
  float (*run)(long, float);
  int lanes;
  const char* isa;
};

Loop widest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {loop_512, 16, "avx512f"};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {loop_256, 8, "avx2+fma"};
  return {loop_128, 4, "sse2"};
#else
  return {loop_128, 4, "128-bit vectors"};
#endif
}

struct Options {
  int threads = 1;
  double seconds = 1;
};

/// GFLOP/s of one round; threads spin until all have started. NaN if a sum is wrong.
double measure(const Loop& loop, int threads, long iterations) {
  // Each accumulator converges to 0.5, the fixed point of a -> a * 0.5 + 0.25.
  const float expected = 0.5f * static_cast<float>(accumulators * loop.lanes);
  const volatile float one = 1;  // hides the constants from the optimizer
  std::atomic<int> waiting{threads};
  std::atomic<bool> correct{true};
  std::vector<Clock::time_point> begin(static_cast<std::size_t>(threads)), end(begin);
  std::vector<std::thread> workers;
  for (std::size_t index = 0; index < begin.size(); ++index)
    workers.emplace_back([&, index] {
      waiting.fetch_sub(1);
      while (waiting.load() > 0) std::this_thread::yield();
      begin[index] = Clock::now();
      const float total = loop.run(iterations, one);
      end[index] = Clock::now();
      if (std::abs(total - expected) > 1e-3f) correct = false;
    });
  for (std::thread& worker : workers) worker.join();
  if (!correct) return std::nan("");
  const std::chrono::duration<double> wall =
      *std::max_element(end.begin(), end.end()) - *std::min_element(begin.begin(), begin.end());
  const double operations =
      2.0 * accumulators * loop.lanes * static_cast<double>(iterations) * threads;
  return operations / wall.count() * 1e-9;
}

template <class Number>
bool read(std::string_view text, Number& value) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && rest == text.data() + text.size();
}

bool parse(int count, char** arguments, Options& options) {
  for (int index = 1; index < count; index += 2) {
    if (index + 1 == count) return false;
    const std::string_view name = arguments[index];
    const std::string_view value = arguments[index + 1];
    const bool known = name == "--threads"   ? read(value, options.threads)
                       : name == "--seconds" ? read(value, options.seconds)
                                             : false;
    if (!known) return false;
  }
  return options.threads >= 1 && options.threads <= 4096 && options.seconds > 0 &&
         options.seconds <= 3600;
}

}  // namespace

int main(int count, char** arguments) {
  Options options;
  if (!parse(count, arguments, options)) {
    std::fputs("usage: fma_peak [--threads N] [--seconds S], N from 1 to 4096, S above 0\n",
               stderr);
    return 2;
  }
  const Loop loop = widest();
  // A short round wakes the core and determines how many iterations fill a round.
  constexpr long probe = 2'000'000;
  const double speed = measure(loop, options.threads, probe);
  const double per_iteration = 2.0 * accumulators * loop.lanes * options.threads;
  const double fill = options.seconds / rounds * speed * 1e9 / per_iteration;
  const long iterations = std::max(probe, std::isfinite(fill) ? static_cast<long>(fill) : probe);
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const double gflops = measure(loop, options.threads, iterations);
    if (std::isnan(gflops)) {
      std::fputs("fma_peak: a sum is wrong, so the loop was not executed\n", stderr);
      return 1;
    }
    best = std::max(best, gflops);
  }
  std::printf("{\"gflops\": %.1f, \"isa\": \"%s\", \"threads\": %d}\n", best, loop.isa,
              options.threads);
}
