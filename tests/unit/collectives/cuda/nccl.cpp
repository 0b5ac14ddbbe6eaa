/// \file
#include "lockstep/collectives/nccl.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/log_lines.hpp"
#include "support/recorder.hpp"
#include "support/refusal.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;
using namespace std::chrono_literals;
using testing::Recorder, testing::refusal;
using Names = std::vector<std::string>;

namespace {

/// What the fake says when it is asked how the communicator is; the last one for ever.
std::vector<ncclResult_t> states;
int blocking = -1;

Nccl fake_nccl() {
  Nccl table;
  table.ncclGetErrorString = [](ncclResult_t) { return "remote process exited"; };
  table.ncclGetLastError = [](ncclComm_t) { return "rank 1 is gone"; };
  table.ncclGetUniqueId = [](ncclUniqueId* id) { return *id = {}, ncclSuccess; };
  table.ncclCommInitRankConfig = [](ncclComm_t* c, int, ncclUniqueId, int, ncclConfig_t* config) {
    blocking = config->blocking;
    *c = reinterpret_cast<ncclComm_t>(8);
    return ncclInProgress;
  };
  table.ncclCommGetAsyncError = [](ncclComm_t, ncclResult_t* state) {
    *state = states.front();
    if (states.size() > 1) states.erase(states.begin());
    return ncclSuccess;
  };
  LOCKSTEP_CUDA_NCCL(LOCKSTEP_RECORD)
  return table;
}

int priority_of_exchanges = 1;

void give_priorities(Driver& table) {
  table.cuCtxGetStreamPriorityRange = [](int* least, int* greatest) {
    return *least = 0, *greatest = -5, CUDA_SUCCESS;
  };
  table.cuStreamCreateWithPriority = [](CUstream*, unsigned flags, int priority) {
    CHECK(flags == CU_STREAM_NON_BLOCKING);
    return priority_of_exchanges = priority, CUDA_SUCCESS;
  };
}

/// Whose functions do nothing, well.
Driver fake_driver() {
  Driver table;
  give_priorities(table);
  LOCKSTEP_CUDA_DRIVER(LOCKSTEP_RECORD)
  return table;
}

struct Fixture {
  Fixture() { states = {ncclInProgress, ncclInProgress, ncclSuccess}; }
  Recorder recorder;
  Nccl table = fake_nccl();
  Driver driver_table = fake_driver();
  EntryPoints<Nccl>::Instead instead{table};
  EntryPoints<Driver>::Instead driver_instead{driver_table};
  std::atomic<bool> aborted{false};
  NcclFamily family;
  Commands commands{nullptr, false};
  float gradients[100] = {};
  double sums[3] = {};

