/// \file
/// One replica's place in a NCCL communicator. Invariants: its calls are made in the order of the
/// stream, at once, so that
/// all ranks make them alike whatever graphs a rank makes of the rest of its step; nothing here waits for the GPU; a
/// communicator that failed or whose group was aborted ends by ncclCommAbort, which frees a GPU
/// that waits for a lost peer, together with all others of that GPU.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collectives/nccl_memory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/devices/cuda/commands.hpp"
#include "lockstep/devices/cuda/libraries/nccl.hpp"
#include "lockstep/devices/cuda/stream.hpp"

namespace lockstep::detail::cuda {

/// Whether NCCL can be loaded here.
[[gnu::cold]] inline bool has_nccl() {
  try {
    nccl();
    return true;
  } catch (const DeviceError&) {
    return false;
  }
}

[[noreturn, gnu::cold]] inline void refuse(ncclResult_t result, const char* what,
                                           ncclComm_t communicator) {
  throw CollectiveError({"nccl: ", what, " failed: ", nccl().ncclGetErrorString(result), " (",
                         nccl().ncclGetLastError(communicator), "); NCCL_DEBUG=WARN shows more"});
}

class NcclCommunicator;

/// The communicators of one GPU's context, and the memory they reduce. They end together: freeing
/// one's memory waits for the kernels of all, which may wait for the same lost peer.
struct NcclFamily {
  std::vector<NcclCommunicator*> members;
  NcclMemory memory;

  /// Ends what `memory` has taken.
  inline void give(std::byte* p) noexcept;
};

class NcclCommunicator {
 public:
  using Clock = std::chrono::steady_clock;

  [[gnu::cold]] static ncclUniqueId make_id() {
    ncclUniqueId id{};
    const ncclResult_t result = nccl().ncclGetUniqueId(&id);
    if (result != ncclSuccess) refuse(result, "making an id", nullptr);
    return id;
  }

