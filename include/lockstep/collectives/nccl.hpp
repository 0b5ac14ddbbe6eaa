/// \file
/// One replica's place in a NCCL communicator. Invariants: its calls are made in the order of the
/// stream; which of them are recorded is the same on all ranks, as NCCL demands: an exchange of
/// gradients is made at once when it first comes, and recorded when it comes again, alone, so that
/// what else is in the graphs of a rank is its own business; nothing here waits for the GPU; a
/// communicator that failed or whose group was aborted ends by ncclCommAbort, which frees a GPU
/// that waits for a lost peer, together with all others of that GPU.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collectives/nccl_memory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/devices/cuda/commands.hpp"
#include "lockstep/devices/cuda/graph.hpp"
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
  Commands* commands = nullptr;  // whose graphs have what members recorded

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
  /// `all_say(yes)`, called by all ranks together, is whether all said yes; if there is none, on
  /// any rank, exchanges are never recorded. \throws CollectiveTimeout, CollectiveAborted,
  /// CollectiveError.
  [[gnu::cold]] NcclCommunicator(const ncclUniqueId& id, std::size_t size, std::size_t rank,
                                 std::chrono::nanoseconds timeout, const std::atomic<bool>& aborted,
                                 NcclFamily& family, std::function<bool(bool)> all_say)
      : aborted_(&aborted), timeout_(timeout), family_(&family), all_say_(std::move(all_say)) {
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
        forget_graphs();
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
    exchange(commands, {p, n, nullptr, 0}, false);
  }
  /// The last range of a step; what follows in the commands' stream comes after all that was
  /// posted.
  void finish(Commands& commands, float* p, std::size_t n, double* sums, std::size_t m) {
    exchange(commands, {p, n, sums, m}, true);
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
  /// What is exchanged between replicas in each step.
  struct Ranges {
    float* p;
    std::size_t n;
    double* sums;
    std::size_t m;
    bool operator==(const Ranges&) const = default;
  };
  /// That was exchanged before.
  struct Known {
    Ranges ranges;
    std::shared_ptr<const GraphPart> part{};
  };

  /// All ranks make the same exchanges in the same order, of memory that they take together: so
  /// what is known here is known on all.
  void exchange(Commands& commands, const Ranges& r, bool joins) {
    if (!all_say_) return exchange_at_once(commands, r, joins);
    if (known_at_ != family_->memory.asked()) {  // other memory may have the same addresses
      known_.clear();
      known_at_ = family_->memory.asked();
    }
    const auto known =
        std::find_if(known_.begin(), known_.end(), [&](auto& k) { return k.ranges == r; });
    if (known == known_.end()) {
      known_.push_back({r});
      return exchange_at_once(commands, r, joins);
    }
    if (known->part == nullptr && !record(commands, *known))
      return exchange_at_once(commands, r, joins);
    if (is_beside_) at_once(commands, [&](CUstream stream) { wait_for_beside(stream); });
    commands.part(known->part, joins);
  }
  /// False: the exchange cannot be recorded, on this rank or another; then no rank records any
  /// more. If CUDA fails to begin, end or instantiate the capture, all ranks try a second time. If
  /// an NCCL call fails during the capture, which it also does when the capture was invalidated
  /// before, there is no second attempt: the communicator cannot be used again, so the call throws
  /// CollectiveError, which ends the job.
  [[gnu::cold]] bool record(Commands& commands, Known& known) {
    family_->commands = &commands;
    std::string why;
    for (int attempt = 0; attempt < 2; ++attempt) {
      why = try_to_record(known);
      if (all_say_(known.part != nullptr)) return true;
      known.part = nullptr;
    }
    log(LogLevel::warning,
        text({"nccl: exchanges are no part of graphs, which is slower, since one cannot be "
              "recorded: ",
              why}));
    commands.flush();  // what was said still counts
    forget_graphs();
    all_say_ = nullptr;
    return false;
  }
  /// Returns why `known` has no part, if it has none.
  [[gnu::cold]] std::string try_to_record(Known& known) {
    const Undisturbed undisturbed;
    const Ranges r = known.ranges;
    try {
      known.part = std::make_shared<const GraphPart>(
          beside_.get(), [&] { add(beside_.get(), r.p, r.n, r.sums, r.m); });
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "another rank cannot";
  }
  void exchange_at_once(Commands& commands, const Ranges& r, bool joins) {
    at_once(commands, [&](CUstream stream) {
      computed_.record(stream);
      check(driver().cuStreamWaitEvent(beside_.get(), computed_.get(), 0), "waiting for gradients");
      add(beside_.get(), r.p, r.n, r.sums, r.m);
      is_beside_ = true;
      if (joins || commands.measures()) wait_for_beside(stream);
    });
  }
  void wait_for_beside(CUstream stream) {
    reduced_.record(beside_.get());
    check(driver().cuStreamWaitEvent(stream, reduced_.get(), 0), "waiting for an exchange");
    is_beside_ = false;
  }
  /// NCCL ends a communicator only when nothing is left of what was recorded with it.
  void forget_graphs() {
    known_.clear();
    if (family_->commands != nullptr) family_->commands->forget_parts();
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
  /// Ends all communicators of this GPU: their flags are set one by one, then graphs end, which may
  /// wait for their kernels, then all is freed.
  void end() {
    nccl().ncclGroupStart();
    for (NcclCommunicator* const c : family_->members) {
      c->registered_.forget();  // an abort ends them
      if (c->communicator_ != nullptr)
        nccl().ncclCommAbort(std::exchange(c->communicator_, nullptr));
    }
    for (NcclCommunicator* const c : family_->members) c->forget_graphs();
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
  std::function<bool(bool)> all_say_;
  ncclComm_t communicator_ = nullptr;
  NcclRegistrations registered_;
  Stream beside_{Urgent{}};  // else its few blocks wait for backward's many
  Event computed_, reduced_;
  bool is_beside_ = false;  // something on that stream was not waited for
  std::vector<Known> known_;
  std::size_t known_at_ = 0;  // how much memory had been asked for
};

inline void NcclFamily::give(std::byte* p) noexcept {
  for (NcclCommunicator* const c : members) c->deregister(p);
  memory.give(p);
}

}  // namespace lockstep::detail::cuda
