/// \file
#include "lockstep/collectives/cuda/nccl_communicator.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
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

/// The states that the fake reports of the communicator, one per poll; the last one repeats.
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

/// A driver whose functions do nothing and succeed.
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
  EntryPoints<Nccl>::Override instead{table};
  EntryPoints<Driver>::Override driver_instead{driver_table};
  std::atomic<bool> aborted{false};
  NcclDeviceState device;
  Commands commands{nullptr, false};
  float gradients[100] = {};
  double sums[3] = {};

  std::unique_ptr<NcclCommunicator> join(std::chrono::nanoseconds timeout = 1min) {
    return std::make_unique<NcclCommunicator>(NcclCommunicator::make_id(), 2, 0, timeout, aborted,
                                              device);
  }
  Names pop_calls() {
    Names calls = recorder.calls();
    recorder.forget();
    return calls;
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a communicator joins without blocking, by polling") {
  const auto communicator = join();
  CHECK(blocking == 0);
  CHECK(pop_calls() == Names{"ncclGetUniqueId", "cuCtxGetStreamPriorityRange",
                             "cuStreamCreateWithPriority", "cuEventCreate", "cuEventCreate",
                             "ncclCommInitRankConfig", "ncclCommGetAsyncError",
                             "ncclCommGetAsyncError", "ncclCommGetAsyncError"});
}

TEST_CASE_METHOD(Fixture, "the exchange stream has the highest priority") {
  join();
  CHECK(priority_of_exchanges == -5);
}

TEST_CASE_METHOD(Fixture, "gradients and sums leave in one group") {
  auto communicator = join();
  pop_calls();
  communicator->all_reduce(commands, gradients, 100, sums, 3);
  CHECK(pop_calls() == Names{"ncclGroupStart", "ncclAllReduce", "ncclAllReduce", "ncclGroupEnd"});
  communicator->all_reduce(commands, gradients, 50, sums, 0);
  CHECK(pop_calls() == Names{"ncclGroupStart", "ncclAllReduce", "ncclGroupEnd"});
  communicator->broadcast(commands, gradients, 4, 1);
  communicator->all_gather(commands, gradients, 4, gradients);
  CHECK(pop_calls() == Names{"ncclGroupStart", "ncclBroadcast", "ncclGroupEnd", "ncclGroupStart",
                             "ncclAllGather", "ncclGroupEnd"});
  communicator.reset();
  CHECK(pop_calls() ==
        Names{"ncclCommDestroy", "cuEventDestroy_v2", "cuEventDestroy_v2", "cuStreamDestroy_v2"});
}

TEST_CASE_METHOD(Fixture, "gradients are reduced on a separate stream while backward continues") {
  auto communicator = join();
  pop_calls();
  communicator->post(commands, gradients + 50, 50);
  CHECK(pop_calls() == Names{"cuEventRecord", "cuStreamWaitEvent", "ncclGroupStart",
                             "ncclAllReduce", "ncclGroupEnd"});
  communicator->finish(commands, gradients, 50, sums, 3);
  // First the exchange stream waits for the commands' stream, then the other way round.
  CHECK(pop_calls() == Names{"cuEventRecord", "cuStreamWaitEvent", "ncclGroupStart",
                             "ncclAllReduce", "ncclAllReduce", "ncclGroupEnd", "cuEventRecord",
                             "cuStreamWaitEvent"});
}

TEST_CASE_METHOD(Fixture, "the wait for an absent peer ends at the deadline") {
  states = {ncclInProgress};
  const std::string message = refusal<CollectiveTimeout>([&] { join(20ms); });
  CHECK(message.starts_with("nccl: joining did not finish within 20 ms"));
  CHECK(message.find("a replica did not arrive") != std::string::npos);
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
        "nccl: joining was aborted because another replica failed");
  other.join();
  CHECK(recorder.count("ncclCommAbort") == 1);
}

TEST_CASE_METHOD(Fixture, "a wait for the GPU ends by a lost peer, an abort or the deadline") {
  SECTION("a lost peer") {
    auto communicator = join();
    communicator->poll(1s);  // all is well
    states = {ncclRemoteError};
    const std::string message = refusal<CollectiveError>([&] { communicator->poll(1s); });
    CHECK(message ==
          "nccl: an exchange failed: remote process exited (rank 1 is gone); NCCL_DEBUG=WARN shows "
          "more");
    CHECK(recorder.count("ncclCommAbort") == 1);
    // It is aborted once; later polls throw.
    CHECK(refusal<CollectiveAborted>([&] { communicator->poll(1s); }) != "");
    communicator.reset();
    CHECK(recorder.count("ncclCommAbort") == 1);
    CHECK(recorder.count("ncclCommDestroy") == 0);
  }
  SECTION("an abort") {
    auto communicator = join();
    aborted = true;
    CHECK(refusal<CollectiveAborted>([&] { communicator->poll(1s); }) != "");
    CHECK(recorder.count("ncclCommAbort") == 1);
  }
  SECTION("the deadline") {
    auto communicator = join(5s);
    CHECK(refusal<CollectiveTimeout>([&] { communicator->poll(6s); }) != "");
    CHECK(recorder.count("ncclCommAbort") == 1);
  }
}

TEST_CASE_METHOD(Fixture, "all communicators of a GPU are aborted together") {
  auto layers = join();
  auto gradients_of = join();
  states = {ncclRemoteError};
  pop_calls();
  CHECK(refusal<CollectiveError>([&] { layers->poll(1s); }) != "");
  const Names calls = pop_calls();
  CHECK(Names(calls.end() - 4, calls.end()) ==
        Names{"ncclGroupStart", "ncclCommAbort", "ncclCommAbort", "ncclGroupEnd"});
  CHECK(refusal<CollectiveAborted>([&] { gradients_of->poll(1s); }) != "");
}

