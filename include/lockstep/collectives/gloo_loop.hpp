/// \file
/// The queue by which messages are posted to Gloo once a mesh is connected. Invariants: only Gloo's
/// own thread calls send and recv; posting does not wait for that thread.
#pragma once

#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// One message: `bytes` of `buffer` from `offset` on, sent to or received from `peer` under the tag
/// `slot`.
struct GlooPost {
  enum class Direction : std::uint8_t { send, receive };
  Direction direction{};
  std::size_t peer = 0;
  gloo::transport::UnboundBuffer* buffer = nullptr;
  std::uint64_t slot = 0;
  std::size_t offset = 0, bytes = 0;

  /// Passes the message to Gloo. Call it in Gloo's thread.
  LOCKSTEP_DECL void operator()() const;
};

/// Messages that are passed to Gloo in order. Only the owner accesses a batch, and not while it is
/// in flight: from GlooLoop::post until `wait_posted` returns.
struct GlooBatch {
  std::vector<GlooPost> posts{};
  /// Called in Gloo's thread for each message that Gloo rejects; must not throw.
  std::function<void(std::size_t peer, std::exception_ptr)> on_rejected{};
  bool in_flight = false;  ///< guarded by GlooLoop's mutex
};

/// Runs all sends and receives in Gloo's event thread.
///
///     caller          post(batch): queue_, then eventfd wake_
///     Gloo's thread   epoll ──> handleEvents: send or recv each message ──> in_flight = false
///     caller          wait_posted(batch) returns; the messages may still be in transit
///
/// Gloo holds a connection's lock while it writes. If its event thread finds that lock held by
/// another thread, it retries without sleeping; where both share a core, that lasts until the end
/// of the scheduler's time slice, 3 ms. And a write that fails in another thread may wait for
/// Gloo's thread while that thread waits for the lock. Neither can happen if only Gloo's thread
/// sends and receives.
class GlooLoop final : public gloo::transport::tcp::Handler {
 public:
  /// \throws Error if the process has reached its limit of open files.
  LOCKSTEP_DECL explicit GlooLoop(std::shared_ptr<gloo::transport::tcp::Device> device);
  GlooLoop(const GlooLoop&) = delete;
  GlooLoop& operator=(const GlooLoop&) = delete;
  /// No batch may be in flight.
  LOCKSTEP_DECL ~GlooLoop() override;

  /// Enqueues the batch, which must not be in flight, and wakes Gloo's thread. Does not allocate.
  LOCKSTEP_DECL void post(GlooBatch& batch);

  /// Returns when all messages of the batch have been passed to Gloo; they may still be in transit.
  LOCKSTEP_DECL void wait_posted(const GlooBatch& batch);
  /// Gloo's callback, in Gloo's thread: passes all queued batches to Gloo.
  LOCKSTEP_DECL void handleEvents(int) override;

 private:
  static constexpr std::size_t max_batches = 300;  // one per channel (255), and the mesh's own

  std::shared_ptr<gloo::transport::tcp::Device> device_;
  int wake_;  // eventfd in Gloo's epoll set
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<GlooBatch*> queue_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/gloo_loop.ipp"
#endif
