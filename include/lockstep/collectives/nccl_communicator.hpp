/// \file
/// One replica's place in a NCCL communicator. Invariants: its calls are made in the order of the
/// stream, at once, so that all ranks make them alike whatever graphs a rank makes of the rest of
/// its step; nothing here waits for the GPU; a communicator that failed or whose group was aborted
/// ends by ncclCommAbort, which frees a GPU that waits for a lost peer, together with all others of
/// that GPU.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include "lockstep/collectives/nccl_memory.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/devices/cuda/commands.hpp"
#include "lockstep/devices/cuda/libraries/nccl.hpp"
#include "lockstep/devices/cuda/stream.hpp"

namespace lockstep::detail::cuda {

/// Whether NCCL can be loaded here.
LOCKSTEP_COLD_DECL bool has_nccl();

[[noreturn]] LOCKSTEP_COLD_DECL void throw_nccl_error(ncclResult_t result, const char* what,
                                                      ncclComm_t communicator);

class NcclCommunicator;

/// The communicators of one GPU's context, and the memory they reduce. They end together: freeing
/// one's memory waits for the kernels of all, which may wait for the same lost peer.
struct NcclDeviceState {
  std::vector<NcclCommunicator*> communicators;
  NcclMemory memory;

  /// Ends what `memory` has taken.
  LOCKSTEP_DECL void free(std::byte* p) noexcept;
};

class NcclCommunicator {
 public:
  using Clock = std::chrono::steady_clock;

  LOCKSTEP_COLD_DECL static ncclUniqueId make_id();

  /// Returns when all `size` members have come. `aborted` is looked at in each wait.
  /// \throws CollectiveTimeout, CollectiveAborted, CollectiveError.
  LOCKSTEP_COLD_DECL NcclCommunicator(const ncclUniqueId& id, std::size_t size, std::size_t rank,
                                      std::chrono::nanoseconds timeout,
                                      const std::atomic<bool>& aborted, NcclDeviceState& device);
  LOCKSTEP_DECL ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  template <class T>
  void all_reduce(Commands& commands, T* p, std::size_t n, double* sums, std::size_t m) {
    constexpr ncclDataType_t type = sizeof(T) == 8 ? ncclFloat64 : ncclFloat32;
    call_in_stream_order(commands, [&](CUstream stream) { add(stream, p, n, type, sums, m); });
  }
  /// The sum of p[0..n), beside what follows in the commands' stream, until `finish`.
  LOCKSTEP_DECL void post(Commands& commands, float* p, std::size_t n);
  /// The last range of a step; what follows in the commands' stream comes after all that was
  /// posted.
  LOCKSTEP_DECL void finish(Commands& commands, float* p, std::size_t n, double* sums,
                            std::size_t m);
  LOCKSTEP_DECL void broadcast(Commands& commands, void* p, std::size_t bytes, std::size_t root);
  LOCKSTEP_DECL void all_gather(Commands& commands, const void* p, std::size_t bytes, void* out);

  /// All of the family's memory becomes known to this communicator: it reduces such memory where it
  /// lies. False: not all, and some may be. If one rank reduces registered memory all must.
  LOCKSTEP_DECL bool register_memory();
  /// When nothing is under way in it; `p`: the begin of one buffer.
  LOCKSTEP_DECL void deregister(const void* p);
  LOCKSTEP_DECL void deregister_memory();

  /// To be called while somebody waits for the GPU: ends the wait by an exception if the group was
  /// aborted, a peer is lost, or the timeout has passed.
  LOCKSTEP_DECL void poll(std::chrono::nanoseconds waited);

 private:
  /// On the stream of exchanges. If it `joins`, the commands' stream waits for it, and so for all
  /// that was posted before it.
  LOCKSTEP_DECL void exchange(Commands& commands, float* p, std::size_t n, double* sums,
                              std::size_t m, bool joins);
  LOCKSTEP_DECL void add(CUstream stream, void* p, std::size_t n, ncclDataType_t type, double* sums,
                         std::size_t m);

  static cudaStream_t cuda_stream(CUstream stream) { return stream; }

  /// run(stream), after all that was said before.
  LOCKSTEP_DECL static void call_in_stream_order(Commands& commands,
                                                 const std::function<void(CUstream)>& run);
  /// Operations of one group leave in one message.
  template <class F>
  void call_grouped(const char* what, const F& operations);
  /// The communicator does not block: it is asked until it is done.
  LOCKSTEP_DECL void wait_result(ncclResult_t result, const char* what);
  LOCKSTEP_DECL void check_wait(std::chrono::nanoseconds waited, const char* what);
  [[noreturn]] LOCKSTEP_COLD_DECL void fail(ncclResult_t result, const char* what);
  /// Ends all communicators of this GPU: their flags are set one by one, then all is freed.
  LOCKSTEP_DECL void abort_all();
  void remove_from_device() { std::erase(device_->communicators, this); }
  LOCKSTEP_COLD_DECL void join(const ncclUniqueId& id, std::size_t size, std::size_t rank);
  const std::atomic<bool>* aborted_;
  std::chrono::nanoseconds timeout_;
  NcclDeviceState* device_;
  ncclComm_t communicator_ = nullptr;
  NcclRegistrations registered_;
  Stream exchange_stream_{Urgent{}};  // else its few blocks wait for backward's many
  Event computed_, reduced_;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/nccl_communicator.ipp"
#endif
