/// \file
/// The Cpu device: options, cores, threads, memory, errors and forked children.
#include "lockstep/devices/cpu/device.hpp"

#include <sched.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "lockstep/core/process/openmp_places.hpp"
#include "lockstep/core/process/threads.hpp"
#include "lockstep/cpu.hpp"
#include "lockstep/strategies/mirrored.hpp"
#include "support/child.hpp"
#include "support/log_lines.hpp"

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {
int cores() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  return CPU_COUNT(&set);
}
}  // namespace

static_assert(Device<CpuBFloat16> && HostDevice<CpuBFloat16> &&
              CpuBFloat16::precision == "mixed_bfloat16" &&
              std::is_same_v<ActivationOf<CpuBFloat16>, bfloat16> &&
              std::is_same_v<ActivationOf<Cpu>, float>);
static_assert(Device<Cpu> && HostDevice<Cpu> && Cpu::name == "cpu" && Cpu::precision == "float32");

// Must be the first case: the warning is logged once per process.
TEST_CASE("more threads than cores give one warning") {
  std::vector<std::string> message;
  const LogSink before = set_log([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::warning) message.emplace_back(text);
  });
  CHECK(Cpu{.threads = cores() + 1}.open(1, 0).threads() == cores() + 1);
  Cpu{.threads = cores() + 1}.open(1, 0);
  set_log(before);
  Cpu{}.open(static_cast<std::size_t>(cores()) + 1, 0);
  REQUIRE(message.size() == 1);
  CHECK_THAT(message[0], ContainsSubstring(std::to_string(cores() + 1) + " threads"));
}

TEST_CASE("by default the replicas divide the cores of the process") {
  CHECK(Cpu{}.open(1, 0).threads() == cores());
  CHECK(Cpu{}.open(static_cast<std::size_t>(cores()), 0).threads() == 1);
  CHECK(Cpu{}.open(1000, 999).threads() == 1);
  CHECK(Cpu{.threads = 1}.open(1, 0).threads() == 1);
}

TEST_CASE("a negative number of threads is an error that names the option") {
  CHECK_THROWS_MATCHES(
      Cpu{.threads = -2}.open(1, 0), UsageError,
      MessageMatches(ContainsSubstring("Cpu::threads is -2; it must be at least 1")));
}

TEST_CASE("an absurd number of threads is an error that names the option and the limit") {
  for (const int threads : {1025, 1'000'000})
    CHECK_THROWS_MATCHES(
        Cpu{.threads = threads}.open(1, 0), UsageError,
        MessageMatches(ContainsSubstring("Cpu::threads") && ContainsSubstring("1024") &&
                       ContainsSubstring("0 for all cores")));
}

TEST_CASE("a scope sets the team size of the calling thread and restores it") {
  const int before = omp_get_max_threads();
  auto context =
      Cpu{.threads = 3 - before % 2}.open(1, 0);  // 2 or 3, never `before` when that is 1 or 2
  {
    const auto scope = context.scope();
    CHECK(omp_get_max_threads() == context.threads());
  }
  CHECK(omp_get_max_threads() == before);
}

TEST_CASE("a brief scope sets the team size and the cores as a scope does") {
  const int before = omp_get_max_threads();
  const lockstep::detail::Cores all;
  for (const int threads : {1, 2}) {
    auto context = Cpu{.threads = threads}.open(1, 0);
    {
      const auto scope = context.brief_scope();
      CHECK(omp_get_max_threads() == context.threads());
    }
    CHECK(omp_get_max_threads() == before);
  }
  auto bound = Cpu{1}.open(2, 0);
  {
    const auto scope = bound.brief_scope();
    CHECK(lockstep::detail::Cores() == all.share(2, 1));
  }
  CHECK(lockstep::detail::Cores() == all);
}

TEST_CASE("memory is aligned to 64 bytes and can be copied, cleared and added to") {
  auto context = Cpu{.threads = 2}.open(1, 0);
  constexpr std::size_t n = 100'000, bytes = n * sizeof(float);
  std::byte* const p = context.allocate(bytes);
  CHECK(reinterpret_cast<std::uintptr_t>(p) % 64 == 0);
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i);
  context.upload(p, reinterpret_cast<const std::byte*>(values.data()), bytes);
  context.add(reinterpret_cast<float*>(p), values.data(), n);
  std::vector<float> back(n);
  context.download(reinterpret_cast<std::byte*>(back.data()), p, bytes);
  CHECK(back[1] == 2.0f);
  CHECK(back[n - 1] == 2.0f * static_cast<float>(n - 1));
  context.clear(p, bytes);
  context.download(reinterpret_cast<std::byte*>(back.data()), p, bytes);
  CHECK(std::all_of(back.begin(), back.end(), [](float v) { return v == 0.0f; }));
  CHECK(context.feed(0, values.data(), n) == values.data());
  context.release(p, bytes);
}

