/// \file
#include "lockstep/collectives/cuda/nccl_memory.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collectives/cuda/cuda_group.hpp"
#include "lockstep/collectives/thread_group.hpp"
#include "lockstep/cuda.hpp"
#include "lockstep/lockstep.hpp"
#include "support/deadline.hpp"
#include "support/gpus_in_name.hpp"
#include "support/log_lines.hpp"
#include "support/recorder.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;
using namespace std::chrono_literals;
using testing::Recorder;
using Names = std::vector<std::string>;

namespace {

/// The calls of communicators and memory that the fake NCCL recorded, by rank, and its answers.
struct Fake {
  std::mutex mutex;
  std::map<int, Names> calls;  // by rank
  std::map<std::uintptr_t, int> rank_of_memory;
  int cannot_register = -1;          // this rank's registrations fail
  int cannot_allocate = -1;          // this rank's allocations fail
  std::atomic<bool> is_busy{false};  // the GPUs have not finished their work
  std::uintptr_t next = 1;
  thread_local static inline int rank = 0;

  void record(int of, const std::string& what) {
    const std::scoped_lock lock(mutex);
    calls[of].push_back(what);
  }
};
Fake* fake = nullptr;

int rank_of(ncclComm_t c) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(c)) - 1; }

Nccl fake_nccl() {
  Nccl table;
  table.ncclGetErrorString = [](ncclResult_t) { return "no can do"; };
  table.ncclGetLastError = [](ncclComm_t) { return ""; };
  table.ncclGetUniqueId = [](ncclUniqueId* id) { return *id = {}, ncclSuccess; };
  table.ncclCommInitRankConfig = [](ncclComm_t* c, int, ncclUniqueId, int rank, ncclConfig_t*) {
    *c = reinterpret_cast<ncclComm_t>(static_cast<std::uintptr_t>(rank) + 1);
    fake->record(rank, "join");
    return ncclSuccess;
  };
  table.ncclCommGetAsyncError = [](ncclComm_t, ncclResult_t* state) {
    return *state = ncclSuccess;
  };
  table.ncclCommAbort = [](ncclComm_t c) { return fake->record(rank_of(c), "abort"), ncclSuccess; };
  table.ncclCommDestroy = [](ncclComm_t c) { return fake->record(rank_of(c), "end"), ncclSuccess; };
  table.ncclAllReduce = [](const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t,
                           ncclComm_t c, cudaStream_t) {
    return fake->record(rank_of(c), "reduce"), ncclSuccess;
  };
  table.ncclMemAlloc = [](void** p, std::size_t) {
    if (Fake::rank == fake->cannot_allocate) return ncclUnhandledCudaError;
    const std::scoped_lock lock(fake->mutex);
    *p = reinterpret_cast<void*>(fake->next++ << 21);
    fake->calls[Fake::rank].push_back("allocate");
    return ncclSuccess;
  };
  table.ncclMemFree = [](void*) { return fake->record(Fake::rank, "free"), ncclSuccess; };
  table.ncclCommRegister = [](ncclComm_t c, void* p, std::size_t, void** handle) {
    if (rank_of(c) == fake->cannot_register) return ncclInvalidArgument;
    *handle = p;
    return fake->record(rank_of(c), "register"), ncclSuccess;
  };
  table.ncclCommDeregister = [](ncclComm_t c, void* handle) {
    return fake->record(rank_of(c), handle == nullptr ? "deregister nothing" : "deregister"),
           ncclSuccess;
  };
  LOCKSTEP_CUDA_NCCL(LOCKSTEP_RECORD)
  return table;
}