  std::unique_ptr<NcclCommunicator> join(std::chrono::nanoseconds timeout = 1min,
                                         std::function<bool(bool)> all_say = {}) {
    return std::make_unique<NcclCommunicator>(NcclCommunicator::make_id(), 2, 0, timeout, aborted,
                                              family, std::move(all_say));
  }
  Names take() {
    Names calls = recorder.calls();
    recorder.forget();
    return calls;
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a communicator does not block while it joins, and is asked") {
  const auto communicator = join();
  CHECK(blocking == 0);
  CHECK(take() == Names{"ncclGetUniqueId", "cuCtxGetStreamPriorityRange",
                        "cuStreamCreateWithPriority", "cuEventCreate", "cuEventCreate",
                        "ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclCommGetAsyncError",
                        "ncclCommGetAsyncError"});
}

TEST_CASE_METHOD(Fixture, "the stream of exchanges has the greatest priority") {
  join();
  CHECK(priority_of_exchanges == -5);
}

TEST_CASE_METHOD(Fixture, "gradients and sums leave in one group") {
  auto communicator = join();
  take();
  communicator->all_reduce(commands, gradients, 100, sums, 3);
  CHECK(take() == Names{"ncclGroupStart", "ncclAllReduce", "ncclAllReduce", "ncclGroupEnd"});
  communicator->all_reduce(commands, gradients, 50, sums, 0);
  CHECK(take() == Names{"ncclGroupStart", "ncclAllReduce", "ncclGroupEnd"});
  communicator->broadcast(commands, gradients, 4, 1);
  communicator->all_gather(commands, gradients, 4, gradients);
  CHECK(take() == Names{"ncclGroupStart", "ncclBroadcast", "ncclGroupEnd", "ncclGroupStart",
                        "ncclAllGather", "ncclGroupEnd"});
  communicator.reset();
  CHECK(take() ==
        Names{"ncclCommDestroy", "cuEventDestroy_v2", "cuEventDestroy_v2", "cuStreamDestroy_v2"});
}

TEST_CASE_METHOD(Fixture, "gradients leave on a stream of their own while backward goes on") {
  auto communicator = join();
  take();
  communicator->post(commands, gradients + 50, 50);
  CHECK(take() == Names{"cuEventRecord", "cuStreamWaitEvent", "ncclGroupStart", "ncclAllReduce",
                        "ncclGroupEnd"});
  communicator->finish(commands, gradients, 50, sums, 3);
  // First the other stream waits for this one, then this one for the other.
  CHECK(take() == Names{"cuEventRecord", "cuStreamWaitEvent", "ncclGroupStart", "ncclAllReduce",
                        "ncclAllReduce", "ncclGroupEnd", "cuEventRecord", "cuStreamWaitEvent"});
}

TEST_CASE_METHOD(Fixture, "a peer that does not come ends the wait at the deadline") {
  states = {ncclInProgress};
  const std::string said = refusal<CollectiveTimeout>([&] { join(20ms); });
  CHECK(said.starts_with("nccl: joining did not end within 0.02"));
  CHECK(said.find("a replica did not come") != std::string::npos);
  CHECK(recorder.count("ncclCommAbort") == 1);
  CHECK(recorder.count("ncclCommDestroy") == 0);
}

TEST_CASE_METHOD(Fixture, "an abort from another thread ends the wait") {
  states = {ncclInProgress};
  std::thread other([&] {
    std::this_thread::sleep_for(10ms);
    aborted = true;
  });
  CHECK(refusal<CollectiveAborted>([&] { join(); }) ==
        "nccl: joining was aborted, since another replica failed");
  other.join();
  CHECK(recorder.count("ncclCommAbort") == 1);
}

TEST_CASE_METHOD(Fixture, "who waits for the GPU hears of a lost peer, an abort, the deadline") {
  SECTION("a lost peer") {
    auto communicator = join();
    communicator->watch(1s);  // all is well
    states = {ncclRemoteError};
    const std::string said = refusal<CollectiveError>([&] { communicator->watch(1s); });
    CHECK(said ==
          "nccl: an exchange failed: remote process exited (rank 1 is gone); NCCL_DEBUG=WARN shows "
          "more");
    CHECK(recorder.count("ncclCommAbort") == 1);
    // Ended once; who still waits is sent away.
    CHECK(refusal<CollectiveAborted>([&] { communicator->watch(1s); }) != "");
    communicator.reset();
    CHECK(recorder.count("ncclCommAbort") == 1);
    CHECK(recorder.count("ncclCommDestroy") == 0);
  }
  SECTION("an abort") {
    auto communicator = join();
    aborted = true;
    CHECK(refusal<CollectiveAborted>([&] { communicator->watch(1s); }) != "");
    CHECK(recorder.count("ncclCommAbort") == 1);
  }
  SECTION("the deadline") {
    auto communicator = join(5s);
    CHECK(refusal<CollectiveTimeout>([&] { communicator->watch(6s); }) != "");
    CHECK(recorder.count("ncclCommAbort") == 1);
  }
}

TEST_CASE_METHOD(Fixture, "all communicators of a GPU end together") {
  auto layers = join();
  auto gradients_of = join();
  states = {ncclRemoteError};
  take();
  CHECK(refusal<CollectiveError>([&] { layers->watch(1s); }) != "");
  const Names calls = take();
  CHECK(Names(calls.end() - 4, calls.end()) ==
        Names{"ncclGroupStart", "ncclCommAbort", "ncclCommAbort", "ncclGroupEnd"});
  CHECK(refusal<CollectiveAborted>([&] { gradients_of->watch(1s); }) != "");
}

TEST_CASE_METHOD(Fixture, "an operation that cannot start says why, and ends its group") {
  auto communicator = join();
  recorder.fail("ncclAllReduce", ncclInvalidArgument);
  take();
  const std::string said = refusal<CollectiveError>(
      [&] { communicator->all_reduce(commands, gradients, 100, sums, 3); });
  CHECK(said.starts_with("nccl: an all-reduce failed: "));
  CHECK(recorder.count("ncclGroupEnd") == 2);  // of the operation, and of the end
  CHECK(recorder.count("ncclCommAbort") == 1);
}

namespace {

/// A graph by numbers: a node of each call, and what a part comes after.
std::uintptr_t nodes, graphs, ready, ended_graphs, ended_ready;
std::vector<unsigned long long> graph_flags;  // of each ready graph
std::vector<CUgraphNode> stands_at;
std::vector<std::vector<std::uintptr_t>> parts_after;
std::function<void()> when_recording;  // what else happens when a recording begins

std::uintptr_t number(CUgraphNode node) { return reinterpret_cast<std::uintptr_t>(node); }

/// Steps of two exchanges between kernels, in graphs.
struct InGraphs : Fixture {
  InGraphs() {
    nodes = graphs = ready = ended_graphs = ended_ready = 0;
    stands_at.clear();
    parts_after.clear();
    graph_flags.clear();
    when_recording = nullptr;
    driver_table = graph_driver();
    states = {ncclSuccess};
    communicator = join(1min, [this](bool yes) { return yes && others && refusals-- <= 0; });
    recorder.forget();
  }
  ~InGraphs() { communicator.reset(); }

