/// \file
#include "lockstep/devices/cuda/commands.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/devices/cuda/libraries/access.hpp"
#include "support/log_lines.hpp"
#include "support/recorder.hpp"
#include "support/refusal.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;
using namespace std::chrono_literals;
using testing::Recorder;

namespace {

/// A library that may synchronise the GPU while it is opened and closed.
struct PaperLibrary {
  using Handle = const char*;
  static constexpr const char* work = "nothings";
  /// Whether another thread could capture while the library was opened or closed.
  static inline std::vector<bool> others_may_record;
  static void probe() {
    std::thread([] {
      const std::shared_lock lock(CaptureLock::mutex(), std::try_to_lock);
      others_may_record.push_back(lock.owns_lock());
    }).join();
  }
  static void open(Handle* handle) {
    *handle = "open";
    probe();
  }
  static void close(Handle) { probe(); }
  static std::size_t version() { return 1; }
};

/// A driver without a GPU.
Driver fake_driver() {
  Driver table;
  table.cuGetErrorName = [](CUresult, const char** s) { return *s = "CUDA_ERROR_X", CUDA_SUCCESS; };
  table.cuGetErrorString = [](CUresult, const char** s) { return *s = "it broke", CUDA_SUCCESS; };
  table.cuStreamEndCapture = [](CUstream, CUgraph* g) {
    return *g = reinterpret_cast<CUgraph>(1), CUDA_SUCCESS;
  };
  table.cuGraphInstantiate = [](CUgraphExec* e, CUgraph, unsigned long long) {
    return *e = reinterpret_cast<CUgraphExec>(2), CUDA_SUCCESS;
  };
  table.cuStreamGetCaptureInfo = [](CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                    const CUgraphNode** nodes, const CUgraphEdgeData**,
                                    std::size_t* n) {
    static const CUgraphNode node = reinterpret_cast<CUgraphNode>(3);
    *nodes = &node;
    *n = 1;
    return CUDA_SUCCESS;
  };
  LOCKSTEP_CUDA_DRIVER(LOCKSTEP_RECORD)
  return table;
}

struct Fixture {
  Fixture() { Commands::logged = false; }
  Recorder recorder;
  Driver table = fake_driver();
  EntryPoints<Driver>::Override instead{table};
  Commands commands{nullptr};

  char host[64] = {};

  static CUfunction function(std::uintptr_t i) { return reinterpret_cast<CUfunction>(i); }
  /// A step: a copy, two kernels, the second with an argument that changes, a copy back.
  void step(float number, CUdeviceptr place = 64) {
    commands.copy_in(place, host, 64);
    commands.launch(function(1), Grid::over(1000), place, 1000);
    commands.launch(function(2), Grid::over(10), place, number);
    commands.copy_out(host, place, 64);
  }
  std::vector<std::string> take_calls() {
    std::vector<std::string> calls = recorder.calls();
    recorder.forget();
    return calls;
  }
};
using Names = std::vector<std::string>;

const Names eager{"cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuLaunchKernel",
                  "cuMemcpyDtoHAsync_v2"};
const Names recorded{"cuStreamBeginCapture_v2",
                     "cuMemcpyHtoDAsync_v2",
                     "cuLaunchKernel",
                     "cuStreamGetCaptureInfo_v3",
                     "cuLaunchKernel",
                     "cuStreamGetCaptureInfo_v3",
                     "cuMemcpyDtoHAsync_v2",
                     "cuStreamEndCapture",
                     "cuGraphInstantiateWithFlags",
                     "cuGraphLaunch"};

}  // namespace

TEST_CASE_METHOD(Fixture,
                 "a segment runs command by command, then is captured, then launched as a graph") {
  step(1);
  CHECK(take_calls() == eager);
  commands.flush();
  CHECK(take_calls().empty());

  step(1);
  CHECK(take_calls().empty());  // only compared
  commands.flush();
  CHECK(take_calls() == recorded);

  step(1);
  commands.flush();
  CHECK(take_calls() == Names{"cuGraphLaunch"});

  step(2);
  commands.flush();
  CHECK(take_calls() == Names{"cuGraphExecKernelNodeSetParams_v2", "cuGraphLaunch"});
  step(2);
  commands.flush();
  CHECK(take_calls() == Names{"cuGraphLaunch"});
  CHECK(commands.segments() == 1);
}