Driver fake_driver() {
  Driver table = testing::gpus_in_name<2>();
  table.cuStreamQuery = [](CUstream) {
    return fake->is_busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
  table.cuMemAlloc = [](CUdeviceptr* p, std::size_t) { return *p = 64, CUDA_SUCCESS; };
  LOCKSTEP_CUDA_DRIVER(LOCKSTEP_RECORD)
  return table;
}

using Group = CudaGroup<ThreadGroup>;
// Not movable: the context calls it by its address.
static_assert(!std::is_copy_constructible_v<Group::Exchange> &&
              !std::is_move_constructible_v<Group::Exchange>);

struct Net : Sequential<Input<4>, Dense<3>> {};

/// Two replicas with one GPU each, set up as by LocalReplicas.
struct Replicas {
  Replicas() {
    fake = &fakes;
    NcclMemory::warned = false;
  }
  ~Replicas() { fake = nullptr; }

  struct Replica {
    Replica(Group& group, int r) : exchange(Group::Member(group, static_cast<std::size_t>(r))) {}
    Group::Exchange exchange;
    std::optional<CudaContext> context;
    std::vector<std::byte*> buffers;
  };
  /// Runs body(replica, rank) in the thread of each replica.
  template <class Body>
  void each(const Body& body) {
    const testing::Deadline deadline("replicas with memory of NCCL");
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r)
      threads.emplace_back([&, r] {
        Fake::rank = r;
        Replica& replica = *replicas[static_cast<std::size_t>(r)];
        Cuda device;
        device.options.graphs = graphs[r];
        if (!replica.context) replica.context.emplace(device.open(2, static_cast<std::size_t>(r)));
        const auto scope = replica.context->scope();
        body(replica, static_cast<std::size_t>(r));
      });
    for (std::thread& thread : threads) thread.join();
  }
  void begin(std::size_t buffers) {
    each([&](Replica& replica, std::size_t r) {
      Group::Member(group, r).attach(*replica.context);
      replica.exchange.install_allocator();
    });
    allocate(buffers);
  }
  void allocate(std::size_t buffers) {
    each([&](Replica& replica, std::size_t) {
      for (std::size_t i = 0; i < buffers; ++i)
        replica.buffers.push_back(replica.context->allocate_exchanged(4000));
    });
  }
  void step() {
    each([](Replica& replica, std::size_t) {
      replica.exchange.post(nullptr, 20);
      replica.exchange.finish(nullptr, 10, nullptr, 0);
    });
  }
  void free_buffers() {
    each([](Replica& replica, std::size_t) {
      for (std::byte* const p : replica.buffers) replica.context->release(p, 0);
      replica.buffers.clear();
    });
  }
  void end() {
    each([&](Replica&, std::size_t r) { Group::Member(group, r).detach(); });
  }
  /// The calls of both ranks, which must be equal.
  Names pop_calls() {
    Names all = std::move(fakes.calls[0]);
    CHECK(all == fakes.calls[1]);
    fakes.calls.clear();
    return all;
  }

  Recorder recorder;
  Fake fakes;
  Nccl table = fake_nccl();
  Driver driver_table = fake_driver();
  EntryPoints<Nccl>::Override instead{table};
  EntryPoints<Driver>::Override driver_instead{driver_table};
  testing::LogLines log;
  bool graphs[2] = {true, true};
  Group group{ThreadGroup::Options{.size = 2, .timeout = 10s}};
  std::unique_ptr<Replica> replicas[2] = {std::make_unique<Replica>(group, 0),
                                          std::make_unique<Replica>(group, 1)};
};

