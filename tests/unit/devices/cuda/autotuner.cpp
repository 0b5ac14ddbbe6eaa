/// \file
/// How candidates are compared: what is captured, launched and counted.
#include "lockstep/devices/cuda/autotuner.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/log.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "support/autotuner_times.hpp"
#include "support/host_gpu.hpp"
#include "support/recorder.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;
using testing::HostGpu;

namespace {

struct Bench {
  HostGpu gpu;
  CudaContext context = Cuda{}.open(1, 0);
  Scope scope = context.scope();
  std::vector<std::size_t> calls = std::vector<std::size_t>(8);  // of each candidate, by the host
  std::vector<std::size_t> executed = std::vector<std::size_t>(8);  // of each candidate, by the GPU
  std::function<void(std::size_t way)> before = [](std::size_t) {};

  std::size_t fastest(std::size_t ways) {
    calls.assign(8, 0);
    executed.assign(8, 0);
    gpu.graph_launches = 0;
    return Autotuner::fastest(context, ways, [this](std::size_t i) {
      ++calls[i];
      before(i);
      context.commands().call({i},
                              [this, i](CUstream) { HostGpu::call([this, i] { ++executed[i]; }); });
    });
  }
};

}  // namespace

TEST_CASE("each candidate is captured 20 times into a graph, replayed five times after 5 ms") {
  Bench b;
  // One run of each; rounds of 20 runs: two of 2.5 ms to warm up, then five.
  b.gpu.times = {0.05f, 0.05f};
  for (int round = 0; round < 7; ++round) b.gpu.times.insert(b.gpu.times.end(), {1.5f, 1});
  CHECK(b.fastest(2) == 1);
  CHECK(b.gpu.times.empty());
  CHECK(b.gpu.graph_launches == 3 * (2 + 5));  // the last one first, to fill the queue
  for (const std::size_t way : {0u, 1u}) CHECK(b.calls[way] == 1 + 1 + 20);
  CHECK(b.executed[0] == 1 + 1 + 20 * 7);
  CHECK(b.executed[1] == 1 + 1 + 20 * 7 * 2);
}

TEST_CASE("the GPU is busy when the first event of a round is recorded") {
  using Names = std::vector<std::string>;
  testing::Recorder recorder;
  Bench b;
  Driver table = driver();
  LOCKSTEP_CUDA_DRIVER(LOCKSTEP_RECORD)
  const EntryPoints<Driver>::Override instead(table);
  // One round warms up, five count; each measures a candidate from event to event.
  const auto rounds = [&](std::size_t ways) {
    recorder.forget();
    b.fastest(ways);
    Names calls = recorder.calls();
    std::erase_if(calls, [](const std::string& name) {
      return name != "cuGraphLaunch" && name != "cuEventRecord" && name != "cuEventSynchronize";
    });
    // Before that each candidate is timed once, between two events.
    calls.erase(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(3 * ways));
    return calls;
  };
  const auto expected = [](std::size_t ways) {
    Names calls;
    for (int i = 0; i < 1 + Autotuner::rounds; ++i) {
      calls.insert(calls.end(), {"cuGraphLaunch", "cuEventRecord"});
      for (std::size_t way = 0; way < ways; ++way)
        calls.insert(calls.end(), {"cuGraphLaunch", "cuEventRecord"});
      calls.insert(calls.end(), ways, "cuEventSynchronize");
    }
    return calls;
  };
  b.gpu.times = {0.1f, 0.1f, 3, 3};
  CHECK(rounds(2) == expected(2));
  b.gpu.times = {0.1f, 0.1f, 0.1f, 2, 2, 2};
  CHECK(rounds(3) == expected(3));
}

TEST_CASE("the minimum of five rounds counts, and nothing of the warm-up") {
  Bench b;
  b.gpu.times = {0.1f, 0.1f,              // one run of each
                 0.1f, 6,                 // warm-up
                 9,    5,    9, 5, 2, 5,  // 9 is noise of the machine
                 9,    3,    9, 5};
  CHECK(b.fastest(2) == 0);
  CHECK(b.gpu.times.empty());
}

