/// \file
/// How messages are given to Gloo once a mesh stands. Invariants: all of them are given by Gloo's
/// own thread; who gives it work does not wait for it.
#pragma once

#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/collectives/gloo_exec.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// A message to a peer, or from it.
struct GlooPost {
  enum class Way : std::uint8_t { send, receive };
  Way way{};
  std::size_t peer = 0;
  gloo::transport::UnboundBuffer* buffer = nullptr;
  std::uint64_t slot = 0;
  std::size_t offset = 0, bytes = 0;

  void operator()() const {
    const int rank = static_cast<int>(peer);
    if (way == Way::send)
      buffer->send(rank, slot, offset, bytes);
    else
      buffer->recv(rank, slot, offset, bytes);
  }
};

/// Messages that are given to Gloo one after the other. Touched by its owner alone, but not between
/// GlooLoop::post and the return of `drain`.
struct GlooBatch {
  std::vector<GlooPost> posts{};
  /// Called in Gloo's thread for each message that it refuses; must not throw.
  std::function<void(std::size_t peer, std::exception_ptr)> refused{};
  bool is_under_way = false;  ///< GlooLoop's own
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
  explicit GlooLoop(std::shared_ptr<gloo::transport::tcp::Device> device)
      : device_(std::move(device)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (wake_ < 0)
      throw Error({"gloo mesh: no eventfd (", std::generic_category().message(errno),
                   "); raise the limit of open files (ulimit -n)"});
    queue_.reserve(most_batches);
    device_->registerDescriptor(wake_, EPOLLIN, this);
    close_epoll_on_exec(wake_);
  }
  GlooLoop(const GlooLoop&) = delete;
  GlooLoop& operator=(const GlooLoop&) = delete;
  /// No batch may be under way.
  ~GlooLoop() override {
    device_->unregisterDescriptor(wake_, this);  // returns when the thread has left
    ::close(wake_);
  }

  /// Gives the batch to Gloo's thread. It must not be under way. Takes no memory.
  void post(GlooBatch& batch) {
    {
      const std::scoped_lock lock(mutex_);
      queue_.push_back(&batch);
      batch.is_under_way = true;
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);  // it can only be awake
  }

  /// Returns when Gloo has got all messages of the batch; not when they have arrived.
  void drain(const GlooBatch& batch) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return !batch.is_under_way; });
  }

  void handleEvents(int) override {
    std::uint64_t times = 0;
    [[maybe_unused]] const ssize_t n = ::read(wake_, &times, sizeof times);
    std::unique_lock lock(mutex_);
    while (!queue_.empty()) {
      GlooBatch& batch = *queue_.front();
      queue_.erase(queue_.begin());
      lock.unlock();
      for (const GlooPost& post : batch.posts) try {
          post();
        } catch (...) {
          batch.refused(post.peer, std::current_exception());
        }
      lock.lock();
      batch.is_under_way = false;
      done_.notify_all();
    }
  }

 private:
  static constexpr std::size_t most_batches = 300;  // a mesh has 255 channels, and words of its own

  std::shared_ptr<gloo::transport::tcp::Device> device_;
  int wake_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<GlooBatch*> queue_;
};

}  // namespace lockstep::detail