TEST_CASE("an error of oneDNN is a DeviceError with op, shape and remedy") {
  auto context = Cpu{.threads = 1}.open(1, 0);
  Conv2DOp op{shape(4, 4, 1), 8, {3, 3}, {1, 1}, {1, 1}, valid, true};
  op.in = shape(4, -4, 1);
  using Calls = lockstep::detail::KernelCalls<Conv2DOp, Cpu>;
  CHECK_THROWS_MATCHES(
      Calls::prepare(&op, context, 1), DeviceError,
      MessageMatches(ContainsSubstring("conv2d") && ContainsSubstring(to_string(op.out())) &&
                     ContainsSubstring("invalid_arguments")));
}

TEST_CASE("Cpu with an index computes on its share of the cores") {
  const lockstep::detail::Cores all;
  for (const int index : {0, 1}) {
    auto context = lockstep::Cpu{index}.open(2, 0);
    const auto share = all.share(2, static_cast<std::size_t>(index));
    CHECK(context.threads() == share.count());
    const auto scope = context.scope();
    CHECK(lockstep::detail::Cores() == share);
  }
  CHECK((lockstep::Cpu{0, 3}.open(2, 0).threads()) == 3);
  CHECK_THROWS_AS((lockstep::Mirrored<lockstep::Cpu>{.replicas = 2, .on = lockstep::Cpu{0}}.open()),
                  lockstep::UsageError);
  CHECK(lockstep::detail::Cores() == all);
}

TEST_CASE("all threads of a Cpu run on its cores, whatever the caller's affinity was before") {
  const lockstep::detail::Cores all;
  const auto cores_of_threads = [](lockstep::CpuContext<float>& context) {
    const auto scope = context.scope();
    std::vector<lockstep::detail::Cores> cores(2);
    lockstep::detail::parallel_ranges(2, 2, 1, [&](lockstep::Slice, std::size_t index) {
      cores[index] = lockstep::detail::Cores();
    });
    return cores;
  };
  auto free = lockstep::Cpu{-1, 2}.open(1, 0);
  for (const int index : {0, 1, 0}) {
    auto bound = lockstep::Cpu{index, 2}.open(2, 0);
    const auto share = all.share(2, static_cast<std::size_t>(index));
    CHECK(cores_of_threads(bound) == std::vector{share, share});
    CHECK(cores_of_threads(free) == std::vector{all, all});
  }
}

TEST_CASE("an index beyond the list of devices is an error") {
  CHECK_THROWS_AS(lockstep::Cpu{2}.open(2, 0), lockstep::UsageError);
  CHECK_THROWS_AS(lockstep::Cpu{-2}.open(2, 0), lockstep::UsageError);
  try {
    lockstep::Cpu{2}.open(2, 0);
  } catch (const lockstep::UsageError& e) {
    CHECK(std::string(e.what()) ==
          "cpu: index 2 is out of range for 2 replicas; the devices of a list of 2 are Cpu{0} to "
          "Cpu{1}");
  }
}

TEST_CASE("without bfloat16 instructions the error recommends float32") {
  const auto message = [](bool processor, bool library) -> std::string {
    try {
      lockstep::detail::check_bfloat16(processor, library);
    } catch (const lockstep::DeviceError& e) {
      return e.what();
    }
    return "";
  };
  CHECK(message(true, true).empty());
  CHECK(message(false, false) ==
        "cpu: this processor has no instructions for bfloat16 (avx512_bf16 or AMX); use ls::Cpu, "
        "which computes in float32");
  CHECK(message(false, true) == message(false, false));
  CHECK_THAT(message(true, false),
             ContainsSubstring("ONEDNN_MAX_CPU_ISA") && ContainsSubstring("ls::Cpu"));
  if (lockstep::detail::has_bfloat16_vectors() && lockstep::detail::onednn::has_bfloat16())
    CHECK(CpuBFloat16{.threads = 1}.open(1, 0).threads() == 1);
  else
    CHECK_THROWS_AS(CpuBFloat16{}.open(1, 0), DeviceError);
}

