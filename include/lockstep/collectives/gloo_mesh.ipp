#pragma once

#include "lockstep/collectives/gloo_mesh.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/threads.hpp"

namespace lockstep {

GlooMesh::GlooMesh(const Options& options, GlooStore& store)
    : rank_(options.rank), size_(options.size), pairs_(options, store) {
  if (size_ == 1) return;
  std::exception_ptr rejection;
  detail::GlooBatch receives{
      {}, [&](std::size_t, std::exception_ptr why) { rejection = std::move(why); }};
  notices_.resize(size_);
  lost_.resize(size_);
  notices_in_.resize(size_);
  notices_out_.resize(size_);
  probes_.resize(size_);
  probe_bytes_.resize(size_);
  try {
    pairs_.for_each_peer([&](std::size_t r) {
      notices_out_[r] = pairs_.buffer(&shutdown_, sizeof shutdown_);
      notices_in_[r] = pairs_.buffer(&notices_[r], sizeof notices_[r]);
      receives.posts.push_back({detail::GlooPost::Direction::receive, r, notices_in_[r].get(),
                                notice_slot, 0, sizeof notices_[r]});
      probes_[r] = pairs_.buffer(&probe_bytes_[r], 1);
      receives.posts.push_back(
          {detail::GlooPost::Direction::receive, r, probes_[r].get(), probe_slot, 0, 1});
      notice_batch_.posts.push_back({detail::GlooPost::Direction::send, r, notices_out_[r].get(),
                                     notice_slot, 0, sizeof shutdown_});
    });
    notice_batch_.on_rejected = [this](std::size_t r, const std::exception_ptr&) {
      notices_out_[r]->abortWaitSend();  // r has already closed its connection
    };
    pairs_.loop().post(receives);
    pairs_.loop().wait_posted(receives);
    if (rejection) std::rethrow_exception(rejection);
  } catch (const std::exception& e) {
    throw GlooMeshError(rank_, rank_, detail::gloo_fact(e));
  }
  watch_ = detail::start_thread("gloo mesh", [this] { watch(); });
}

GlooMesh::~GlooMesh() {
  if (!watch_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    destroying_ = true;  // from here on no shutdown starts closer_
  }
  if (closer_.joinable()) closer_.join();
  {
    const std::scoped_lock lock(mutex_);
    watch_stops_ = true;
  }
  changed_.notify_all();
  watch_.join();
  if (closing_) return;
  pairs_.loop().wait_posted(notice_batch_);
  pairs_.close();  // before the buffers that they write to are freed
}

ExchangeProgress GlooMesh::progress() {
  const std::scoped_lock lock(mutex_);
  const detail::GlooWait* oldest = nullptr;
  for (const auto* wait : waits_)
    if (wait->buffer && (!oldest || wait->deadline < oldest->deadline)) oldest = wait;
  return {done_.load(std::memory_order_relaxed),
          oldest ? std::optional(oldest->peer) : std::nullopt};
}

void GlooMesh::add(detail::GlooWait& wait) {
  const std::scoped_lock lock(mutex_);
  if (wait.channel >= detail::gloo_mesh_channel || channels_used_[wait.channel])
    throw UsageError(
        "gloo group: channel {} is invalid or in use; give each group of a mesh its own channel "
        "below {}",
        wait.channel, detail::gloo_mesh_channel);
  channels_used_[wait.channel] = true;
  waits_.push_back(&wait);
  changed_.notify_all();
}

void GlooMesh::remove(detail::GlooWait& wait) {
  const std::scoped_lock lock(mutex_);
  waits_.erase(std::find(waits_.begin(), waits_.end(), &wait));
}

bool GlooMesh::enter() {
  const std::scoped_lock lock(mutex_);
  if (shutdown_.cause != Cause::none) return false;
  ++active_;
  return true;
}

void GlooMesh::leave() {
  const std::scoped_lock lock(mutex_);
  --active_;
  close_if_idle();
}

void GlooMesh::close_if_idle() {
  if (shutdown_.cause == Cause::none || active_ > 0 || closing_ || destroying_ || size_ == 1)
    return;
  closing_ = true;
  try {
    closer_ = detail::start_thread("gloo mesh", [this] { close(); });
  } catch (const Error&) {  // no thread could be started: the destructor closes
    closing_ = false;
    destroying_ = true;
  }
}

void GlooMesh::close() {
  pairs_.loop().wait_posted(notice_batch_);
  // A notice queued after a message in transit would be lost if the connection were closed now.
  const auto deadline = Clock::now() + close_timeout;
  pairs_.for_each_peer([&](std::size_t r) {
    wait_until(deadline, r, *notices_out_[r],
               [&] { return notices_out_[r]->waitSend(nullptr, no_timeout); });
  });
  pairs_.close();
}

bool GlooMesh::wait_until(Clock::time_point deadline, std::size_t r,
                          gloo::transport::UnboundBuffer& buffer, FunctionRef<bool()> f) {
  detail::GlooWait wait;
  wait.buffer = &buffer;
  wait.peer = r;
  wait.deadline = deadline;
  {
    const std::scoped_lock lock(mutex_);
    waits_.push_back(&wait);
  }
  changed_.notify_all();
  bool came = false;
  try {
    came = f();
  } catch (const std::exception&) {  // the connection is gone
  }
  remove(wait);
  return came;
}

bool GlooMesh::begin_wait(detail::GlooWait& wait, std::size_t peer,
                          gloo::transport::UnboundBuffer& buffer) {
  const std::scoped_lock lock(mutex_);
  if (shutdown_.cause != Cause::none || wait.rejection) return false;
  wait.buffer = &buffer;
  wait.peer = peer;
  wait.is_late = wait.is_lost = false;
  wait.deadline = Clock::now() + wait.timeout;
  return true;
}

void GlooMesh::finish_wait(detail::GlooWait& wait) {
  const std::scoped_lock lock(mutex_);
  wait.buffer = nullptr;
}

void GlooMesh::record_rejection(detail::GlooWait& wait, std::size_t r,
                                const std::exception_ptr& why) {
  const std::scoped_lock lock(mutex_);
  if (wait.rejection) return;
  wait.rejection = why;
  wait.rejected_peer = r;
  wake(wait);
}

std::exception_ptr GlooMesh::rejection(const detail::GlooWait& wait) {
  const std::scoped_lock lock(mutex_);
  return wait.rejection;
}

void GlooMesh::wake(const detail::GlooWait& wait) {
  if (!wait.buffer) return;
  wait.buffer->abortWaitRecv();
  wait.buffer->abortWaitSend();
}

void GlooMesh::shut_down(Cause cause, std::size_t rank) {
  shut_down({cause, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(rank_)});
}

void GlooMesh::shut_down(detail::GlooShutdown why) {
  const std::scoped_lock lock(mutex_);
  if (shutdown_.cause != Cause::none) return;
  shutdown_ = why;
  if (size_ == 1) return;
  for (const auto* wait : waits_) wake(*wait);
  pairs_.loop().post(notice_batch_);
  close_if_idle();
}

detail::GlooShutdown GlooMesh::shutdown() {
  const std::scoped_lock lock(mutex_);
  return shutdown_;
}

detail::GlooShutdown GlooMesh::read_notice(std::size_t rank) {
  const std::scoped_lock lock(notice_mutex_);
  if (!notices_in_[rank]) return notices_[rank];
  // Gloo reports the end of a connection to one buffer after the other; the notice's may be next.
  wait_until(Clock::now() + notice_timeout, rank, *notices_in_[rank],
             [&] { return notices_in_[rank]->waitRecv(nullptr, no_timeout); });
  notices_in_[rank].reset();
  return notices_[rank];
}

void GlooMesh::poll_lost() {
  pairs_.for_each_peer([&](std::size_t r) {
    if (lost_[r]) return;
    try {
      probes_[r]->abortWaitRecv();  // makes the next line return immediately
      probes_[r]->waitRecv(nullptr, std::chrono::milliseconds(0));
    } catch (const std::exception&) {
      lost_[r] = true;
    }
  });
}

void GlooMesh::watch() {
  std::vector<char> lost(size_);
  Clock::time_point next_poll{}, last = Clock::now();
  std::unique_lock lock(mutex_);
  while (!watch_stops_) {
    const bool polls = Clock::now() >= next_poll;
    if (polls) {
      lock.unlock();
      lost = lost_;
      poll_lost();
      if (const auto rank = pairs_.links().find_dead(Clock::now()))
        shut_down(Cause::dead_link, *rank);
      next_poll = Clock::now() + poll_interval;
      lock.lock();
    }
    const auto now = Clock::now();
    // The process was suspended (Ctrl-Z, a frozen container): extend the deadlines by that time.
    if (const auto gap = now - std::exchange(last, now); gap > suspend_threshold)
      for (auto* wait : waits_)
        wait->deadline = std::max<Clock::time_point>(
            wait->deadline, std::min<Clock::time_point>(wait->deadline + gap, now + wait->timeout));
    auto next = next_poll;
    for (auto* wait : waits_) {
      if (!wait->buffer) {
        next = std::min<Clock::time_point>(next, now + wait->timeout);
        continue;
      }
      if (wait->is_late || wait->is_lost) continue;
      wait->is_late = wait->deadline <= now;
      wait->is_lost = polls && lost[wait->peer];
      if (wait->is_late || wait->is_lost)
        wake(*wait);
      else
        next = std::min(next, wait->deadline);
    }
    changed_.wait_until(lock, next);
  }
}

std::shared_ptr<GlooMesh> form_gloo_mesh(GlooMesh::Options options, GlooStore& store,
                                         std::size_t attempts) {
  const std::string formed = "formed";
  const std::uint64_t last = options.number + attempts - 1;
  for (;; ++options.number) {
    const auto key = [&](std::size_t rank) {
      return fmt::format("{}/{}/formed/{}", options.name, options.number, rank);
    };
    std::shared_ptr<GlooMesh> mesh;
    std::optional<GlooMeshError> error;
    try {
      mesh = std::make_shared<GlooMesh>(options, store);
    } catch (const GlooMeshError& e) {
      error = e;
    }
    store.set(key(options.rank), error ? error->what() : formed);
    // Every process waits for all others, even if its own part failed, so that all begin the next
    // attempt together. A process that began together with this one is done after its own limit.
    const auto deadline = std::chrono::steady_clock::now() + 3 * options.limit;
    for (std::size_t r = 0; r < options.size; ++r) {
      const std::optional<std::string> theirs = store.get(key(r), deadline);
      if (error || theirs == formed) continue;
      error.emplace(options.rank, r, theirs.value_or("it did not report the outcome of its part"));
    }
    if (!error) return mesh;
    if (options.number == last) throw *error;
  }
}

}  // namespace lockstep
