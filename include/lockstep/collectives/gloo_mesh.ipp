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
  std::exception_ptr refusal;
  detail::GlooBatch hears{{},
                          [&](std::size_t, std::exception_ptr why) { refusal = std::move(why); }};
  heard_.resize(size_);
  lost_.resize(size_);
  news_in_.resize(size_);
  news_out_.resize(size_);
  open_.resize(size_);
  nothing_.resize(size_);
  try {
    pairs_.for_each_peer([&](std::size_t r) {
      news_out_[r] = pairs_.buffer(&end_, sizeof end_);
      news_in_[r] = pairs_.buffer(&heard_[r], sizeof heard_[r]);
      hears.posts.push_back(
          {detail::GlooPost::Way::receive, r, news_in_[r].get(), news, 0, sizeof heard_[r]});
      open_[r] = pairs_.buffer(&nothing_[r], 1);
      hears.posts.push_back({detail::GlooPost::Way::receive, r, open_[r].get(), unsent, 0, 1});
      last_words_.posts.push_back(
          {detail::GlooPost::Way::send, r, news_out_[r].get(), news, 0, sizeof end_});
    });
    last_words_.refused = [this](std::size_t r, const std::exception_ptr&) {
      news_out_[r]->abortWaitSend();  // it has left already
    };
    pairs_.loop().post(hears);
    pairs_.loop().drain(hears);
    if (refusal) std::rethrow_exception(refusal);
  } catch (const std::exception& e) {
    throw GlooMeshError(rank_, rank_, detail::gloo_fact(e));
  }
  watch_ = detail::start_thread("gloo mesh", [this] { watch(); });
}

GlooMesh::~GlooMesh() {
  if (!watch_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    stops_ = true;  // nobody ends the mesh any more
  }
  if (closer_.joinable()) closer_.join();
  {
    const std::scoped_lock lock(mutex_);
    stops_watch_ = true;
  }
  changed_.notify_all();
  watch_.join();
  if (closes_) return;
  pairs_.loop().drain(last_words_);
  pairs_.close();  // before the memory into which they write goes
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
  if (wait.channel >= detail::gloo_mesh_channel || used_[wait.channel])
    throw UsageError(
        "gloo group: channel {} is taken; give each group of a mesh another one below {}",
        wait.channel, detail::gloo_mesh_channel);
  used_[wait.channel] = true;
  waits_.push_back(&wait);
  changed_.notify_all();
}

void GlooMesh::remove(detail::GlooWait& wait) {
  const std::scoped_lock lock(mutex_);
  waits_.erase(std::find(waits_.begin(), waits_.end(), &wait));
}

bool GlooMesh::enter() {
  const std::scoped_lock lock(mutex_);
  if (end_.why != Why::none) return false;
  ++active_;
  return true;
}

void GlooMesh::leave() {
  const std::scoped_lock lock(mutex_);
  --active_;
  close_if_over();
}

void GlooMesh::close_if_over() {
  if (end_.why == Why::none || active_ > 0 || closes_ || stops_ || size_ == 1) return;
  closes_ = true;
  try {
    closer_ = detail::start_thread("gloo mesh", [this] { close(); });
  } catch (const Error&) {  // no thread: the destructor closes
    closes_ = false;
    stops_ = true;
  }
}

void GlooMesh::close() {
  pairs_.loop().drain(last_words_);
  // News behind a message that is on its way would be lost with the connection.
  const auto deadline = Clock::now() + close_limit;
  pairs_.for_each_peer([&](std::size_t r) {
    within(deadline, r, *news_out_[r], [&] { return news_out_[r]->waitSend(nullptr, no_limit); });
  });
  pairs_.close();
}

bool GlooMesh::within(Clock::time_point deadline, std::size_t r,
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
  } catch (const std::exception&) {  // it is gone
  }
  remove(wait);
  return came;
}

bool GlooMesh::begin(detail::GlooWait& wait, std::size_t peer,
                     gloo::transport::UnboundBuffer& buffer) {
  const std::scoped_lock lock(mutex_);
  if (end_.why != Why::none || wait.refusal) return false;
  wait.buffer = &buffer;
  wait.peer = peer;
  wait.is_late = wait.is_lost = false;
  wait.deadline = Clock::now() + wait.timeout;
  return true;
}

