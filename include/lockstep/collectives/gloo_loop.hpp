/// \file
/// How messages are given to Gloo once a mesh stands. Invariants: all of them are given by Gloo's
/// own thread; who gives it work does not wait for it.
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

/// A message to a peer, or from it.
struct GlooPost {
  enum class Direction : std::uint8_t { send, receive };
  Direction direction{};
  std::size_t peer = 0;
  gloo::transport::UnboundBuffer* buffer = nullptr;
  std::uint64_t slot = 0;
  std::size_t offset = 0, bytes = 0;

  LOCKSTEP_DECL void operator()() const;
};

/// Messages that are given to Gloo one after the other. Touched by its owner alone, but not between
/// GlooLoop::post and the return of `wait_posted`.
struct GlooBatch {
  std::vector<GlooPost> posts{};
  /// Called in Gloo's thread for each message that it refuses; must not throw.
  std::function<void(std::size_t peer, std::exception_ptr)> refused{};
  bool in_flight = false;  ///< GlooLoop's own
};

/// Gloo's thread, for what it is to send and to receive.
///
/// Gloo holds the lock of a connection while it writes. If its thread finds this lock taken by
/// another thread, it looks again and again without a sleep; where both share a core, that lasts
/// until the scheduler's slice is over, 3 ms. And a write that fails in another thread may wait for
/// Gloo's, while that waits for the lock. If Gloo's thread does all, neither can happen.
class GlooLoop final : public gloo::transport::tcp::Handler {
 public:
  /// \throws Error if the process may not open another file.
  LOCKSTEP_DECL explicit GlooLoop(std::shared_ptr<gloo::transport::tcp::Device> device);
  GlooLoop(const GlooLoop&) = delete;
  GlooLoop& operator=(const GlooLoop&) = delete;
  /// No batch may be under way.
  LOCKSTEP_DECL ~GlooLoop() override;

  /// Gives the batch to Gloo's thread. It must not be under way. Takes no memory.
  LOCKSTEP_DECL void post(GlooBatch& batch);

  /// Returns when Gloo has got all messages of the batch; not when they have arrived.
  LOCKSTEP_DECL void wait_posted(const GlooBatch& batch);
  LOCKSTEP_DECL void handleEvents(int) override;

 private:
  static constexpr std::size_t max_batches = 300;  // a mesh has 255 channels, and words of its own

  std::shared_ptr<gloo::transport::tcp::Device> device_;
  int wake_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<GlooBatch*> queue_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/gloo_loop.ipp"
#endif
