/// \file
/// One replica's place in a NCCL communicator. Invariants: operations are recorded in a context's
/// stream, also into its graphs; nothing here waits for the GPU; a communicator that failed or
/// whose group was aborted ends by ncclCommAbort, which frees a GPU that waits for a lost peer.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

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
                                 std::chrono::nanoseconds timeout, const std::atomic<bool>& aborted)
      : aborted_(&aborted), timeout_(timeout) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t result = nccl().ncclCommInitRankConfig(
        &communicator_, static_cast<int>(size), id, static_cast<int>(rank), &config);
    settle(result, "joining");
  }
  ~NcclCommunicator() {
    if (communicator_ == nullptr) return;
    if (aborted_->load(std::memory_order_acquire)) {
      nccl().ncclCommAbort(communicator_);
      return;
    }
    for (void* const handle : handles_) nccl().ncclCommDeregister(communicator_, handle);
    nccl().ncclCommDestroy(communicator_);
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  template <class T>
  void all_reduce(Commands& commands, T* p, std::size_t n, double* sums, std::size_t m) {
    know(p, n * sizeof(T));
    know(sums, m * sizeof(double));
    say(commands, 1, {address(p), n, sizeof(T), address(sums), m},
        [=, this](CUstream stream) { add(stream, p, n, sums, m); });
  }
  /// The sum of p[0..n), beside what follows in the commands' stream, until `finish`.
  void post(Commands& commands, float* p, std::size_t n) {
    know(p, n * sizeof(float));
    say(commands, 4, {address(p), n, 0, 0, 0}, [=, this](CUstream stream) {
      begin_after(stream);
      add(beside_.get(), p, n, nullptr, 0);
    });
  }
  /// The last range of a step; what follows in the commands' stream comes after all that was
  /// posted.
  void finish(Commands& commands, float* p, std::size_t n, double* sums, std::size_t m) {
    know(p, n * sizeof(float));
    know(sums, m * sizeof(double));
    say(commands, 5, {address(p), n, address(sums), m, 0}, [=, this](CUstream stream) {
      begin_after(stream);
      add(beside_.get(), p, n, sums, m);
      reduced_.record(beside_.get());
      check(driver().cuStreamWaitEvent(stream, reduced_.get(), 0), "waiting for an exchange");
    });
  }
  void broadcast(Commands& commands, void* p, std::size_t bytes, std::size_t root) {
    say(commands, 2, {address(p), bytes, root, 0, 0}, [=, this](CUstream stream) {
      start("a broadcast", [&] {
        return nccl().ncclBroadcast(p, p, bytes, ncclUint8, static_cast<int>(root), communicator_,
                                    cuda_stream(stream));
      });
    });
  }
  void all_gather(Commands& commands, const void* p, std::size_t bytes, void* out) {
    say(commands, 3, {address(p), bytes, address(out), 0, 0}, [=, this](CUstream stream) {
      start("an all-gather", [&] {
        return nccl().ncclAllGather(p, out, bytes, ncclUint8, communicator_, cuda_stream(stream));
      });
    });
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
  /// The other stream goes on from where `stream` is.
  void begin_after(CUstream stream) {
    computed_.record(stream);
    check(driver().cuStreamWaitEvent(beside_.get(), computed_.get(), 0), "waiting for gradients");
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

  static std::uint64_t address(const void* p) { return reinterpret_cast<std::uint64_t>(p); }
  static cudaStream_t cuda_stream(CUstream stream) { return stream; }

  template <class F>
  void say(Commands& commands, std::uint64_t what, const std::array<std::uint64_t, 5>& words,
           F&& run) {
    commands.call({what, words[0], words[1], words[2], words[3], words[4], address(communicator_)},
                  std::forward<F>(run));
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
  void end() {
    if (communicator_ != nullptr) nccl().ncclCommAbort(std::exchange(communicator_, nullptr));
  }
  /// NCCL reaches registered memory without a copy of its own.
  void know(void* p, std::size_t bytes) {
    if (bytes == 0) return;
    for (const auto& [at, size] : known_)
      if (at == p && size >= bytes) return;
    known_.push_back({p, bytes});
    void* handle = nullptr;
    if (nccl().ncclCommRegister(communicator_, p, bytes, &handle) == ncclSuccess &&
        handle != nullptr)
      handles_.push_back(handle);  // else it copies
  }

  const std::atomic<bool>* aborted_;
  std::chrono::nanoseconds timeout_;
  ncclComm_t communicator_ = nullptr;
  Stream beside_;
  Event computed_, reduced_;
  std::vector<std::pair<void*, std::size_t>> known_;
  std::vector<void*> handles_;
};

}  // namespace lockstep::detail::cuda
