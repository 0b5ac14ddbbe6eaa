/// \file
/// One process' connections to all other processes of a mesh, shared by all channels. Invariants:
/// a mesh shuts down once, for all channels; a process that shuts it down notifies its peers before
/// it closes the connections; connections are closed after the last operation has left; no wait
/// exceeds its deadline, which is extended by the time in which the process was suspended.
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

/// The shutdown notice: why a process shut its mesh down, as sent to its peers.
struct GlooShutdown {
  enum class Cause : std::uint32_t { none, aborted, lost, timed_out, mismatch, dead_link, corrupt };
  Cause cause = Cause::none;
  std::uint32_t rank = 0;  ///< the peer that was lost or waited for
  std::uint32_t by = 0;    ///< the rank that detected it
};

/// The current wait of one channel, as the watch thread sees it; guarded by the mesh's mutex.
struct GlooWait {
  std::size_t channel = 0;
  std::chrono::nanoseconds timeout{};
  gloo::transport::UnboundBuffer* buffer = nullptr;  ///< waited for; null: the channel is idle
  std::size_t peer = 0;                              ///< sender or receiver of the buffer
  std::chrono::steady_clock::time_point deadline{};
  bool is_late = false, is_lost = false;  ///< why the watch thread ended the wait
  std::exception_ptr rejection{};         ///< Gloo's error for a message that it did not accept
  std::size_t rejected_peer = 0;          ///< sender or receiver of that message
};

class GlooChannel;

}  // namespace detail

/// The authenticated connections of this process to all others, and their shutdown. Several
/// GlooGroups share them; each has a channel, that is, a range of Gloo's tags.
///
/// Threads of a mesh in one process:
///
///     caller    operations of a GlooGroup: waits in Gloo, registered as a GlooWait
///     Gloo's    all sends and receives (GlooLoop); wakes the callers
///     watch_    every 100 ms and at each deadline: late waits, lost peers, dead links
///     closer_   started by the shutdown: closes the connections, then ends
///     any       abort(); never waits for the network
///
/// States of a mesh, and how a failure spreads. A peer sees the end of a connection either as an
/// error of its wait or by its watch thread, and then reads the notice that came over it before:
///
///     connected ── abort() or an error ──> shutting down ── last leave() ──> closing ──> closed
///         |        shutdown_ is set,       enter() fails,   closer_ starts   until the     ^
///         |        waits are woken,        operations                        notices are   |
///         |        notices are posted      leave                             delivered or  |
///         |                                                                  500 ms passed |
///         └────────────────────────────────── destructor ──────────────────────────────────┘
///
///     failing process: shut_down(cause) ── notice ──> peer: notices_[r]
///                      close()          ── FIN ─────> peer: wait ends, read_notice(r),
///                                                           shut_down(the same cause)
///
/// \code
///   auto mesh = lockstep::form_gloo_mesh({.rank = 1, .size = 4, .run = id, .key = secret}, store);
///   lockstep::GlooGroup gradients(mesh, {.channel = 0}), layers(mesh, {.channel = 1});
/// \endcode
class GlooMesh {
 public:
  using Options = GlooMeshOptions;
  using Cause = detail::GlooShutdown::Cause;