TEST_CASE("checked mode waits when trying candidates, not when measuring them") {
  struct Checked {
    Checked() { setenv("LOCKSTEP_CUDA_CHECK", "1", 1); }
    ~Checked() { unsetenv("LOCKSTEP_CUDA_CHECK"); }
  };
  std::optional<Checked> checked(std::in_place);
  Bench b;
  checked.reset();
  testing::add_tuning_times(b.gpu.times, {0.1f, 0.05f});
  CHECK(b.fastest(2) == 1);
  CHECK(b.gpu.times.empty());
  CHECK(b.gpu.graph_launches == 3 * 7);
  CHECK(b.calls[1] == 2 + 20);
  // A candidate that fails later is named again.
  CHECK_THROWS_WITH(b.context.commands().call(
                        {7}, [](CUstream) { throw DeviceError("it broke"); }, "the call"),
                    Catch::Matchers::ContainsSubstring("the call"));
}

TEST_CASE("times are compared per run, however many runs a graph has") {
  Bench b;
  // 0.5 and 0.4 ms per run give 4 and 5 runs in a graph of 2 ms, 0.1 ms gives 20; 5 ms gives one.
  b.gpu.times = {0.5f, 0.4f, 5};
  for (int round = 0; round < 6; ++round) b.gpu.times.insert(b.gpu.times.end(), {2.0f, 2.25f, 5});
  CHECK(b.fastest(3) == 1);
  CHECK(b.calls[0] == 2 + 4);
  CHECK(b.calls[1] == 2 + 5);
  CHECK(b.calls[2] == 2 + 1);
}

TEST_CASE("a hopelessly slow candidate is replayed once") {
  Bench b;
  b.gpu.times = {0.1f, 0.1f, 0.1f};
  b.gpu.times.insert(b.gpu.times.end(), {5, 5, 5});  // at low clocks no candidate is dropped
  b.gpu.times.insert(b.gpu.times.end(), {1, 2, 3.1f});
  for (int round = 0; round < 4; ++round) b.gpu.times.insert(b.gpu.times.end(), {2, 1.5f});
  CHECK(b.fastest(3) == 0);
  CHECK(b.gpu.times.empty());
  CHECK(b.gpu.graph_launches == 2 * 4 + 4 * 3);
}

TEST_CASE("a candidate that fails is dropped, wherever it fails") {
  Bench b;
  for (const std::size_t when : {1u, 2u, 3u, 22u}) {  // tried, timed, first and last captured run
    INFO("call " << when);
    b.gpu.times.clear();
    b.before = [&](std::size_t way) {
      if (way == 1 && b.calls[1] >= when) throw DeviceError("no room");
    };
    CHECK(b.fastest(3) == 0);
    CHECK(b.calls[0] > 3);
  }
  // A candidate that is alone, from the beginning or after a failure, is not measured.
  b.before = [](std::size_t way) {
    if (way == 1) throw DeviceError("no room");
  };
  CHECK(b.fastest(2) == 0);
  CHECK(b.calls[0] == 1);
  CHECK(b.fastest(1) == 0);
  CHECK(b.calls[0] == 1);
  CHECK(b.gpu.graph_launches == 0);
}

TEST_CASE("if all candidates fail, the error is the first one") {
  Bench b;
  b.before = [](std::size_t way) { throw DeviceError("way {} is broken", way); };
  CHECK_THROWS_WITH(b.fastest(2), "way 0 is broken");
  b.before = [](std::size_t) { throw OutOfMemory(2, 1, "no memory"); };
  CHECK_THROWS_AS(b.fastest(2), OutOfMemory);
  // The stream is in its initial state.
  b.before = [](std::size_t) {};
  CHECK(b.fastest(2) == 0);
}

TEST_CASE("a candidate that cannot be captured is measured call by call") {
  Bench b;
  Autotuner::logged = false;
  std::vector<std::string> lines;
  const LogSink sink = set_log([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  testing::add_tuning_times(b.gpu.times, {0.1f, 0.05f});
  b.before = [&](std::size_t way) {
    if (way == 1 && b.calls[1] == 3) throw DeviceError("not into a graph");
  };
  CHECK(b.fastest(2) == 1);
  set_log(sink);
  CHECK(b.gpu.times.empty());
  // A round takes 2 + 1 ms, so two rounds warm up.
  CHECK(b.calls[0] == 2 + 20);
  CHECK(b.calls[1] == 2 + 1 + 20 * 7);
  CHECK(b.executed[1] == 2 + 20 * 7);
  CHECK(b.gpu.graph_launches == 2 * 7);  // the only graph also fills the queue
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] ==
        "cuda: an autotuning candidate cannot be captured as a graph and is measured call by call: "
        "not into a graph");
}