TEST_CASE_METHOD(Fixture, "a segment that diverges runs from its beginning") {
  step(1);
  commands.flush();
  take_calls();
  commands.copy_in(64, host, 64);
  commands.launch(function(1), Grid::over(1000), CUdeviceptr{64}, 1000);
  CHECK(take_calls().empty());
  commands.launch(function(7), Grid::over(1000), CUdeviceptr{64}, 1000);
  CHECK(take_calls() == Names{"cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuLaunchKernel"});
  commands.flush();
  CHECK(commands.segments() == 2);

  // Both segments are stored now; the third command decides which one it is.
  for (int round = 0; round < 2; ++round) {
    commands.copy_in(64, host, 64);
    commands.launch(function(1), Grid::over(1000), CUdeviceptr{64}, 1000);
    commands.launch(function(7), Grid::over(1000), CUdeviceptr{64}, 1000);
    commands.flush();
    step(1);
    commands.flush();
  }
  CHECK(commands.segments() == 2);
  CHECK(commands.graphs() == 2);
}

TEST_CASE_METHOD(Fixture, "a segment that ends early runs the commands it had") {
  step(1);
  commands.flush();
  take_calls();
  commands.copy_in(64, host, 64);
  commands.launch(function(1), Grid::over(1000), CUdeviceptr{64}, 1000);
  CHECK(take_calls().empty());
  commands.wait();
  CHECK(take_calls() == Names{"cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuStreamSynchronize"});
}

TEST_CASE_METHOD(Fixture, "another address, another size or another grid is another segment") {
  step(1, 64);
  commands.flush();
  step(1, 128);
  CHECK(commands.segments() == 1);
  commands.flush();
  CHECK(commands.segments() == 2);
}

TEST_CASE_METHOD(Fixture, "a library call runs once per capture") {
  int calls = 0;
  const auto run = [&] {
    commands.launch(function(1), Grid::over(1), 1);
    commands.call({1, 2, 3}, [&](CUstream) { ++calls; });
    commands.launch(function(2), Grid::over(1), 1);
    commands.flush();
  };
  run();
  CHECK(calls == 1);
  run();
  CHECK(calls == 2);
  run();
  run();
  CHECK(calls == 2);
}

TEST_CASE_METHOD(Fixture, "while one thread captures, no other synchronises the GPU") {
  const auto is_held = [] {
    bool held = false;
    std::thread([&] {
      const std::unique_lock lock(CaptureLock::mutex(), std::try_to_lock);
      held = !lock.owns_lock();
    }).join();
    return held;
  };
  std::vector<bool> held;
  for (int i = 0; i < 2; ++i) {
    commands.launch(function(1), Grid::over(1), 1);
    commands.call({1}, [&](CUstream) { held.push_back(is_held()); });
    commands.launch(function(2), Grid::over(1), 1);
    commands.flush();
  }
  CHECK(held == std::vector<bool>{false, true});
  CHECK_FALSE(is_held());
}

TEST_CASE_METHOD(Fixture, "a capture waits at most a second for a library") {
  using Clock = std::chrono::steady_clock;
  step(1);
  commands.flush();
  const bool for_ever = GENERATE(false, true);
  std::atomic<bool> is_taken{false}, is_over{false};
  std::thread library([&] {
    const std::unique_lock lock(CaptureLock::mutex());
    is_taken = true;
    const auto begin = Clock::now();
    while (!is_over && (for_ever || Clock::now() - begin < 200ms)) std::this_thread::sleep_for(1ms);
  });
  while (!is_taken) std::this_thread::yield();
  const auto begin = Clock::now();
  step(1);
  commands.flush();
  const auto waited = Clock::now() - begin;
  is_over = true;
  library.join();
  CHECK(waited > (for_ever ? 900ms : 150ms));
  CHECK(waited < (for_ever ? 10s : 1s));
  CHECK(recorder.count("cuGraphLaunch") == 1);  // captured in any case
}

TEST_CASE("no capture begins while a library is opened or closed") {
  PaperLibrary::others_may_record.clear();
  {
    const Access<PaperLibrary> access;
  }
  CHECK(PaperLibrary::others_may_record == std::vector<bool>{false, false});
  PaperLibrary::probe();
  CHECK(PaperLibrary::others_may_record.back());
}

TEST_CASE_METHOD(Fixture, "short segments are not stored, and the number of segments is limited") {
  for (int i = 0; i < 3; ++i) {
    commands.copy_in(64, host, 64);
    commands.flush();
  }
  CHECK(commands.segments() == 0);
  for (CUdeviceptr place = 64; place <= 64 * (Commands::max_segments + 10); place += 64) {
    step(1, place);
    commands.flush();
  }
  CHECK(commands.segments() == Commands::max_segments);
}