  static Driver graph_driver() {
    Driver table;
    table.cuStreamBeginCapture = [](CUstream, CUstreamCaptureMode) {
      if (when_recording) when_recording();
      return stands_at.clear(), CUDA_SUCCESS;
    };
    table.cuStreamEndCapture = [](CUstream, CUgraph* g) {
      return *g = reinterpret_cast<CUgraph>(++graphs), CUDA_SUCCESS;
    };
    table.cuGraphInstantiate = [](CUgraphExec* e, CUgraph, unsigned long long its_flags) {
      graph_flags.push_back(its_flags);
      return *e = reinterpret_cast<CUgraphExec>(++ready), CUDA_SUCCESS;
    };
    table.cuGraphDestroy = [](CUgraph) { return ++ended_graphs, CUDA_SUCCESS; };
    table.cuGraphExecDestroy = [](CUgraphExec) { return ++ended_ready, CUDA_SUCCESS; };
    table.cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, CUstream, void**, void**) {
      stands_at = {reinterpret_cast<CUgraphNode>(++nodes)};
      return CUDA_SUCCESS;
    };
    table.cuStreamGetCaptureInfo = [](CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                      const CUgraphNode** n, const CUgraphEdgeData**,
                                      std::size_t* count) {
      *n = stands_at.data();
      *count = stands_at.size();
      return CUDA_SUCCESS;
    };
    table.cuGraphAddChildGraphNode = [](CUgraphNode* n, CUgraph, const CUgraphNode* after,
                                        std::size_t count, CUgraph) {
      parts_after.emplace_back();
      for (std::size_t i = 0; i < count; ++i) parts_after.back().push_back(number(after[i]));
      return *n = reinterpret_cast<CUgraphNode>(100 + ++nodes), CUDA_SUCCESS;
    };
    table.cuStreamUpdateCaptureDependencies = [](CUstream, CUgraphNode* n, const CUgraphEdgeData*,
                                                 std::size_t count, unsigned flags) {
      CHECK(flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
      stands_at.assign(n, n + count);
      return CUDA_SUCCESS;
    };
    LOCKSTEP_CUDA_DRIVER(LOCKSTEP_RECORD)
    return table;
  }

