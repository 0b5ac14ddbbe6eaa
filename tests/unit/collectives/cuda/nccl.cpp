/// \file
#include "lockstep/collectives/nccl.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/recorder.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;
using namespace std::chrono_literals;
using testing::Recorder;
using Names = std::vector<std::string>;

namespace {

/// What the fake says when it is asked how the communicator is; the last one for ever.
std::vector<ncclResult_t> states;
int blocking = -1;
bool registers = false;

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
  table.ncclCommRegister = [](ncclComm_t, void*, std::size_t, void** handle) {
    *handle = registers ? reinterpret_cast<void*>(16) : nullptr;
    return registers ? ncclSuccess : ncclInvalidUsage;
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
  Fixture() {
    states = {ncclInProgress, ncclInProgress, ncclSuccess};
    registers = true;
  }
  Recorder recorder;
  Nccl table = fake_nccl();
  Driver driver_table = fake_driver();
  EntryPoints<Nccl>::Instead instead{table};
  EntryPoints<Driver>::Instead driver_instead{driver_table};
  std::atomic<bool> aborted{false};
  Commands commands{nullptr, false};
  float gradients[100] = {};
  double sums[3] = {};

  std::unique_ptr<NcclCommunicator> join(std::chrono::nanoseconds timeout = 1min) {
    return std::make_unique<NcclCommunicator>(NcclCommunicator::make_id(), 2, 0, timeout, aborted);
  }
  Names take() {
    Names calls = recorder.calls();
    recorder.forget();
    return calls;
  }
};

template <class E>
std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE_METHOD(Fixture, "a communicator does not block while it joins, and is asked") {
  const auto communicator = join();
  CHECK(blocking == 0);
  CHECK(take() == Names{"ncclGetUniqueId", "cuStreamCreate", "cuEventCreate", "cuEventCreate",
                        "ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclCommGetAsyncError",
                        "ncclCommGetAsyncError"});
}

TEST_CASE_METHOD(Fixture, "gradients and sums leave in one group, from registered memory") {
  auto communicator = join();
  take();
  communicator->all_reduce(commands, gradients, 100, sums, 3);
  CHECK(take() == Names{"ncclCommRegister", "ncclCommRegister", "ncclGroupStart", "ncclAllReduce",
                        "ncclAllReduce", "ncclGroupEnd"});
  communicator->all_reduce(commands, gradients, 50, sums, 0);
  CHECK(take() == Names{"ncclGroupStart", "ncclAllReduce", "ncclGroupEnd"});
  communicator->broadcast(commands, gradients, 4, 1);
  communicator->all_gather(commands, gradients, 4, gradients);
  CHECK(take() == Names{"ncclGroupStart", "ncclBroadcast", "ncclGroupEnd", "ncclGroupStart",
                        "ncclAllGather", "ncclGroupEnd"});
  communicator.reset();
  CHECK(take() == Names{"ncclCommDeregister", "ncclCommDeregister", "ncclCommDestroy",
                        "cuEventDestroy_v2", "cuEventDestroy_v2", "cuStreamDestroy_v2"});
}

TEST_CASE_METHOD(Fixture, "gradients leave on a stream of their own while backward goes on") {
  auto communicator = join();
  take();
  communicator->post(commands, gradients + 50, 50);
  CHECK(take() == Names{"ncclCommRegister", "cuEventRecord", "cuStreamWaitEvent", "ncclGroupStart",
                        "ncclAllReduce", "ncclGroupEnd"});
  communicator->finish(commands, gradients, 50, sums, 3);
  // First the other stream waits for this one, then this one for the other.
  CHECK(take() == Names{"ncclCommRegister", "ncclCommRegister", "cuEventRecord",
                        "cuStreamWaitEvent", "ncclGroupStart", "ncclAllReduce", "ncclAllReduce",
                        "ncclGroupEnd", "cuEventRecord", "cuStreamWaitEvent"});
}

TEST_CASE_METHOD(Fixture, "memory that cannot be registered is used all the same") {
  registers = false;
  auto communicator = join();
  communicator->all_reduce(commands, gradients, 100, sums, 0);
  take();
  communicator.reset();
  CHECK(recorder.count("ncclCommDeregister") == 0);
  CHECK(recorder.count("ncclCommDestroy") == 1);
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

TEST_CASE_METHOD(Fixture, "an operation that cannot start says why, and ends its group") {
  auto communicator = join();
  recorder.fail("ncclAllReduce", ncclInvalidArgument);
  take();
  const std::string said = refusal<CollectiveError>(
      [&] { communicator->all_reduce(commands, gradients, 100, sums, 3); });
  CHECK(said.starts_with("nccl: an all-reduce failed: "));
  CHECK(recorder.count("ncclGroupEnd") == 1);
  CHECK(recorder.count("ncclCommAbort") == 1);
}
