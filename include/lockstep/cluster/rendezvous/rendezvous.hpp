/// \file
/// Where the processes of a job meet and stay in touch. Invariants: one control thread a process
/// does all that concerns the network; every call that waits has a deadline; when a peer is lost
/// every survivor names the same one; the destructor ends in bounded time.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/rendezvous_options.hpp"
#include "lockstep/cluster/timeouts.hpp"
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

/// A process' membership in its job. Made by joining: the chief listens, the others connect, in any
/// order; each waits until all are there.
/// \code
///   auto cluster = lockstep::resolve_cluster(lockstep::process_environment());
///   auto secret = lockstep::read_secret(lockstep::process_environment(), cluster);
///   lockstep::Rendezvous job({.cluster = cluster, .secret = secret});
///   if (job.rank() == 0) job.set("greeting", "hello");
///   std::string greeting = job.get("greeting", std::chrono::seconds(5));
///   job.barrier("ready", std::chrono::seconds(5));
///   job.leave();
/// \endcode
/// All calls may come from any thread but the control thread, which runs the callbacks.
class Rendezvous {
 public:
  using milliseconds = std::chrono::milliseconds;

  /// Joins. \throws ClusterError if this process is refused, or the ranks differ; PeerLost, which
  /// names the missing ranks, if not all have come at the deadline.
  LOCKSTEP_COLD_DECL explicit Rendezvous(RendezvousOptions options);
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  /// Leaves; waits for the others for a second at most.
  LOCKSTEP_COLD_DECL ~Rendezvous();

  LOCKSTEP_COLD_DECL std::size_t rank() const;
  LOCKSTEP_COLD_DECL std::size_t size() const;
  /// For messages: as the description of the cluster has it, else as the chief sees it.
  LOCKSTEP_COLD_DECL const std::string& address_of(std::size_t rank) const;
  /// An address of this machine that the others reach: data connections bind to it.
  LOCKSTEP_COLD_DECL const std::string& local_address() const;
  /// Different in each run of a job; equal on all ranks.
  LOCKSTEP_COLD_DECL const std::array<std::uint8_t, 16>& run_id() const;
  /// Known to the ranks of this run only (if they have a secret): for proofs between peers.
  LOCKSTEP_COLD_DECL const std::array<std::uint8_t, 32>& key() const;

  // --- the store: each call throws PeerLost at once when a peer is lost, CollectiveTimeout at its
  // deadline, UsageError for a name or value that is too long ---

  LOCKSTEP_COLD_DECL void set(std::string_view name, std::string_view value,
                              milliseconds deadline = milliseconds(10'000));
  /// The value under `name`, as soon as somebody has set it.
  LOCKSTEP_COLD_DECL std::string get(std::string_view name, milliseconds deadline);
  /// Adds to a counter that begins at 0, and returns its new value.
  LOCKSTEP_COLD_DECL std::uint64_t add(std::string_view name, std::uint64_t n,
                                       milliseconds deadline = milliseconds(10'000));
  /// Returns when all ranks have called it with this name, which may then be used again.
  LOCKSTEP_COLD_DECL void barrier(std::string_view name, milliseconds deadline);
  /// Returns if all ranks call it with the same fields. \throws UsageError on all ranks, with one
  /// sentence that names two ranks, the field and its two values, if they differ. Fields of any
  /// length; each 32 KiB of them have the deadline for themselves.
  LOCKSTEP_COLD_DECL void agree(std::string_view part, const std::vector<SignatureField>& fields,
                                milliseconds deadline);

  // --- failures ---

  /// From the training thread, at each change of phase; costs two stores.
  LOCKSTEP_DECL void note_progress(std::uint64_t step, Phase phase, bool first_step = false);
  /// `callback` is called once, in the control thread, when a peer is lost; at once if one is
  /// already. Replaces the one before; when this returns, that one runs no more.
  /// Must not be called by a callback. A callback that has something to say uses `log`.
  LOCKSTEP_COLD_DECL void on_loss(std::function<void(const PeerLost&)> callback);
  /// `progress` tells how far this process is in its exchanges; it is called in the control thread,
  /// some times a second, and must not wait. When this returns, the one before runs no more.
  LOCKSTEP_COLD_DECL void on_exchange(std::function<ExchangeProgress()> progress);
  /// Gives a line to `RendezvousOptions::log`, and does not wait for it.
  LOCKSTEP_COLD_DECL void log(LogLevel level, std::string_view line);
  /// Who is lost; nothing if nobody is known to be after `wait`.
  LOCKSTEP_COLD_DECL std::optional<PeerLost> verdict(milliseconds wait = milliseconds(0));
  /// All are set.
  LOCKSTEP_COLD_DECL const ClusterTimeouts& timeouts() const;
  /// How long the chief may take to name the cause of a failure, by the round trips of the last
  /// seconds.
  LOCKSTEP_COLD_DECL milliseconds verdict_timeout() const;
  /// After an exchange with `suspect` failed: asks the chief for the root cause, and returns what
  /// this process shall throw. Takes `verdict_timeout` at most; then the suspect is the cause.
  LOCKSTEP_COLD_DECL PeerLost blame(std::size_t suspect, const std::string& how);
  /// After the connection between two ranks failed. The chief waits until both show that they live,
  /// or one is lost for its silence.
  LOCKSTEP_COLD_DECL PeerLost blame(const LinkFailed& failure);
  /// The last words of this process: the others throw PeerLost with them.
  LOCKSTEP_COLD_DECL void fail(const std::string& what);

  /// Says that this process has done its work, and waits until all have said so, a peer is lost,
  /// or the deadline has passed. Who needs it later gets PeerLost: "left after step 40".
  LOCKSTEP_COLD_DECL void leave() noexcept;
  LOCKSTEP_COLD_DECL void leave(milliseconds deadline) noexcept;

 private:
  friend struct detail::RendezvousAccess;

  std::unique_ptr<detail::RendezvousMember> member_;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/rendezvous.ipp"
#endif