const Names reduces{"reduce", "reduce"};
Names joined(std::initializer_list<Names> lists) {
  Names all;
  for (const Names& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace

TEST_CASE_METHOD(Replicas, "memory is registered once, before its first exchange") {
  begin(2);
  CHECK(pop_calls() == Names{"join", "allocate", "allocate"});
  step();
  CHECK(pop_calls() == joined({{"register", "register"}, reduces}));
  step();
  CHECK(pop_calls() == reduces);
  allocate(1);
  step();
  CHECK(pop_calls() == joined({{"allocate", "register"}, reduces}));
  free_buffers();
  end();
  CHECK(log.lines.empty());
}

TEST_CASE_METHOD(Replicas, "each rank calls NCCL immediately, whether it records a graph or not") {
  graphs[1] = GENERATE(true, false);
  begin(1);
  for (int i = 0; i < 4; ++i) step();
  CHECK(pop_calls() ==
        joined({{"join", "allocate", "register"}, reduces, reduces, reduces, reduces}));
  free_buffers();
  end();
}

TEST_CASE_METHOD(Replicas,
                 "a replica that fails before its exchange stops the others before theirs") {
  begin(1);
  step();
  pop_calls();
  std::atomic<int> stopped = 0;
  each([&](Replica& replica, std::size_t r) {
    if (r == 1) return group.abort();
    try {
      replica.exchange.finish(nullptr, 10, nullptr, 0);
    } catch (const CollectiveAborted&) {
      ++stopped;
    }
  });
  CHECK(stopped == 1);
  CHECK(fakes.calls[0].empty());  // no exchange that the update could follow
  free_buffers();
  end();
}

TEST_CASE_METHOD(Replicas, "registrations end before the buffer and before the communicator") {
  begin(2);
  step();
  pop_calls();
  SECTION("buffers first") {
    free_buffers();
    CHECK(pop_calls() == Names{"deregister", "free", "deregister", "free"});
    end();
    CHECK(pop_calls() == Names{"end"});
  }
  SECTION("the communicator first") {
    end();
    CHECK(pop_calls() == Names{"deregister", "deregister", "end"});
    free_buffers();
    CHECK(pop_calls() == Names{"free", "free"});
  }
  SECTION("after an abort, which ends them, and the next communicator registers again") {
    group.abort();
    group.reset();
    CHECK(pop_calls() == Names{"abort"});
    step();
    CHECK(pop_calls() == joined({{"join", "register", "register"}, reduces}));
    group.abort();
    free_buffers();
    CHECK(pop_calls() == Names{"deregister", "free", "deregister", "free"});
    end();
    CHECK(pop_calls() == Names{"abort"});
  }
  SECTION("after an abort of the communicators alone") {
    fakes.is_busy = true;
    group.abort();
    std::atomic<int> thrown = 0;
    each([&](Replica& replica, std::size_t) {
      try {
        replica.context->synchronize();
      } catch (const CollectiveAborted&) {
        ++thrown;
      }
    });
    fakes.is_busy = false;
    CHECK(thrown == 2);
    CHECK(pop_calls() == Names{"abort"});
    free_buffers();
    CHECK(pop_calls() == Names{"free", "free"});
    end();
    CHECK(pop_calls().empty());
  }
}

TEST_CASE_METHOD(Replicas, "all ranks register or none") {
  SECTION("one rank cannot") {
    fakes.cannot_register = 1;
    begin(2);
    fakes.calls.clear();
    step();
    CHECK(fakes.calls[0] ==
          joined({{"register", "register", "deregister", "deregister"}, reduces}));
    CHECK(fakes.calls[1] == reduces);
    step();  // and does not try again
    CHECK(fakes.calls[1] == joined({reduces, reduces}));
    CHECK(log.lines ==
          Names{"nccl: gradient memory is not registered: ncclCommRegister failed: no can do; NCCL "
                "copies gradients through its own buffers, which is slower"});
  }
  SECTION("one rank cannot allocate") {
    fakes.cannot_allocate = 1;
    begin(1);
    CHECK(recorder.count("cuMemAlloc_v2") == 1);
    fakes.calls.clear();
    step();
    CHECK(fakes.calls[0] == joined({{"register", "deregister"}, reduces}));
    CHECK(fakes.calls[1] == reduces);
    CHECK(log.lines.size() == 1);
    free_buffers();
    CHECK(recorder.count("cuMemFree_v2") == 1);
  }
  SECTION("an older NCCL has no such functions") {
    table.ncclCommRegister = nullptr;
    begin(2);
    step();
    CHECK(pop_calls() == joined({{"join"}, reduces}));
    CHECK(recorder.count("cuMemAlloc_v2") == 4);
    CHECK(log.lines.size() == 1);
    CHECK(log.lines.at(0).find("NCCL is older than 2.19") != std::string::npos);
    free_buffers();
  }
  end();
}

TEST_CASE_METHOD(Replicas, "a single member does not use NCCL unless it is preferred") {
  for (const bool nccl_preferred : {false, true}) {
    Group alone(ThreadGroup::Options{.size = 1});
    if (nccl_preferred) alone.prefer(CudaTransport::nccl);
    Replica replica(alone, 0);
    replica.context.emplace(Cuda{}.open(1, 0));
    const auto scope = replica.context->scope();
    Group::Member(alone, 0).attach(*replica.context);
    replica.exchange.install_allocator();
    std::byte* const p = replica.context->allocate_exchanged(400);
    replica.exchange.finish(reinterpret_cast<float*>(p), 100, nullptr, 0);
    CHECK(std::exchange(fakes.calls[0], {}) ==
          (nccl_preferred ? Names{"join", "allocate", "register", "reduce"} : Names{}));
    replica.context->release(p, 400);
    Group::Member(alone, 0).detach();
    fakes.calls.clear();
  }
}

TEST_CASE_METHOD(Replicas, "a model's replicas hold gradients and sums in NCCL memory") {
  const auto count = [&](const std::string& what) {
    std::ptrdiff_t all = 0;
    for (const auto& [rank, calls] : fakes.calls)
      all += std::count(calls.begin(), calls.end(), what);
    return all;
  };
  {
    Model model{Net{}, Mirrored<Cuda>{}, MeanSquaredError{}, SGD{}};
    CHECK(count("join") == 2);
    CHECK(count("allocate") == 4);
    CHECK(count("free") == 0);
  }
  CHECK(count("free") == 4);
  CHECK(count("end") == 2);
}

TEST_CASE_METHOD(Replicas, "without the NCCL transport the driver allocates the memory") {
  group.prefer(CudaTransport::host);
  begin(2);
  CHECK(pop_calls().empty());
  CHECK(recorder.count("cuMemAlloc_v2") == 4);
  free_buffers();
  end();
}