TEST_CASE_METHOD(
    Fixture,
    "a segment that cannot be captured runs call by call, and one log line gives the reason") {
  const testing::LogLines log;
  step(1);
  commands.flush();
  step(1);
  recorder.fail("cuLaunchKernel", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 2);
  take_calls();
  commands.flush();
  Names calls{"cuStreamBeginCapture_v2", "cuMemcpyHtoDAsync_v2",
              "cuLaunchKernel",          "cuStreamGetCaptureInfo_v3",
              "cuLaunchKernel",          "cuGetErrorName",
              "cuGetErrorString",        "cuStreamEndCapture",
              "cuGraphDestroy",          "cuStreamQuery"};
  calls.insert(calls.end(), eager.begin(), eager.end());
  CHECK(take_calls() == calls);
  REQUIRE(log.lines.size() == 1);
  CHECK(log.lines[0].find("4 calls cannot be launched as one graph") != std::string::npos);
  CHECK(log.lines[0].find("launching a kernel failed: CUDA_ERROR_X, it broke") !=
        std::string::npos);

  for (int i = 0; i < 2; ++i) {  // capture is not tried again
    step(1);
    commands.flush();
    CHECK(take_calls() == eager);
  }
  CHECK(commands.segments() == 1);
  CHECK(commands.graphs() == 0);
  CHECK(log.lines.size() == 1);
}

TEST_CASE("whichever graph call fails, the segment runs exactly once") {
  struct Refusal {
    const char* name;
    bool is_known;  // the graph exists
    int captures_ended, graphs_destroyed, executables_destroyed;
  };
  for (const Refusal& r :
       {Refusal{"cuStreamBeginCapture_v2", false, 0, 0, 0},
        Refusal{"cuStreamGetCaptureInfo_v3", false, 1, 1, 0},
        Refusal{"cuStreamEndCapture", false, 1, 0, 0},
        Refusal{"cuGraphInstantiateWithFlags", false, 1, 1, 0},
        Refusal{"cuGraphLaunch", false, 1, 1, 1}, Refusal{"cuGraphLaunch", true, 0, 1, 1},
        Refusal{"cuGraphExecKernelNodeSetParams_v2", true, 0, 1, 1}}) {
    INFO(r.name << (r.is_known ? ", of a graph" : ", while recording"));
    const testing::LogLines log;
    Fixture f;
    for (int i = 0; i < (r.is_known ? 2 : 1); ++i) {
      f.step(1);
      f.commands.flush();
    }
    f.recorder.fail(r.name, CUDA_ERROR_OUT_OF_MEMORY);
    f.take_calls();
    f.step(2);
    f.commands.flush();
    const Names calls = f.take_calls();
    REQUIRE(calls.size() >= 4);
    CHECK(Names(calls.end() - 4, calls.end()) == eager);
    const auto n = [&](const char* call) { return std::count(calls.begin(), calls.end(), call); };
    CHECK(n("cuStreamEndCapture") == r.captures_ended);
    CHECK(n("cuGraphDestroy") == r.graphs_destroyed);
    CHECK(n("cuGraphExecDestroy") == r.executables_destroyed);
    CHECK(f.commands.graphs() == 0);
    CHECK(log.lines.size() == 1);
    f.step(3);
    f.commands.flush();
    CHECK(f.take_calls() == eager);
  }
}

TEST_CASE_METHOD(Fixture, "an error of a command surfaces when it runs call by call") {
  const testing::LogLines log;
  step(1);
  commands.flush();
  step(1);
  recorder.fail("cuLaunchKernel", CUDA_ERROR_LAUNCH_FAILED, 2);  // captured
  recorder.fail("cuLaunchKernel", CUDA_ERROR_LAUNCH_FAILED, 3);  // run
  std::string message;
  try {
    commands.flush();
  } catch (const DeviceError& e) {
    message = e.what();
  }
  CHECK(message.starts_with("cuda: launching a kernel failed: CUDA_ERROR_X, it broke"));
  take_calls();
  step(1);  // the failed segment is not run again
  commands.flush();
  CHECK(take_calls() == eager);
}

