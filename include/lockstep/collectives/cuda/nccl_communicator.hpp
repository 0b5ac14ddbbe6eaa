/// \file
/// One replica's NCCL communicator. Invariants: NCCL is called in stream order and outside of
/// captured graphs, so that all ranks make the same calls whatever graphs a rank captures of the
/// rest of its step; nothing here waits for the GPU; a communicator that failed, or whose group was
/// aborted, is destroyed by ncclCommAbort, which releases a GPU that waits for a lost peer. All
/// communicators of that GPU are aborted together.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include "lockstep/collectives/cuda/nccl_memory.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/devices/cuda/commands.hpp"
#include "lockstep/devices/cuda/libraries/nccl.hpp"
#include "lockstep/devices/cuda/stream.hpp"

namespace lockstep::detail::cuda {

/// Whether the NCCL library can be loaded on this machine.
LOCKSTEP_COLD_DECL bool has_nccl();

/// \throws CollectiveError with NCCL's text for `result` and its last error.
[[noreturn]] LOCKSTEP_COLD_DECL void throw_nccl_error(ncclResult_t result, const char* what,
                                                      ncclComm_t communicator);

class NcclCommunicator;

/// The communicators of one GPU's context and the memory that they reduce. They are aborted
/// together: freeing the memory of one waits for the kernels of all, which may wait for the same
/// lost peer.
struct NcclDeviceState {
  std::vector<NcclCommunicator*> communicators;
  NcclMemory memory;

  /// Deregisters memory that `memory` has allocated, and frees it.
  LOCKSTEP_DECL void free(std::byte* p) noexcept;
};

/// A communicator and the stream on which it reduces gradients while backward continues:
///
///     commands' stream   backward ── bucket 0 ── bucket 1 ── last bucket ── wait ── update
///                                        │ computed_ │ computed_ │            ^ reduced_
///     exchange_stream_                   └> reduce 0 └> reduce 1 └> reduce ───┘
class NcclCommunicator {
 public:
  using Clock = std::chrono::steady_clock;

  /// The id of a new communicator. Any process that knows it can join: share it as a secret.
  LOCKSTEP_COLD_DECL static ncclUniqueId make_id();

  /// Returns when all `size` ranks have joined. Each wait polls `aborted`.
  /// \throws CollectiveTimeout, CollectiveAborted, CollectiveError.
  LOCKSTEP_COLD_DECL NcclCommunicator(const ncclUniqueId& id, std::size_t size, std::size_t rank,
                                      std::chrono::nanoseconds timeout,
                                      const std::atomic<bool>& aborted, NcclDeviceState& device);
  LOCKSTEP_DECL ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// Replaces p[0..n) and sums[0..m) with their sums, in order on the commands' stream.
  template <class T>
  void all_reduce(Commands& commands, T* p, std::size_t n, double* sums, std::size_t m) {
    constexpr ncclDataType_t type = sizeof(T) == 8 ? ncclFloat64 : ncclFloat32;
    call_in_stream_order(commands, [&](CUstream stream) { add(stream, p, n, type, sums, m); });
  }
  /// Sums p[0..n) on the exchange stream, concurrently with what follows in the commands' stream.
  LOCKSTEP_DECL void post(Commands& commands, float* p, std::size_t n);
  /// Sums the last range of a step; the commands' stream then waits for all posted ranges.
  LOCKSTEP_DECL void finish(Commands& commands, float* p, std::size_t n, double* sums,
                            std::size_t m);
  /// Replaces p[0..bytes) with the root's.
  LOCKSTEP_DECL void broadcast(Commands& commands, void* p, std::size_t bytes, std::size_t root);
  /// out[r bytes..(r + 1) bytes) becomes p[0..bytes) of rank r.
  LOCKSTEP_DECL void all_gather(Commands& commands, const void* p, std::size_t bytes, void* out);

  /// Registers all of the GPU's NCCL memory with this communicator, which then reduces it in place.
  /// \return false if some is not registered. If one rank reduces registered memory, all must.
  LOCKSTEP_DECL bool register_memory();
  /// Deregisters the buffer that starts at p; nothing may be in flight in it.
  LOCKSTEP_DECL void deregister(const void* p);
  /// Deregisters all buffers.
  LOCKSTEP_DECL void deregister_memory();

  /// Call it repeatedly while the host waits for the GPU. Throws to end the wait if the group was
  /// aborted, a peer is lost, or `waited` exceeds the timeout.
  LOCKSTEP_DECL void poll(std::chrono::nanoseconds waited);

 private:
  /// All-reduces on the exchange stream. If it `joins`, the commands' stream waits for it, and so
  /// for all ranges posted before.
  LOCKSTEP_DECL void exchange(Commands& commands, float* p, std::size_t n, double* sums,
                              std::size_t m, bool joins);
  LOCKSTEP_DECL void add(CUstream stream, void* p, std::size_t n, ncclDataType_t type, double* sums,
                         std::size_t m);

  static cudaStream_t cuda_stream(CUstream stream) { return stream; }

  /// Calls run(stream) after all earlier commands, outside of any graph.
  LOCKSTEP_DECL static void call_in_stream_order(Commands& commands,
                                                 const std::function<void(CUstream)>& run);
  /// Calls operations() between ncclGroupStart and ncclGroupEnd: NCCL launches them together.
  template <class F>
  void call_grouped(const char* what, const F& operations);
  /// Polls the non-blocking communicator until `result` is no longer in progress.
  LOCKSTEP_DECL void wait_result(ncclResult_t result, const char* what);
  /// \throws CollectiveAborted or CollectiveTimeout, after abort_all.
  LOCKSTEP_DECL void check_wait(std::chrono::nanoseconds waited, const char* what);
  /// Aborts all communicators of this GPU and throws NCCL's error.
  [[noreturn]] LOCKSTEP_COLD_DECL void fail(ncclResult_t result, const char* what);
  /// Aborts all communicators of this GPU in one group, so that NCCL flags all of them before it
  /// frees any.
  LOCKSTEP_DECL void abort_all();
  void remove_from_device() { std::erase(device_->communicators, this); }
  /// Creates the communicator in non-blocking mode and waits until all ranks have joined.
  LOCKSTEP_COLD_DECL void join(const ncclUniqueId& id, std::size_t size, std::size_t rank);

  const std::atomic<bool>* aborted_;
  std::chrono::nanoseconds timeout_;
  NcclDeviceState* device_;
  ncclComm_t communicator_ = nullptr;
  NcclRegistrations registered_;
  Stream exchange_stream_{Urgent{}};  // high priority: its few blocks overtake backward's many
  Event computed_;                    // on the commands' stream: the posted range is written
  Event reduced_;                     // on the exchange stream: all posted ranges are summed
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/cuda/nccl_communicator.ipp"
#endif
