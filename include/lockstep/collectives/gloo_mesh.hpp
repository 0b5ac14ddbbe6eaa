/// \file
/// One process' place among the processes of a mesh, for all channels over it. Invariants: the
/// mesh ends once, for all channels; who ends it says so to the others before it leaves; the
/// connections are closed when the last operation has left; no wait is longer than its deadline, to
/// which time in which the process was stopped is added.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/collectives/gloo_pairs.hpp"
#include "lockstep/collectives/gloo_store.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/exchange_progress.hpp"
#include "lockstep/core/function_ref.hpp"

namespace lockstep {

namespace detail {

/// Cause a process ended its mesh, as it tells the others.
struct GlooShutdown {
  enum class Cause : std::uint32_t { none, aborted, lost, timed_out, mismatch, dead_link, corrupt };
  Cause cause = Cause::none;
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
  using Cause = detail::GlooShutdown::Cause;

  /// Returns when all connections are made and proved. \throws GlooMeshError if that fails within
  /// `options.limit` (the others may have succeeded: see form_gloo_mesh), UsageError, and what the
  /// store throws.
  LOCKSTEP_COLD_DECL GlooMesh(const Options& options, GlooStore& store);
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;
  LOCKSTEP_COLD_DECL ~GlooMesh();

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return size_; }

  /// Of all channels. It waits for the one it waits for since longest.
  LOCKSTEP_COLD_DECL ExchangeProgress progress();

  /// Ends all operations, also those of the others: they are told. From any thread, any number of
  /// times.
  void abort() { shut_down(Cause::aborted, rank_); }

 private:
  friend class detail::GlooChannel;
  using Clock = std::chrono::steady_clock;
  static constexpr std::uint64_t notice_slot = detail::gloo_slot(detail::gloo_mesh_channel, 3),
                                 probe_slot = detail::gloo_slot(detail::gloo_mesh_channel, 4);

  LOCKSTEP_COLD_DECL void add(detail::GlooWait& wait);
  LOCKSTEP_COLD_DECL void remove(detail::GlooWait& wait);

  /// \return false if the mesh has ended.
  LOCKSTEP_DECL bool enter();
  /// A part of an operation is done. All members call it equally often in an operation.
  void count_progress() { done_.fetch_add(1, std::memory_order_relaxed); }
  LOCKSTEP_DECL void leave();
  /// In a thread of its own: to close waits for Gloo's, and who ends a mesh may be one that others
  /// rely on, such as the control thread of the rendezvous.
  LOCKSTEP_COLD_DECL void close_if_idle();
  LOCKSTEP_COLD_DECL void close();

  // Gloo's own deadline closes all connections before anybody is told why, and waits for Gloo's
  // thread, which may wait for a connection.
  static constexpr std::chrono::milliseconds no_timeout = std::chrono::hours(8760);

  /// f() waits for the buffer, which belongs to r. \return whether it came in time.
  LOCKSTEP_COLD_DECL bool wait_until(Clock::time_point deadline, std::size_t r,
                                     gloo::transport::UnboundBuffer& buffer, FunctionRef<bool()> f);

  /// \return false if the mesh has ended.
  LOCKSTEP_DECL bool begin_wait(detail::GlooWait& wait, std::size_t peer,
                                gloo::transport::UnboundBuffer& buffer);
  LOCKSTEP_DECL void finish_wait(detail::GlooWait& wait);

  /// Gloo takes no message to r, or from it. Called in Gloo's thread.
  LOCKSTEP_COLD_DECL void record_refusal(detail::GlooWait& wait, std::size_t r,
                                         const std::exception_ptr& why);
  LOCKSTEP_COLD_DECL std::exception_ptr refusal(const detail::GlooWait& wait);
  LOCKSTEP_COLD_DECL static void wake(const detail::GlooWait& wait);
  LOCKSTEP_COLD_DECL void shut_down(Cause cause, std::size_t rank);
  LOCKSTEP_COLD_DECL void shut_down(detail::GlooShutdown why);
  LOCKSTEP_COLD_DECL detail::GlooShutdown shutdown();

  /// What a peer said before its connection ended; to be asked only then.
  LOCKSTEP_COLD_DECL detail::GlooShutdown read_notice(std::size_t rank);

  /// When a connection ends, Gloo tells those who wait to be sent for, or for a message that has
  /// not begun, but not those whose message was on its way: `Pair::signalException` leaves these
  /// out. The wait for news is never on its way, so it knows.
  LOCKSTEP_COLD_DECL void poll_lost();

  /// Wakes the waits whose deadline has passed, and those for a peer that was already lost when the
  /// watch looked before: what came from it has been told by then.
  LOCKSTEP_COLD_DECL void watch();

  static constexpr std::chrono::milliseconds poll_interval{100}, notice_timeout{100},
      suspend_threshold{1000};
  /// Who is not frozen reads within it, also on a busy machine; who is gets the end only.
  static constexpr std::chrono::milliseconds close_timeout{500};

  std::size_t rank_, size_;
  detail::GlooShutdown shutdown_{};
  std::vector<detail::GlooShutdown> notices_;
  std::vector<char> lost_;  // by the watch alone
  detail::GlooPairs pairs_;
  std::vector<detail::GlooPairs::Buffer> notices_in_, notices_out_;
  // Receives that no peer answers: Gloo tells a buffer that has what it waits for nothing of a
  // connection that ends later.
  std::vector<detail::GlooPairs::Buffer> probes_;
  std::vector<char> probe_bytes_;
  detail::GlooBatch notice_batch_;
  std::mutex mutex_, notice_mutex_;
  std::condition_variable changed_;
  std::vector<detail::GlooWait*> waits_;
  std::array<bool, detail::gloo_mesh_channel> channels_used_{};
  std::size_t active_ = 0;
  std::atomic<std::uint64_t> done_{0};
  bool closing_ = false, destroying_ = false, watch_stops_ = false;
  std::thread closer_, watch_;  // last: they use all of the above
};

/// Forms a mesh with all others, and a new one if one of them could not. All processes call it with
/// the same `attempts`; each tells the others through the store what became of its part, so all
/// take the same mesh. `options.number` is that of the first attempt.
/// \throws GlooMeshError after the last attempt, UsageError, and what the store throws.
LOCKSTEP_COLD_DECL std::shared_ptr<GlooMesh> form_gloo_mesh(GlooMesh::Options options,
                                                            GlooStore& store,
                                                            std::size_t attempts = 12);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/gloo_mesh.ipp"
#endif
