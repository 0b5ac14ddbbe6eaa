/// \file
/// A process' membership in its job. Invariants: one control thread per process does all network
/// work of the rendezvous; every waiting call has a deadline; when a peer is lost, every survivor
/// names the same one; the destructor returns in bounded time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/description/timeouts.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/rendezvous_options.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/exchange_progress.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/phase.hpp"

namespace lockstep {

namespace detail {
struct RendezvousAccess;
struct RendezvousMember;
}  // namespace detail

/// A process' membership in its job. The constructor joins: the chief listens, the others connect,
/// in any order, and each returns once all ranks are present. Any thread may call the functions,
/// except the control thread, which runs the callbacks.
/// \code
///   auto cluster = lockstep::resolve_cluster(lockstep::process_environment());
///   auto secret = lockstep::read_secret(lockstep::process_environment(), cluster);
///   lockstep::Rendezvous job({.cluster = cluster, .secret = secret});
///   if (job.rank() == 0) job.set("greeting", "hello");
///   std::string greeting = job.get("greeting", std::chrono::seconds(5));
///   job.barrier("ready", std::chrono::seconds(5));
///   job.leave();
/// \endcode
/// Failure detection:
///
///     no heartbeat for timeouts().silence (sent every 0.25 s)  --+
///     connection closed or reset                               --+
///     blame(): failed exchanges, collected for half .verdict   --+--> one verdict of the chief,
///     fail(): a process reports its own failure                --+    sent to all ranks
///     no progress for longer than the stall limits             --+
class Rendezvous {
 public:
  using milliseconds = std::chrono::milliseconds;

  /// Joins the job. \throws ClusterError if this process is refused or the ranks differ; PeerLost,
  /// which names the missing ranks, if some have not joined at the deadline.
  LOCKSTEP_COLD_DECL explicit Rendezvous(RendezvousOptions options);
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  /// Leaves the job; waits for the others for at most a second.
  LOCKSTEP_COLD_DECL ~Rendezvous();

  /// This process' rank, from 0.
  LOCKSTEP_COLD_DECL std::size_t rank() const;
  /// The number of ranks.
  LOCKSTEP_COLD_DECL std::size_t size() const;
  /// For messages: the address in the cluster description if there is one, else as seen by the
  /// chief.
  LOCKSTEP_COLD_DECL const std::string& address_of(std::size_t rank) const;
  /// An address of this machine that the other ranks can reach. Data connections bind to it.
  LOCKSTEP_COLD_DECL const std::string& local_address() const;
  /// Random; equal on all ranks, different in each run of a job.
  LOCKSTEP_COLD_DECL const std::array<std::uint8_t, 16>& run_id() const;
  /// Random; known only to the ranks of this run, if the job has a secret. Peers authenticate data
  /// connections with it.
  LOCKSTEP_COLD_DECL const std::array<std::uint8_t, 32>& key() const;

  // --- the key-value store: each call throws PeerLost as soon as a peer is lost, CollectiveTimeout
  // at its deadline, UsageError for a name or value that is too long ---

