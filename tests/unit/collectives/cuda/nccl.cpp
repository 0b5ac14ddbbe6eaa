/// \file
#include "lockstep/collectives/nccl.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

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

/// Whose functions do nothing, well.
Driver fake_driver() {
  Driver table;
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

  std::unique_ptr<NcclCommunicator> join(std::chrono::nanoseconds timeout = 1min) {
    return std::make_unique<NcclCommunicator>(NcclCommunicator::make_id(), 2, 0, timeout, aborted,
                                              family);
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
  CHECK(take() == Names{"ncclGetUniqueId", "cuStreamCreate", "cuEventCreate", "cuEventCreate",
                        "ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclCommGetAsyncError",
                        "ncclCommGetAsyncError"});
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

TEST_CASE_METHOD(Fixture, "calls of NCCL are made at once, never in a graph") {
  Commands with_graphs(nullptr, true);
  auto communicator = join();
  for (int step = 0; step < 3; ++step) {
    for (CUdeviceptr i = 1; i < 5; ++i) with_graphs.clear(64 * i, 8);
    take();
    communicator->post(with_graphs, gradients, 100);
    CHECK(recorder.count("ncclAllReduce") == 1);
    CHECK(recorder.count("cuGraphLaunch") == (step > 0 ? 1 : 0));  // what was said before it
  }
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