  /// Returns when all `size` members have come. `aborted` is looked at in each wait.
  /// \throws CollectiveTimeout, CollectiveAborted, CollectiveError.
  [[gnu::cold]] NcclCommunicator(const ncclUniqueId& id, std::size_t size, std::size_t rank,
                                 std::chrono::nanoseconds timeout, const std::atomic<bool>& aborted,
                                 NcclFamily& family)
      : aborted_(&aborted), timeout_(timeout), family_(&family) {
    family.members.push_back(this);
    try {
      join(id, size, rank);
    } catch (...) {
      leave_family();
      throw;
    }
  }
  ~NcclCommunicator() {
    if (communicator_ != nullptr) {
      if (aborted_->load(std::memory_order_acquire)) {
        end();
      } else {
        registered_.remove_all(communicator_);
        nccl().ncclCommDestroy(communicator_);
      }
    }
    leave_family();
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  template <class T>
  void all_reduce(Commands& commands, T* p, std::size_t n, double* sums, std::size_t m) {
    at_once(commands, [&](CUstream stream) { add(stream, p, n, sums, m); });
  }
  /// The sum of p[0..n), beside what follows in the commands' stream, until `finish`.
  void post(Commands& commands, float* p, std::size_t n) {
    exchange(commands, p, n, nullptr, 0, false);
  }
  /// The last range of a step; what follows in the commands' stream comes after all that was
  /// posted.
  void finish(Commands& commands, float* p, std::size_t n, double* sums, std::size_t m) {
    exchange(commands, p, n, sums, m, true);
  }
  void broadcast(Commands& commands, void* p, std::size_t bytes, std::size_t root) {
    at_once(commands, [&](CUstream stream) {
      start("a broadcast", [&] {
        return nccl().ncclBroadcast(p, p, bytes, ncclUint8, static_cast<int>(root), communicator_,
                                    cuda_stream(stream));
      });
    });
  }
  void all_gather(Commands& commands, const void* p, std::size_t bytes, void* out) {
    at_once(commands, [&](CUstream stream) {
      start("an all-gather", [&] {
        return nccl().ncclAllGather(p, out, bytes, ncclUint8, communicator_, cuda_stream(stream));
      });
    });
  }

  /// All of the family's memory becomes known to this communicator: it reduces such memory where it
  /// lies. False: not all, and some may be. If one rank reduces registered memory all must.
  bool register_memory() {
    return communicator_ != nullptr && registered_.add(communicator_, family_->memory);
  }
  /// When nothing is under way in it; `p`: the begin of one buffer.
  void deregister(const void* p) {
    if (communicator_ != nullptr) registered_.remove(communicator_, p);
  }
  void deregister_memory() {
    if (communicator_ != nullptr) registered_.remove_all(communicator_);
  }

  /// To be called while somebody waits for the GPU: ends the wait by an exception if the group was
  /// aborted, a peer is lost, or the timeout has passed.
  void watch(std::chrono::nanoseconds waited) {
    if (communicator_ == nullptr) throw CollectiveAborted("nccl: an exchange was ended");
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl().ncclCommGetAsyncError(communicator_, &state);
    if (asked != ncclSuccess) fail(asked, "asking for errors");
    if (state != ncclSuccess && state != ncclInProgress) fail(state, "an exchange");
    check_wait(waited, "an exchange");
  }

 private:
  /// On the stream of exchanges. If it `joins`, the commands' stream waits for it, and so for all
  /// that was posted before it.
  void exchange(Commands& commands, float* p, std::size_t n, double* sums, std::size_t m,
                bool joins) {
    at_once(commands, [&](CUstream stream) {
      computed_.record(stream);
      check(driver().cuStreamWaitEvent(beside_.get(), computed_.get(), 0), "waiting for gradients");
      add(beside_.get(), p, n, sums, m);
      if (!joins && !commands.measures()) return;
      reduced_.record(beside_.get());
      check(driver().cuStreamWaitEvent(stream, reduced_.get(), 0), "waiting for an exchange");
    });
  }
  template <class T>
  void add(CUstream stream, T* p, std::size_t n, double* sums, std::size_t m) {
    start("an all-reduce", [&] {
      const ncclDataType_t type = sizeof(T) == 8 ? ncclFloat64 : ncclFloat32;
      ncclResult_t result = ncclSuccess;
      if (n > 0)
        result = nccl().ncclAllReduce(p, p, n, type, ncclSum, communicator_, cuda_stream(stream));
      if (m > 0 && (result == ncclSuccess || result == ncclInProgress))
        result = nccl().ncclAllReduce(sums, sums, m, ncclFloat64, ncclSum, communicator_,
                                      cuda_stream(stream));
      return result;
    });
  }

  static cudaStream_t cuda_stream(CUstream stream) { return stream; }

  /// run(stream), after all that was said before.
  template <class F>
  void at_once(Commands& commands, const F& run) {
    commands.make_apart(run, "NCCL exchange");
  }
  /// Operations of one group leave in one message.
  template <class F>
  void start(const char* what, const F& operations) {
    ncclResult_t result = nccl().ncclGroupStart();
    if (result == ncclSuccess) {
      result = operations();
      const ncclResult_t end = nccl().ncclGroupEnd();
      if (result == ncclSuccess || result == ncclInProgress) result = end;
    }
    settle(result, what);
  }
  /// The communicator does not block: it is asked until it is done.
  void settle(ncclResult_t result, const char* what) {
    const auto begin = Clock::now();
    while (result == ncclInProgress) {
      check_wait(Clock::now() - begin, what);
      std::this_thread::yield();
      const ncclResult_t asked = nccl().ncclCommGetAsyncError(communicator_, &result);
      if (asked != ncclSuccess) result = asked;
    }
    if (result != ncclSuccess) fail(result, what);
  }
  void check_wait(std::chrono::nanoseconds waited, const char* what) {
    if (aborted_->load(std::memory_order_acquire)) {
      end();
      throw CollectiveAborted({"nccl: ", what, " was aborted, since another replica failed"});
    }
    if (waited > timeout_) {
      end();
      throw CollectiveTimeout(
          {"nccl: ", what, " did not end within ", static_cast<double>(timeout_.count()) * 1e-9,
           " s; a replica did not come: look for errors of the other workers, or raise the "
           "timeout"});
    }
  }
  [[noreturn, gnu::cold]] void fail(ncclResult_t result, const char* what) {
    const ncclComm_t failed = communicator_;
    try {
      refuse(result, what, failed);
    } catch (...) {
      end();
      throw;
    }
  }
  /// Ends all communicators of this GPU: their flags are set one by one, then all is freed.
  void end() {
    nccl().ncclGroupStart();
    for (NcclCommunicator* const c : family_->members) {
      c->registered_.forget();  // an abort ends them
      if (c->communicator_ != nullptr)
        nccl().ncclCommAbort(std::exchange(c->communicator_, nullptr));
    }
    nccl().ncclGroupEnd();
  }
  void leave_family() { std::erase(family_->members, this); }
  [[gnu::cold]] void join(const ncclUniqueId& id, std::size_t size, std::size_t rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t result = nccl().ncclCommInitRankConfig(
        &communicator_, static_cast<int>(size), id, static_cast<int>(rank), &config);
    settle(result, "joining");
  }
  const std::atomic<bool>* aborted_;
  std::chrono::nanoseconds timeout_;
  NcclFamily* family_;
  ncclComm_t communicator_ = nullptr;
  NcclRegistrations registered_;
  Stream beside_{Urgent{}};  // else its few blocks wait for backward's many
  Event computed_, reduced_;
};

inline void NcclFamily::give(std::byte* p) noexcept {
  for (NcclCommunicator* const c : members) c->deregister(p);
  memory.give(p);
}

}  // namespace lockstep::detail::cuda