  void kernel(std::uintptr_t i) {
    in_graphs.launch(reinterpret_cast<CUfunction>(i), Grid::over(10), 1);
  }
  /// Backward in two parts, and the update.
  void step() {
    kernel(1);
    communicator->post(in_graphs, gradients + 50, 50);
    kernel(2);
    communicator->finish(in_graphs, gradients, 50, sums, 3);
    kernel(3);
    in_graphs.flush();
  }
  std::size_t reductions() { return recorder.count("ncclAllReduce"); }

  Commands in_graphs{nullptr, true};
  bool others = true;  // what the other ranks say
  int refusals = 0;    // so often they say no first
  std::unique_ptr<NcclCommunicator> communicator;
};

}  // namespace

TEST_CASE_METHOD(InGraphs, "an exchange is made at once, then recorded, then part of a graph") {
  step();
  CHECK(reductions() == 3);
  CHECK(recorder.count("cuStreamBeginCapture_v2") == 0);
  take();
  // Each exchange is recorded by itself; the rest is still run call by call, in a new order.
  step();
  CHECK(reductions() == 3);
  CHECK(recorder.count("cuStreamBeginCapture_v2") == 2);
  take();
  step();  // all of it is a graph
  CHECK(reductions() == 0);
  CHECK(recorder.count("cuStreamBeginCapture_v2") == 1);
  CHECK(recorder.count("cuGraphLaunch") == 1);
  take();
  for (int i = 0; i < 3; ++i) {
    step();
    CHECK(take() == Names{"cuGraphLaunch"});
  }
}

TEST_CASE_METHOD(InGraphs, "backward does not wait for what was posted, the update does") {
  step();
  step();
  nodes = 0;
  parts_after.clear();
  step();
  REQUIRE(parts_after.size() == 2);
  CHECK(parts_after[0] == std::vector<std::uintptr_t>{1});
  // The last one comes after kernel 3 (which came after kernel 1 alone) and the one before it.
  CHECK(parts_after[1] == std::vector<std::uintptr_t>{3, 102});
  CHECK(number(stands_at[0]) == 5);  // the update, behind 104
}

TEST_CASE_METHOD(InGraphs, "exchanges in graphs keep their priority") {
  constexpr unsigned long long keeps = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  for (int i = 0; i < 3; ++i) step();
  CHECK(graph_flags ==
        std::vector<unsigned long long>{keeps, keeps, keeps});  // two parts, and the step
  graph_flags.clear();
  for (int i = 0; i < 2; ++i) {
    for (const std::uintptr_t k : {7u, 8u, 9u}) kernel(k);
    in_graphs.flush();
  }
  CHECK(graph_flags == std::vector<unsigned long long>{0});
}

TEST_CASE_METHOD(InGraphs, "new memory for exchanges: all ranks begin anew") {
  step();
  step();
  take();
  family.memory.take(0);
  take();
  step();
  CHECK(reductions() == 3);
  CHECK(recorder.count("cuStreamBeginCapture_v2") == 0);
}

TEST_CASE_METHOD(InGraphs, "who does not record makes each exchange at once") {
  communicator = join();
  for (int i = 0; i < 3; ++i) {
    take();
    step();
    CHECK(reductions() == 3);
  }
}

TEST_CASE_METHOD(InGraphs, "where one rank cannot record, none does, and training goes on") {
  const testing::LogLines log;
  step();
  SECTION("this one") {
    for (const std::size_t attempt : {1u, 2u})
      recorder.fail("cuStreamEndCapture", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, attempt);
  }
  SECTION("another one") { others = false; }
  take();
  step();
  REQUIRE(log.lines.size() == 1);
  CHECK(log.lines[0].starts_with("nccl: exchanges are no part of graphs"));
  for (int i = 0; i < 3; ++i) {
    take();
    step();
    CHECK(reductions() == 3);
  }
  CHECK(log.lines.size() == 1);
}

TEST_CASE_METHOD(InGraphs, "a disturbed recording is made once more, by all ranks") {
  const testing::LogLines log;
  step();
  SECTION("this rank's") {
    recorder.fail("cuStreamEndCapture", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  SECTION("this rank's graph cannot be made ready") {
    recorder.fail("cuGraphInstantiateWithFlags", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  SECTION("another rank's") { refusals = 1; }
  take();
  step();
  CHECK(recorder.count("cuStreamBeginCapture_v2") == 3);  // the first exchange twice
  step();
  take();
  step();
  CHECK(take() == Names{"cuGraphLaunch"});
  CHECK(log.lines.empty());
  communicator.reset();
  CHECK(ended_ready == ready);
}

TEST_CASE_METHOD(InGraphs, "while an exchange is recorded, no library waits for the whole GPU") {
  const auto is_held = [] {
    bool held = false;
    std::thread([&] {
      const std::unique_lock lock(Undisturbed::mutex(), std::try_to_lock);
      held = !lock.owns_lock();
    }).join();
    return held;
  };
  std::vector<bool> held;
  step();
  when_recording = [&] { held.push_back(is_held()); };
  step();
  CHECK(held == std::vector<bool>{true, true});
  CHECK_FALSE(is_held());
}

TEST_CASE_METHOD(InGraphs, "recording an exchange waits for a library, for a second at most") {
  using Clock = std::chrono::steady_clock;
  step();
  const bool for_ever = GENERATE(false, true);
  std::atomic<bool> is_taken{false}, is_over{false};
  std::thread library([&] {
    const std::unique_lock lock(Undisturbed::mutex());
    is_taken = true;
    const auto begin = Clock::now();
    while (!is_over && (for_ever || Clock::now() - begin < 200ms)) std::this_thread::sleep_for(1ms);
  });
  while (!is_taken) std::this_thread::yield();
  std::optional<Clock::duration> waited;
  const auto begin = Clock::now();
  when_recording = [&] {
    if (!waited) waited = Clock::now() - begin;
  };
  communicator->post(in_graphs, gradients + 50, 50);
  is_over = true;
  library.join();
  REQUIRE(waited);
  CHECK(*waited > (for_ever ? 900ms : 150ms));
  CHECK(*waited < (for_ever ? 10s : 1s));
  in_graphs.flush();
  CHECK(recorder.count("cuGraphLaunch") == 1);  // recorded in any case
}

TEST_CASE_METHOD(InGraphs, "what was said before an exchange that cannot be recorded is not lost") {
  for (int i = 0; i < 4; ++i) step();
  family.memory.take(0);
  step();
  const testing::LogLines log;
  others = false;
  take();
  step();  // it begins as the graph of before
  CHECK(recorder.count("cuLaunchKernel") == 3);
}

TEST_CASE_METHOD(InGraphs, "an exchange beside the stream is over before a recorded one begins") {
  // Its second range is known before the first one.
  communicator->finish(in_graphs, gradients, 50, sums, 3);
  kernel(1);
  communicator->post(in_graphs, gradients + 50, 50);
  take();
  communicator->finish(in_graphs, gradients, 50, sums, 3);
  const Names calls = take();
  REQUIRE(calls.size() > 2);
  CHECK(Names(calls.end() - 3, calls.end()) ==
        Names{"cuEventRecord", "cuStreamWaitEvent", "cuGraphLaunch"});
}

TEST_CASE_METHOD(InGraphs, "graphs end before their communicator, and before an abort is over") {
  for (int i = 0; i < 4; ++i) step();
  take();
  SECTION("all is well") {
    communicator.reset();
    const Names calls = take();
    REQUIRE(ended_graphs == 3);  // two exchanges, and the step
    CHECK(ended_ready == 3);
    CHECK(std::find(calls.begin(), calls.end(), "ncclCommDestroy") >
          std::find(calls.rbegin(), calls.rend(), "cuGraphDestroy").base() - 1);
  }
  SECTION("a lost peer") {
    states = {ncclRemoteError};
    CHECK(refusal<CollectiveError>([&] { communicator->watch(1s); }) != "");
    const Names calls = take();
    REQUIRE(ended_graphs == 3);
    REQUIRE(calls.size() > 3);
    // The flag first: a graph whose kernel waits may end only then.
    CHECK(Names(calls.begin(), calls.begin() + 3) ==
          Names{"ncclCommGetAsyncError", "ncclGroupStart", "ncclCommAbort"});
    CHECK(calls.back() == "ncclGroupEnd");
  }
  SECTION("an abort by another replica") {
    aborted = true;
    communicator.reset();
    CHECK(ended_graphs == 3);
    CHECK(recorder.count("ncclCommDestroy") == 0);
    CHECK(recorder.count("ncclGroupEnd") > 0);
  }
}

TEST_CASE_METHOD(InGraphs, "an NCCL call that fails while recording ends the job with one error") {
  const testing::LogLines log;
  step();
  take();
  std::size_t captures = 1;
  // So NCCL reports a capture that something else invalidated.
  SECTION("the first operation") { recorder.fail("ncclAllReduce", ncclUnhandledCudaError); }
  SECTION("the second operation of the second exchange") {
    recorder.fail("ncclAllReduce", ncclUnhandledCudaError, 3);
    captures = 2;
  }
  SECTION("the end of their group") { recorder.fail("ncclGroupEnd", ncclUnhandledCudaError); }
  SECTION("what the end of their group began") {
    recorder.fail("ncclGroupEnd", ncclInProgress);
    states = {ncclInProgress, ncclUnhandledCudaError};
  }
  // An invalidated capture also fails at its end. That says nothing new.
  recorder.fail("cuStreamEndCapture", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, captures);
  const std::string said = refusal<CollectiveError>([&] { step(); });
  CHECK(said ==
        "nccl: an all-reduce failed: remote process exited (rank 1 is gone); NCCL_DEBUG=WARN shows "
        "more");
  CHECK(log.lines.empty());
  CHECK(recorder.count("cuStreamEndCapture") == captures);
  CHECK(recorder.count("ncclGroupEnd") == recorder.count("ncclGroupStart"));
  CHECK(recorder.count("ncclCommAbort") == 1);
  // Nobody waits for the communicator again.
  CHECK(refusal<CollectiveAborted>([&] { communicator->watch(1s); }) != "");
  communicator.reset();
  CHECK(recorder.count("cuStreamBeginCapture_v2") == captures);
  CHECK(recorder.count("ncclCommAbort") == 1);
  CHECK(recorder.count("ncclCommDestroy") == 0);
}

TEST_CASE_METHOD(Fixture, "a profile has exchanges that are no part of a graph") {
  auto communicator = join();
  Driver timing = driver();
  timing.cuEventElapsedTime = [](float* ms, CUevent, CUevent) { return *ms = 0.25f, CUDA_SUCCESS; };
  const EntryPoints<Driver>::Instead timed(timing);
  WorkTimes times;
  int waits = 0;
  commands.measure(&times, [&] { return ++waits, CUDA_SUCCESS; });
  commands.begin_work({.pass = WorkPass::exchange, .part = "gradients"});
  take();
  communicator->post(commands, gradients, 40);
  // Made in the stream of exchanges, which the second event waits for.
  const Names calls = take();
  const auto at = [&](const char* name) { return std::find(calls.begin(), calls.end(), name); };
  CHECK(std::count(calls.begin(), calls.end(), "cuEventRecordWithFlags") == 2);
  CHECK(std::count(at("ncclAllReduce"), calls.end(), "cuStreamWaitEvent") == 1);
  communicator->finish(commands, gradients, 60, sums, 3);
  CHECK(waits == 2);
  REQUIRE(times.entries().size() == 1);
  CHECK(times.entries()[0].call == "NCCL exchange");
  CHECK(times.entries()[0].calls == 2);
  CHECK(times.entries()[0].microseconds == 500);
  CHECK(name_of(times.entries()[0].work) == "gradients");
  commands.measure(nullptr, {});
  communicator->finish(commands, gradients, 60, sums, 3);
  CHECK(times.entries()[0].calls == 2);
}