TEST_CASE_METHOD(Fixture, "a graph is not blamed for the error of an earlier kernel") {
  const testing::LogLines log;
  step(1);
  commands.flush();
  step(1);
  recorder.fail("cuGraphLaunch", CUDA_ERROR_ILLEGAL_ADDRESS);
  recorder.fail("cuStreamQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(
      testing::refusal<DeviceError>([&] { commands.flush(); }) ==
      "cuda: waiting for the GPU failed: CUDA_ERROR_X, it broke; a kernel launched before "
      "this call failed: run again with LOCKSTEP_CUDA_CHECK=1 in the environment to find out which "
      "one");
  CHECK(log.lines.empty());

  // A kernel that is still running has not failed.
  step(1);
  recorder.fail("cuGraphLaunch", CUDA_ERROR_OUT_OF_MEMORY);
  recorder.fail("cuStreamQuery", CUDA_ERROR_NOT_READY);
  commands.flush();
  CHECK(log.lines.size() == 1);
}

TEST_CASE_METHOD(Fixture, "checked mode runs each call at once and waits for it") {
  std::vector<CUresult> results{CUDA_SUCCESS, CUDA_SUCCESS, CUDA_ERROR_ILLEGAL_ADDRESS};
  std::size_t waits = 0;
  commands.check_each([&] { return results[waits++]; });
  commands.begin_work({.pass = WorkPass::backward,
                       .layers = [](int i) { return "dense_" + std::to_string(i); },
                       .index = 2,
                       .step = 17});
  table.cuFuncGetName = [](const char** name, CUfunction) {
    return *name = "multiply", CUDA_SUCCESS;
  };
  commands.copy_in(64, host, 64);
  commands.launch(function(1), Grid::over(1000), 1);
  CHECK(waits == 2);
  CHECK(testing::refusal<DeviceError>([&] { commands.launch(function(2), Grid::over(1000), 1); }) ==
        "cuda: kernel 'multiply' of layer 'dense_2' (backward, step 17) failed: CUDA_ERROR_X, it "
        "broke");

  // A call that is refused reports its own reason and what it is.
  results.assign(20, CUDA_SUCCESS);
  commands.begin_work({.pass = WorkPass::update, .part = "optimizer", .step = 3});
  recorder.fail("cuLaunchKernel", CUDA_ERROR_INVALID_VALUE);
  CHECK(testing::refusal<DeviceError>([&] { commands.launch(function(2), Grid::over(1000), 1); })
            .starts_with("cuda: kernel 'multiply' of the optimizer (update, step 3) failed: cuda: "
                         "launching a kernel failed: CUDA_ERROR_X, it broke"));
  commands.begin_work({});
  CHECK(testing::refusal<DeviceError>([&] {
          commands.call({1}, [](CUstream) { throw DeviceError("cudnn: no"); }, "cuDNN convolution");
        }) == "cuda: cuDNN convolution failed: cudnn: no");

  results.assign(1, CUDA_ERROR_LAUNCH_FAILED);
  waits = 0;
  CHECK(testing::refusal<DeviceError>([&] {
          commands.run_uncaptured([](CUstream) {}, "NCCL exchange");
        }) == "cuda: NCCL exchange failed: CUDA_ERROR_X, it broke");
  results.assign(20, CUDA_SUCCESS);

  // The mode outlasts one-time work, and repeated work is not a graph.
  {
    const Commands::Eager once(commands);
  }
  take_calls();
  waits = 0;
  for (int i = 0; i < 3; ++i) {
    step(1);
    CHECK(take_calls() == eager);
    commands.flush();
  }
  CHECK(waits == 12);
  CHECK(commands.segments() == 0);
}

TEST_CASE_METHOD(Fixture, "one-time work runs at once and is not stored") {
  step(1);
  commands.flush();
  take_calls();
  {
    const Commands::Eager at_once(commands);
    step(1);
    CHECK(take_calls() == eager);
    step(1, 640);
    commands.flush();
  }
  CHECK(commands.segments() == 1);
  take_calls();
  step(1);
  commands.flush();
  CHECK(take_calls() == recorded);
}

TEST_CASE("without graphs each segment runs call by call") {
  Recorder recorder;
  const Driver table = fake_driver();
  const EntryPoints<Driver>::Override instead(table);
  Commands commands(nullptr, false);
  for (int i = 0; i < 3; ++i) {
    for (std::uintptr_t k = 1; k < 5; ++k)
      commands.launch(reinterpret_cast<CUfunction>(k), Grid::over(1), i);
    commands.flush();
  }
  CHECK(recorder.calls() == std::vector<std::string>(12, "cuLaunchKernel"));
}
