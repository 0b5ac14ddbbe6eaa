#pragma once

#include "lockstep/collectives/gloo_loop.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "lockstep/collectives/gloo_exec.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::detail {

void GlooPost::operator()() const {
  const int rank = static_cast<int>(peer);
  if (direction == Direction::send)
    buffer->send(rank, slot, offset, bytes);
  else
    buffer->recv(rank, slot, offset, bytes);
}

GlooLoop::GlooLoop(std::shared_ptr<gloo::transport::tcp::Device> device)
    : device_(std::move(device)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_ < 0)
    throw Error("gloo mesh: no eventfd ({}); raise the limit of open files (ulimit -n)",
                std::generic_category().message(errno));
  queue_.reserve(max_batches);
  device_->registerDescriptor(wake_, EPOLLIN, this);
  set_epoll_cloexec(wake_);
}

GlooLoop::~GlooLoop() {
  device_->unregisterDescriptor(wake_, this);  // returns when Gloo's thread has left the callback
  ::close(wake_);
}

void GlooLoop::post(GlooBatch& batch) {
  {
    const std::scoped_lock lock(mutex_);
    queue_.push_back(&batch);
    batch.in_flight = true;
  }
  const std::uint64_t one = 1;
  // A failed write means that the counter is at its maximum, so the thread is awake anyway.
  [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
}

void GlooLoop::wait_posted(const GlooBatch& batch) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return !batch.in_flight; });
}

void GlooLoop::handleEvents(int) {
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
        batch.on_rejected(post.peer, std::current_exception());
      }
    lock.lock();
    batch.in_flight = false;
    done_.notify_all();
  }
}

}  // namespace lockstep::detail