  /// Stores `value` under `name`, at most 63 KiB.
  LOCKSTEP_COLD_DECL void set(std::string_view name, std::string_view value,
                              milliseconds deadline = milliseconds(10'000));
  /// Waits until some rank has set `name` and returns the value.
  LOCKSTEP_COLD_DECL std::string get(std::string_view name, milliseconds deadline);
  /// Adds `n` to a counter that starts at 0 and returns its new value.
  LOCKSTEP_COLD_DECL std::uint64_t add(std::string_view name, std::uint64_t n,
                                       milliseconds deadline = milliseconds(10'000));
  /// Waits until all ranks have called it with this name. The name can be reused afterwards.
  LOCKSTEP_COLD_DECL void barrier(std::string_view name, milliseconds deadline);
  /// Waits until all ranks have called it with equal fields. \throws UsageError on all ranks if the
  /// fields differ; the sentence names two ranks, the field and its two values. Fields may have any
  /// length; the deadline holds for each 32 KiB of them.
  LOCKSTEP_COLD_DECL void agree(std::string_view part, const std::vector<SignatureField>& fields,
                                milliseconds deadline);
  /// The same, and returns the values of all ranks, one after the other in rank order: together at
  /// most 63 KiB. Fields and value fit into one frame of 64 KiB. Nothing stays in the store.
  /// \throws CollectiveTimeout with a missing rank as `peer`; CollectiveAborted once `aborted` is
  /// true and `wake` was called.
  LOCKSTEP_COLD_DECL std::string gather(std::string_view name,
                                        const std::vector<SignatureField>& fields,
                                        std::string_view value, milliseconds deadline,
                                        const std::atomic<bool>* aborted = nullptr);
  /// Makes all calls of `gather` read `aborted`. Any thread may call it, callbacks included.
  LOCKSTEP_COLD_DECL void wake();

  // --- failures ---

  /// Called by the training thread at each change of phase. Costs two atomic stores.
  LOCKSTEP_DECL void note_progress(std::uint64_t step, Phase phase, bool first_step = false);
  /// Sets the callback that runs once, on the control thread, when a peer is lost, or at once if
  /// one is lost already. Replaces the previous callback, which no longer runs when this returns. A
  /// callback must not call this function, and logs with `log`.
  LOCKSTEP_COLD_DECL void on_loss(std::function<void(const PeerLost&)> callback);
  /// Sets the function that reports how far this process is in its exchanges. The control thread
  /// calls it a few times per second, so it must not block. The previous function no longer runs
  /// when this returns.
  LOCKSTEP_COLD_DECL void on_exchange(std::function<ExchangeProgress()> progress);
  /// Passes a line to `RendezvousOptions::log` without waiting for it.
  LOCKSTEP_COLD_DECL void log(LogLevel level, std::string_view line);
  /// The lost peer; nullopt if none is known after `wait`.
  LOCKSTEP_COLD_DECL std::optional<PeerLost> verdict(milliseconds wait = milliseconds(0));
  /// The timeouts of the job, defaults filled in.
  LOCKSTEP_COLD_DECL const ClusterTimeouts& timeouts() const;
  /// How long the chief may take to name the cause of a failure: the configured verdict timeout
  /// plus the longest round trip of the last seconds.
  LOCKSTEP_COLD_DECL milliseconds verdict_timeout() const;
  /// After an exchange with `suspect` failed: asks the chief for the root cause and returns the
  /// error to throw. Waits at most `verdict_timeout`, then blames the suspect.
  LOCKSTEP_COLD_DECL PeerLost blame(std::size_t suspect, const std::string& how);
  /// After the connection between two ranks failed. The chief waits until both are known to be
  /// alive, or one is lost through its silence.
  LOCKSTEP_COLD_DECL PeerLost blame(const LinkFailed& failure);
  /// Reports that this process has failed. The other ranks throw PeerLost with `what`.
  LOCKSTEP_COLD_DECL void fail(const std::string& what);
  /// Ends this process' waits and exchanges as if `rank` were lost, without a report to the others.
  /// Any thread may call it.
  LOCKSTEP_COLD_DECL void end(std::size_t rank, const std::string& how);

  /// Announces that this process has finished its work, then waits until all ranks have, a peer is
  /// lost, or the deadline has passed. A rank that needs this process later gets PeerLost: "left
  /// after step 40".
  LOCKSTEP_COLD_DECL void leave() noexcept;
  /// The same with another deadline than `timeouts().leave`.
  LOCKSTEP_COLD_DECL void leave(milliseconds deadline) noexcept;
  /// The same without waiting, also in the destructor.
  LOCKSTEP_COLD_DECL void leave_at_once() noexcept;

 private:
  friend struct detail::RendezvousAccess;

  std::unique_ptr<detail::RendezvousMember> member_;
  bool waits_ = true;  // for the others, when destroyed
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/rendezvous.ipp"
#endif
