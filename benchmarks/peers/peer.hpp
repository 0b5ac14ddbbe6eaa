/// \file
/// The shared part of run.py's C++ programs, ours and the peers', as support.py is for Python:
/// command line, data, timing and the result line. Uses the standard library only.
#pragma once

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace peer {

constexpr std::size_t chunk = 50;         // steps per chunk
constexpr std::size_t examples = 60'000;  // as MNIST
constexpr std::size_t pixels = 28 * 28;

struct Options {
  std::string model = "cnn", work = "fit";
  int threads = 1;
  std::size_t steps = 500, warmup = 100, batch = 64;

  std::size_t chunks() const { return (warmup + steps) / chunk; }
};

[[noreturn]] inline void refuse(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(2);
}

/// Binds the process to its first `count` CPUs. Call before a library counts the CPUs.
inline void limit_cpus(int count) {
  cpu_set_t allowed, first;
  CPU_ZERO(&first);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) refuse("the CPUs cannot be read");
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&first) < count; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &first);
  if (CPU_COUNT(&first) < count) refuse("--threads: more than the CPUs of this process");
  sched_setaffinity(0, sizeof first, &first);
}

inline Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) refuse(name + ": a value is missing");
    const std::string_view text = argv[i + 1];
    const auto number = [&](auto& out) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
      if (error != std::errc{} || end != text.data() + text.size() || out < 1)
        refuse(name + ": give a positive whole number");
    };
    const auto one_of = [&](std::string& out, std::initializer_list<std::string_view> known) {
      if (std::find(known.begin(), known.end(), text) == known.end())
        refuse(name + ": '" + std::string(text) + "' is not known");
      out = text;
    };
    if (name == "--model")
      one_of(o.model, {"cnn", "mlp"});
    else if (name == "--work")
      one_of(o.work, {"fit", "evaluate", "predict"});
    else if (name == "--threads")
      number(o.threads);
    else if (name == "--steps")
      number(o.steps);
    else if (name == "--warmup")
      number(o.warmup);
    else if (name == "--batch")
      number(o.batch);
    else
      refuse("unknown option " + name +
             "; there are --model, --work, --threads, --steps, --warmup, --batch");
  }
  if (o.steps % chunk != 0 || o.warmup % chunk != 0)
    refuse("--steps and --warmup must be multiples of " + std::to_string(chunk));
  if (o.batch * chunk > examples) refuse("--batch: at most " + std::to_string(examples / chunk));
  limit_cpus(o.threads);
  return o;
}

/// Random bytes in MNIST's shape: the speed of a step does not depend on the images.
struct Digits {
  std::vector<std::uint8_t> images = std::vector<std::uint8_t>(examples * pixels);
  std::vector<std::int32_t> labels = std::vector<std::int32_t>(examples);

  Digits() {
    std::uint32_t state = 1;
    const auto draw = [&] { return (state = state * 1664525 + 1013904223) >> 24; };
    for (auto& p : images) p = static_cast<std::uint8_t>(draw());
    for (auto& l : labels) l = static_cast<std::int32_t>(draw() % 10);
  }
};

/// Times chunks: call begin() before the first step, end() when the results are on the host.
class Chunks {
 public:
  void begin() { start_ = Clock::now(); }
  void end() {
    const std::chrono::duration<double, std::milli> time = Clock::now() - start_;
    milliseconds_.push_back(time.count() / chunk);
  }
  /// Prints the JSON line, without the warm-up chunks. `versions` is JSON: "\"torch\": \"2\"".
  void report(const std::string& program, const Options& o, const std::string& versions) const {
    std::vector<double> timed(milliseconds_.begin() + static_cast<std::ptrdiff_t>(o.warmup / chunk),
                              milliseconds_.end());
    std::sort(timed.begin(), timed.end());
    const std::size_t n = timed.size();
    const double median = (timed[(n - 1) / 2] + timed[n / 2]) / 2;
    std::printf(
        "{\"program\": \"%s\", \"threads\": %d, \"batch\": %zu, \"step_ms\": {\"median\": %.4f, "
        "\"min\": %.4f, \"p90\": %.4f}, \"versions\": {%s}}\n",
        program.c_str(), o.threads, o.batch, median, timed.front(), timed[(9 * n + 9) / 10 - 1],
        versions.c_str());
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
  std::vector<double> milliseconds_;
};

}  // namespace peer