TEST_CASE_METHOD(Fixture, "an operation that cannot start throws the reason and ends its group") {
  auto communicator = join();
  recorder.fail("ncclAllReduce", ncclInvalidArgument);
  pop_calls();
  const std::string message = refusal<CollectiveError>(
      [&] { communicator->all_reduce(commands, gradients, 100, sums, 3); });
  CHECK(message.starts_with("nccl: an all-reduce failed: "));
  CHECK(recorder.count("ncclGroupEnd") == 2);  // of the operation, and of the abort
  CHECK(recorder.count("ncclCommAbort") == 1);
}

namespace {

/// Steps of two exchanges, each after enough kernels for a graph.
struct InGraphs : Fixture {
  InGraphs() {
    give_graphs(driver_table);
    states = {ncclSuccess};
    communicator = join();
    recorder.forget();
  }

  static void give_graphs(Driver& table) {
    static const CUgraphNode node = reinterpret_cast<CUgraphNode>(3);
    table = Driver{};
    give_priorities(table);
    table.cuStreamGetCaptureInfo = [](CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*,
                                      const CUgraphNode** nodes, const CUgraphEdgeData**,
                                      std::size_t* n) {
      *nodes = &node;
      *n = 1;
      return CUDA_SUCCESS;
    };
    table.cuStreamEndCapture = [](CUstream, CUgraph* g) {
      return *g = reinterpret_cast<CUgraph>(1), CUDA_SUCCESS;
    };
    table.cuGraphInstantiate = [](CUgraphExec* e, CUgraph, unsigned long long) {
      return *e = reinterpret_cast<CUgraphExec>(2), CUDA_SUCCESS;
    };
    LOCKSTEP_CUDA_DRIVER(LOCKSTEP_RECORD)
  }

  void kernels(std::uintptr_t first) {
    for (std::uintptr_t i = first; i < first + 3; ++i)
      in_graphs.launch(reinterpret_cast<CUfunction>(i), Grid::over(10), 1);
  }
  /// Backward in two parts, and the update.
  void step() {
    kernels(1);
    communicator->post(in_graphs, gradients + 50, 50);
    kernels(4);
    communicator->finish(in_graphs, gradients, 50, sums, 3);
    kernels(7);
    in_graphs.flush();
  }

  Commands in_graphs{nullptr, true};
  std::unique_ptr<NcclCommunicator> communicator;
};

/// The calls of a post on the exchange stream, and those that the last one adds.
const Names posted{"cuEventRecord", "cuStreamWaitEvent", "ncclGroupStart", "ncclAllReduce",
                   "ncclGroupEnd"},
    finished{"cuEventRecord", "cuStreamWaitEvent", "ncclGroupStart", "ncclAllReduce",
             "ncclAllReduce", "ncclGroupEnd",      "cuEventRecord",  "cuStreamWaitEvent"};

}  // namespace

TEST_CASE_METHOD(InGraphs, "exchanges run immediately, and the work between them becomes graphs") {
  Names of_graphs{"cuGraphLaunch"};
  of_graphs.insert(of_graphs.end(), posted.begin(), posted.end());
  of_graphs.emplace_back("cuGraphLaunch");
  of_graphs.insert(of_graphs.end(), finished.begin(), finished.end());
  of_graphs.emplace_back("cuGraphLaunch");
  step();
  CHECK(recorder.count("cuStreamBeginCapture_v2") == 0);
  CHECK(recorder.count("ncclAllReduce") == 3);
  pop_calls();
  step();
  CHECK(recorder.count("cuStreamBeginCapture_v2") == 3);
  CHECK(recorder.count("ncclAllReduce") == 3);
  for (int i = 0; i < 3; ++i) {
    pop_calls();
    step();
    CHECK(pop_calls() == of_graphs);
  }
}

TEST_CASE_METHOD(InGraphs, "no exchange runs during a capture") {
  for (int i = 0; i < 3; ++i) step();
  bool records = false;
  for (const std::string& call : recorder.calls()) {
    if (call == "cuStreamBeginCapture_v2") records = true;
    if (call == "cuStreamEndCapture") records = false;
    CHECK_FALSE((records && call.starts_with("nccl")));
  }
}

TEST_CASE_METHOD(InGraphs, "a step that cannot be captured makes the same exchanges") {
  const testing::LogLines log;
  Commands::logged = false;
  step();
  for (const std::size_t n : {1u, 2u, 3u})
    recorder.fail("cuStreamEndCapture", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, n);
  for (int i = 0; i < 3; ++i) {
    pop_calls();
    step();
    CHECK(recorder.count("ncclAllReduce") == 3);
    CHECK(recorder.count("cuGraphLaunch") == 0);
  }
  CHECK(log.lines.size() == 1);
}

TEST_CASE_METHOD(Fixture, "a profile lists exchanges, which are not part of a graph") {
  auto communicator = join();
  Driver timing = driver();
  timing.cuEventElapsedTime = [](float* ms, CUevent, CUevent) { return *ms = 0.25f, CUDA_SUCCESS; };
  const EntryPoints<Driver>::Override timed(timing);
  WorkTimes times;
  int waits = 0;
  commands.measure(&times, [&] { return ++waits, CUDA_SUCCESS; });
  commands.begin_work({.pass = WorkPass::exchange, .part = "gradients"});
  pop_calls();
  communicator->post(commands, gradients, 40);
  // It ran on the exchange stream, which the second event waits for.
  const Names calls = pop_calls();
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
