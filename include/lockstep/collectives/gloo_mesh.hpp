/// \file
/// One process' place among the processes of a mesh, for all channels over it. Invariants: the
/// mesh ends once, for all channels; who ends it says so to the others before it leaves; the
/// connections are closed when the last operation has left; no wait is longer than its deadline, to
/// which time in which the process was stopped is added.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/collectives/gloo_pairs.hpp"
#include "lockstep/collectives/gloo_store.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/exchange_progress.hpp"
#include "lockstep/core/threads.hpp"

namespace lockstep {

namespace detail {

/// Why a process ended its mesh, as it tells the others.
struct GlooEnd {
  enum class Why : std::uint32_t { none, aborted, lost, timed_out, misused, cut, damaged };
  Why why = Why::none;
  std::uint32_t rank = 0;  ///< whom it lost, or waited for
  std::uint32_t by = 0;    ///< who noticed
};

/// The wait of one channel.
struct GlooWait {
  std::size_t channel = 0;
  std::chrono::nanoseconds timeout{};
  gloo::transport::UnboundBuffer* buffer = nullptr;  ///< what is waited for
  std::size_t peer = 0;                              ///< and from whom, or to whom
  std::chrono::steady_clock::time_point deadline{};
  bool is_late = false, is_lost = false;  ///< why the watch woke it
  std::exception_ptr refusal{};           ///< why Gloo took no message
  std::size_t refused = 0;                ///< to or from whom
};

class GlooChannel;

}  // namespace detail

/// The authenticated connections of this process to all others, and their end. Its groups
/// (GlooGroup) share them: each has a channel, a range of Gloo's tags.
/// \code
///   auto mesh = lockstep::form_gloo_mesh({.rank = 1, .size = 4, .run = id, .key = secret}, store);
///   lockstep::GlooGroup gradients(mesh, {.channel = 0}), layers(mesh, {.channel = 1});
/// \endcode
class GlooMesh {
 public:
  using Options = GlooMeshOptions;
  using Why = detail::GlooEnd::Why;