// Hidden: the next case runs this one in processes with other settings.
TEST_CASE("cores are counted where OpenMP binds threads", "[.child]") {
  const auto setting = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const testing::LogLines log;
  const int threads = Cpu{}.open(1, 0).threads();
  CHECK(std::to_string(threads) == setting("EXPECTED_THREADS"));
  if (setting("EXPECTED_WARNING").empty()) {
    CHECK(log.lines.empty());
  } else {
    REQUIRE(log.lines.size() == 1);
    CHECK_THAT(log.lines[0], ContainsSubstring(setting("EXPECTED_WARNING")));
  }
  if (log.lines.empty()) {  // all cores are available
    std::vector<lockstep::detail::Cores> cores(2), background(2);
    auto session = Mirrored<Cpu>{.replicas = 2, .on = {.threads = 1}}.open();
    session.each([&](const ReplicaContext<Cpu>& replica) {
      cores[replica.rank] = lockstep::detail::Cores();
    });
    const auto all = lockstep::detail::Cores::of_process();
    if (lockstep::detail::openmp_binds()) {
      CHECK(cores[0] == all.share(2, 0));
      CHECK(cores[1] == all.share(2, 1));
    }
    lockstep::detail::start_thread("test", [&] {
      background[0] = lockstep::detail::Cores();
    }).join();
    CHECK(background[0] == all);
  }
}

TEST_CASE("a setting that binds OpenMP's threads loses no core, or a warning names it") {
  const int all = lockstep::detail::Cores().count();
  if (all < 2 || lockstep::detail::read_cpu_quota()) SKIP("needs two cores");
  const std::string every = std::to_string(all);
  struct Row {
    const char *name, *value, *threads, *warning;
  };
  for (const Row& row :
       {Row{"OMP_PROC_BIND", "true", every.c_str(), ""},
        {"OMP_PROC_BIND", "spread", every.c_str(), ""},
        {"OMP_PLACES", "cores", every.c_str(), ""},
        {"GOMP_CPU_AFFINITY", "0-1023", every.c_str(), ""},
        {"OMP_PROC_BIND", "master", "1",
         "cpu: OMP_PROC_BIND=master restricts OpenMP's threads to 1 of "},
        {"OMP_PLACES", "{0}", "1", "cpu: OMP_PLACES={0} restricts OpenMP's threads to 1 of "},
        {"GOMP_CPU_AFFINITY", "0", "1",
         "cpu: GOMP_CPU_AFFINITY=0 restricts OpenMP's threads to 1 of "}}) {
    INFO(row.name << "=" << row.value);
    CHECK(testing::in_process("cores are counted where OpenMP binds threads",
                              {{row.name, row.value},
                               {"EXPECTED_THREADS", row.threads},
                               {"EXPECTED_WARNING", row.warning}}) == 0);
  }
}

TEST_CASE("replicas throw in a forked child, which can exit, and go on in the parent") {
  auto session = Mirrored<Cpu>{.replicas = 2, .on = {.threads = 1}}.open();
  const auto sum = [&] {
    std::vector<float> values(2);
    session.each([&](const ReplicaContext<Cpu>& replica) {
      values[replica.rank] = 1.0f;
      replica.group.all_reduce(&values[replica.rank], 1);
    });
    return values[0] + values[1];
  };
  CHECK(sum() == 4.0f);
  CHECK(testing::in_child([&] {
          auto own = std::move(session);
          try {
            session = Mirrored<Cpu>{.replicas = 2, .on = {.threads = 1}}.open();
            if (sum() != 4.0f) return 1;
            session = std::move(own);
            sum();
            return 2;
          } catch (const UsageError& e) {
            auto ended = std::move(session);
            return std::string(e.what()).starts_with("mirrored: this process was forked") ? 0 : 3;
          }
        }) == 0);
  CHECK(sum() == 4.0f);
}

TEST_CASE("replicas of several threads throw inside a parallel region and go on outside of it") {
  auto session = Mirrored<Cpu>{.replicas = 2, .on = {.threads = 2}}.open();
  const auto run = [&]() -> std::string {
    std::atomic<int> replicas = 0;
    try {
      session.each([&](const ReplicaContext<Cpu>& replica) {
        float one = 1;
        replica.group.all_reduce(&one, 1);
        ++replicas;
      });
    } catch (const UsageError& e) {
      return e.what();
    }
    return std::to_string(replicas);
  };
  std::string message;
  const auto inside = [&] {
    if (omp_get_thread_num() == 1) message = run();
  };
  GOMP_parallel([](void* f) { (*static_cast<decltype(inside)*>(f))(); },
                const_cast<void*>(static_cast<const void*>(&inside)), 2, 0);
  CHECK_THAT(message, ContainsSubstring("inside an OpenMP parallel region"));
  CHECK(run() == "2");
}