void GlooMesh::finish(detail::GlooWait& wait) {
  const std::scoped_lock lock(mutex_);
  wait.buffer = nullptr;
}

void GlooMesh::refuse(detail::GlooWait& wait, std::size_t r, const std::exception_ptr& why) {
  const std::scoped_lock lock(mutex_);
  if (wait.refusal) return;
  wait.refusal = why;
  wait.refused = r;
  wake(wait);
}

std::exception_ptr GlooMesh::refusal(const detail::GlooWait& wait) {
  const std::scoped_lock lock(mutex_);
  return wait.refusal;
}

void GlooMesh::wake(const detail::GlooWait& wait) {
  if (!wait.buffer) return;
  wait.buffer->abortWaitRecv();
  wait.buffer->abortWaitSend();
}

void GlooMesh::end(Why why, std::size_t rank) {
  end({why, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(rank_)});
}

void GlooMesh::end(detail::GlooEnd why) {
  const std::scoped_lock lock(mutex_);
  if (end_.why != Why::none) return;
  end_ = why;
  if (size_ == 1) return;
  for (const auto* wait : waits_) wake(*wait);
  pairs_.loop().post(last_words_);
  close_if_over();
}

detail::GlooEnd GlooMesh::ended() {
  const std::scoped_lock lock(mutex_);
  return end_;
}

detail::GlooEnd GlooMesh::last_words(std::size_t rank) {
  const std::scoped_lock lock(words_);
  if (!news_in_[rank]) return heard_[rank];
  // Gloo tells one buffer after the other that the connection is gone.
  within(Clock::now() + tell_limit, rank, *news_in_[rank],
         [&] { return news_in_[rank]->waitRecv(nullptr, no_limit); });
  news_in_[rank].reset();
  return heard_[rank];
}

void GlooMesh::find_lost() {
  pairs_.for_each_peer([&](std::size_t r) {
    if (lost_[r]) return;
    try {
      open_[r]->abortWaitRecv();  // so that this is no wait
      open_[r]->waitRecv(nullptr, std::chrono::milliseconds(0));
    } catch (const std::exception&) {
      lost_[r] = true;
    }
  });
}

void GlooMesh::watch() {
  std::vector<char> lost(size_);
  Clock::time_point look{}, last = Clock::now();
  std::unique_lock lock(mutex_);
  while (!stops_watch_) {
    const bool looks = Clock::now() >= look;
    if (looks) {
      lock.unlock();
      lost = lost_;
      find_lost();
      if (const auto rank = pairs_.links().find_dead(Clock::now())) end(Why::cut, *rank);
      look = Clock::now() + look_every;
      lock.lock();
    }
    const auto now = Clock::now();
    // The process was stopped (Ctrl-Z, a frozen container), which does not count for a timeout.
    if (const auto gap = now - std::exchange(last, now); gap > stop_limit)
      for (auto* wait : waits_)
        wait->deadline = std::max<Clock::time_point>(
            wait->deadline, std::min<Clock::time_point>(wait->deadline + gap, now + wait->timeout));
    auto next = look;
    for (auto* wait : waits_) {
      if (!wait->buffer) {
        next = std::min<Clock::time_point>(next, now + wait->timeout);
        continue;
      }
      if (wait->is_late || wait->is_lost) continue;
      wait->is_late = wait->deadline <= now;
      wait->is_lost = looks && lost[wait->peer];
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
    // All wait for all, also who failed, so that the next attempt begins in all at once. Whoever
    // began with us is at its end when its own limit is over.
    const auto deadline = std::chrono::steady_clock::now() + 3 * options.limit;
    for (std::size_t r = 0; r < options.size; ++r) {
      const std::optional<std::string> theirs = store.get(key(r), deadline);
      if (error || theirs == formed) continue;
      error.emplace(options.rank, r, theirs.value_or("it did not say what became of its part"));
    }
    if (!error) return mesh;
    if (options.number == last) throw *error;
  }
}

}  // namespace lockstep