  /// Returns when all connections are made and proved. \throws GlooMeshError if that fails within
  /// `options.limit` (the others may have succeeded: see form_gloo_mesh), UsageError, and what the
  /// store throws.
  GlooMesh(const Options& options, GlooStore& store)
      : rank_(options.rank), size_(options.size), pairs_(options, store) {
    if (size_ == 1) return;
    std::exception_ptr refusal;
    detail::GlooBatch hears{{},
                            [&](std::size_t, std::exception_ptr why) { refusal = std::move(why); }};
    heard_.resize(size_);
    lost_.resize(size_);
    news_in_.resize(size_);
    news_out_.resize(size_);
    try {
      pairs_.for_each_peer([&](std::size_t r) {
        news_out_[r] = pairs_.buffer(&end_, sizeof end_);
        news_in_[r] = pairs_.buffer(&heard_[r], sizeof heard_[r]);
        hears.posts.push_back(
            {detail::GlooPost::Way::receive, r, news_in_[r].get(), news, 0, sizeof heard_[r]});
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
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;
  ~GlooMesh() {
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

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return size_; }

  /// Of all channels. It waits for the one it waits for since longest.
  ExchangeProgress progress() {
    const std::scoped_lock lock(mutex_);
    const detail::GlooWait* oldest = nullptr;
    for (const auto* wait : waits_)
      if (wait->buffer && (!oldest || wait->deadline < oldest->deadline)) oldest = wait;
    return {done_.load(std::memory_order_relaxed),
            oldest ? std::optional(oldest->peer) : std::nullopt};
  }

  /// Ends all operations, also those of the others: they are told. From any thread, any number of
  /// times.
  void abort() { end(Why::aborted, rank_); }

 private:
  friend class detail::GlooChannel;
  using Clock = std::chrono::steady_clock;
  static constexpr std::uint64_t news = detail::gloo_slot(detail::gloo_mesh_channel, 3);

  void add(detail::GlooWait& wait) {
    const std::scoped_lock lock(mutex_);
    if (wait.channel >= detail::gloo_mesh_channel || used_[wait.channel])
      throw UsageError({"gloo group: channel ", wait.channel,
                        " is taken; give each group of a mesh another one below ",
                        detail::gloo_mesh_channel});
    used_[wait.channel] = true;
    waits_.push_back(&wait);
    changed_.notify_all();
  }
  void remove(detail::GlooWait& wait) {
    const std::scoped_lock lock(mutex_);
    waits_.erase(std::find(waits_.begin(), waits_.end(), &wait));
  }

  /// \return false if the mesh has ended.
  bool enter() {
    const std::scoped_lock lock(mutex_);
    if (end_.why != Why::none) return false;
    ++active_;
    return true;
  }
  /// A part of an operation is done. All members call it equally often in an operation.
  void advance() { done_.fetch_add(1, std::memory_order_relaxed); }
  void leave() {
    const std::scoped_lock lock(mutex_);
    --active_;
    close_if_over();
  }
  /// In a thread of its own: to close waits for Gloo's, and who ends a mesh may be one that others
  /// rely on, such as the control thread of the rendezvous.
  void close_if_over() {
    if (end_.why == Why::none || active_ > 0 || closes_ || stops_ || size_ == 1) return;
    closes_ = true;
    try {
      closer_ = std::thread([this] { close(); });
    } catch (const std::system_error&) {  // no thread: the destructor closes
      closes_ = false;
      stops_ = true;
    }
  }
  void close() {
    pairs_.loop().drain(last_words_);
    // News behind a message that is on its way would be lost with the connection.
    const auto deadline = Clock::now() + close_limit;
    pairs_.for_each_peer([&](std::size_t r) {
      within(deadline, r, *news_out_[r], [&] { return news_out_[r]->waitSend(nullptr, no_limit); });
    });
    pairs_.close();
  }

  // Gloo's own deadline closes all connections before anybody is told why, and waits for Gloo's
  // thread, which may wait for a connection.
  static constexpr std::chrono::milliseconds no_limit = std::chrono::hours(8760);

  /// f() waits for the buffer, which belongs to r. \return whether it came in time.
  template <class F>
  bool within(Clock::time_point deadline, std::size_t r, gloo::transport::UnboundBuffer& buffer,
              const F& f) {
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

  /// \return false if the mesh has ended.
  bool begin(detail::GlooWait& wait, std::size_t peer, gloo::transport::UnboundBuffer& buffer) {
    const std::scoped_lock lock(mutex_);
    if (end_.why != Why::none || wait.refusal) return false;
    wait.buffer = &buffer;
    wait.peer = peer;
    wait.is_late = wait.is_lost = false;
    wait.deadline = Clock::now() + wait.timeout;
    return true;
  }
  void finish(detail::GlooWait& wait) {
    const std::scoped_lock lock(mutex_);
    wait.buffer = nullptr;
  }

  /// Gloo takes no message to r, or from it. Called in Gloo's thread.
  void refuse(detail::GlooWait& wait, std::size_t r, const std::exception_ptr& why) {
    const std::scoped_lock lock(mutex_);
    if (wait.refusal) return;
    wait.refusal = why;
    wait.refused = r;
    wake(wait);
  }

  std::exception_ptr refusal(const detail::GlooWait& wait) {
    const std::scoped_lock lock(mutex_);
    return wait.refusal;
  }

  static void wake(const detail::GlooWait& wait) {
    if (!wait.buffer) return;
    wait.buffer->abortWaitRecv();
    wait.buffer->abortWaitSend();
  }

  void end(Why why, std::size_t rank) {
    end({why, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(rank_)});
  }
  void end(detail::GlooEnd why) {
    const std::scoped_lock lock(mutex_);
    if (end_.why != Why::none) return;
    end_ = why;
    if (size_ == 1) return;
    for (const auto* wait : waits_) wake(*wait);
    pairs_.loop().post(last_words_);
    close_if_over();
  }

  detail::GlooEnd ended() {
    const std::scoped_lock lock(mutex_);
    return end_;
  }

  /// What a peer said before its connection ended; to be asked only then.
  detail::GlooEnd last_words(std::size_t rank) {
    const std::scoped_lock lock(words_);
    if (!news_in_[rank]) return heard_[rank];
    // Gloo tells one buffer after the other that the connection is gone.
    within(Clock::now() + tell_limit, rank, *news_in_[rank],
           [&] { return news_in_[rank]->waitRecv(nullptr, no_limit); });
    news_in_[rank].reset();
    return heard_[rank];
  }

  /// When a connection ends, Gloo tells those who wait to be sent for, or for a message that has
  /// not begun, but not those whose message was on its way: `Pair::signalException` leaves these
  /// out. The wait for news is never on its way, so it knows.
  void find_lost() {
    const std::unique_lock lock(words_, std::try_to_lock);
    if (!lock) return;  // somebody waits for last words, and for this thread to end the wait
    pairs_.for_each_peer([&](std::size_t r) {
      if (!news_in_[r] || lost_[r]) return;
      try {
        news_in_[r]->abortWaitRecv();  // so that this is no wait
        news_in_[r]->waitRecv(nullptr, std::chrono::milliseconds(0));
      } catch (const std::exception&) {
        lost_[r] = true;
      }
    });
  }

  /// Wakes the waits whose deadline has passed, and those for a peer that was already lost when the
  /// watch looked before: what came from it has been told by then.
  void watch() {
    std::vector<bool> lost(size_);
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
              wait->deadline,
              std::min<Clock::time_point>(wait->deadline + gap, now + wait->timeout));
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

  static constexpr std::chrono::milliseconds look_every{100}, tell_limit{100}, stop_limit{1000};
  /// Who is not frozen reads within it, also on a busy machine; who is gets the end only.
  static constexpr std::chrono::milliseconds close_limit{500};

  std::size_t rank_, size_;
  detail::GlooEnd end_{};
  std::vector<detail::GlooEnd> heard_;
  std::vector<bool> lost_;  // by the watch alone
  detail::GlooPairs pairs_;
  std::vector<detail::GlooPairs::Buffer> news_in_, news_out_;
  detail::GlooBatch last_words_;
  std::mutex mutex_, words_;
  std::condition_variable changed_;
  std::vector<detail::GlooWait*> waits_;
  std::array<bool, detail::gloo_mesh_channel> used_{};
  std::size_t active_ = 0;
  std::atomic<std::uint64_t> done_{0};
  bool closes_ = false, stops_ = false, stops_watch_ = false;
  std::thread closer_, watch_;  // last: they use all of the above
};

/// Forms a mesh with all others, and a new one if one of them could not. All processes call it with
/// the same `attempts`; each tells the others through the store what became of its part, so all
/// take the same mesh. `options.number` is that of the first attempt.
/// \throws GlooMeshError after the last attempt, UsageError, and what the store throws.
inline std::shared_ptr<GlooMesh> form_gloo_mesh(GlooMesh::Options options, GlooStore& store,
                                                std::size_t attempts = 12) {
  const std::string formed = "formed";
  const std::uint64_t last = options.number + attempts - 1;
  for (;; ++options.number) {
    const auto key = [&](std::size_t rank) {
      return text({options.name, "/", options.number, "/formed/", rank});
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