  /// Returns when all connections are established and authenticated. \throws GlooMeshError if one
  /// is not within `options.limit` (peers may have succeeded: see form_gloo_mesh), UsageError, and
  /// what the store throws.
  LOCKSTEP_COLD_DECL GlooMesh(const Options& options, GlooStore& store);
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;
  LOCKSTEP_COLD_DECL ~GlooMesh();

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return size_; }

  /// The progress of all channels; `waits_for` is the peer of the longest current wait.
  LOCKSTEP_COLD_DECL ExchangeProgress progress();

  /// Shuts the mesh down in all processes. Callable from any thread, any number of times.
  void abort() { shut_down(Cause::aborted, rank_); }

 private:
  friend class detail::GlooChannel;
  using Clock = std::chrono::steady_clock;
  static constexpr std::uint64_t notice_slot = detail::gloo_slot(detail::gloo_mesh_channel, 3),
                                 probe_slot = detail::gloo_slot(detail::gloo_mesh_channel, 4);

  /// Registers a channel. \throws UsageError if its number is in use.
  LOCKSTEP_COLD_DECL void add(detail::GlooWait& wait);
  LOCKSTEP_COLD_DECL void remove(detail::GlooWait& wait);

  /// Begins an operation. \return false if the mesh has shut down.
  LOCKSTEP_DECL bool enter();
  /// Counts a finished part of an operation. All members call it equally often in an operation.
  void count_progress() { done_.fetch_add(1, std::memory_order_relaxed); }
  /// Ends an operation; the last one to leave after a shutdown starts the closing.
  LOCKSTEP_DECL void leave();
  /// Starts closer_ if the mesh has shut down and no operation is active; call it with mutex_ held.
  /// A separate thread closes, because closing waits for Gloo's thread, and the thread that shuts
  /// the mesh down must not block: it may be the control thread of the rendezvous.
  LOCKSTEP_COLD_DECL void close_if_idle();
  /// Delivers the notices, or gives up after close_timeout, and closes all connections.
  LOCKSTEP_COLD_DECL void close();

  // Waits pass this to Gloo instead of a deadline: Gloo's own timeout closes all connections before
  // a notice is sent, and waits for Gloo's thread, which may itself wait for a connection.
  static constexpr std::chrono::milliseconds no_timeout = std::chrono::hours(8760);

  /// Runs f(), which waits for a buffer of peer r. \return whether it completed before `deadline`.
  LOCKSTEP_COLD_DECL bool wait_until(Clock::time_point deadline, std::size_t r,
                                     gloo::transport::UnboundBuffer& buffer, FunctionRef<bool()> f);

  /// Registers what the wait is for and sets its deadline. \return false if the mesh has shut down
  /// or Gloo rejected a message of this channel.
  LOCKSTEP_DECL bool begin_wait(detail::GlooWait& wait, std::size_t peer,
                                gloo::transport::UnboundBuffer& buffer);
  LOCKSTEP_DECL void finish_wait(detail::GlooWait& wait);

  /// Notes that Gloo rejected a message to or from r, and ends the wait. Runs in Gloo's thread.
  LOCKSTEP_COLD_DECL void record_rejection(detail::GlooWait& wait, std::size_t r,
                                           const std::exception_ptr& why);
  LOCKSTEP_COLD_DECL std::exception_ptr rejection(const detail::GlooWait& wait);
  /// Makes the wait return; call it with mutex_ held.
  LOCKSTEP_COLD_DECL static void wake(const detail::GlooWait& wait);
  /// Sets shutdown_ (the first cause wins), wakes all waits and posts the notices.
  LOCKSTEP_COLD_DECL void shut_down(Cause cause, std::size_t rank);
  LOCKSTEP_COLD_DECL void shut_down(detail::GlooShutdown why);
  /// A copy of shutdown_; its cause is `none` while the mesh is connected.
  LOCKSTEP_COLD_DECL detail::GlooShutdown shutdown();

  /// The notice that a peer sent before its connection ended; call it only after that.
  LOCKSTEP_COLD_DECL detail::GlooShutdown read_notice(std::size_t rank);

  /// Updates lost_ from the probes. When a connection ends, Gloo wakes the waits for sends and for
  /// messages that have not begun to arrive, but not for a message in transit:
  /// `Pair::signalException` skips these. A probe is never in transit, so it always gets the error.
  LOCKSTEP_COLD_DECL void poll_lost();

  /// The watch thread. Ends waits that are past their deadline, and waits for a peer that was lost
  /// at the previous poll already: by then Gloo has delivered everything that the peer had sent.
  LOCKSTEP_COLD_DECL void watch();

  static constexpr std::chrono::milliseconds poll_interval{100}, notice_timeout{100},
      suspend_threshold{1000};
  /// A live peer reads the notice within this time even under load; a frozen one only sees the
  /// connection close.
  static constexpr std::chrono::milliseconds close_timeout{500};

  std::size_t rank_, size_;
  detail::GlooShutdown shutdown_{};            // also the buffer that the notices are sent from
  std::vector<detail::GlooShutdown> notices_;  // received, by rank
  std::vector<char> lost_;                     // by rank; used by the watch thread only
  detail::GlooPairs pairs_;
  std::vector<detail::GlooPairs::Buffer> notices_in_, notices_out_;
  // Receives that no peer ever answers. The notice buffers cannot serve as probes: a buffer that
  // has received its message gets no error when the connection ends later.
  std::vector<detail::GlooPairs::Buffer> probes_;
  std::vector<char> probe_bytes_;
  detail::GlooBatch notice_batch_;
  std::mutex mutex_, notice_mutex_;
  std::condition_variable changed_;
  std::vector<detail::GlooWait*> waits_;
  std::array<bool, detail::gloo_mesh_channel> channels_used_{};
  std::size_t active_ = 0;              // operations between enter() and leave()
  std::atomic<std::uint64_t> done_{0};  // finished parts of operations
  bool closing_ = false, destroying_ = false, watch_stops_ = false;
  std::thread closer_, watch_;  // last members: they use all others
};

/// Forms a mesh with all other processes, and retries with a new one if any of them failed. All
/// processes call it with the same `attempts`. Each publishes the outcome of its part in the store,
/// so that all return the same mesh. `options.number` is the number of the first attempt.
/// \throws GlooMeshError after the last attempt, UsageError, and what the store throws.
LOCKSTEP_COLD_DECL std::shared_ptr<GlooMesh> form_gloo_mesh(GlooMesh::Options options,
                                                            GlooStore& store,
                                                            std::size_t attempts = 12);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/gloo_mesh.ipp"
#endif
