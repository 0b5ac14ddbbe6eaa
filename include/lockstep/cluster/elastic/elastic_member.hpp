/// \file
/// A process' part in an elastic job: which processes form the next generation. Invariants: at most
/// one membership is ever used for a generation; `next` is bounded, and so is `join` unless a job runs,
/// which may admit this process at its next step; a process that does not have the job's secret
/// costs a closed connection and nothing else.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/elastic/generation.hpp"
#include "lockstep/cluster/network/secret.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

struct ElasticAccess;
struct ElasticCore;

/// One per process and job. A separate thread answers the other processes, also while the program
/// computes. The functions may be called from any thread, one at a time.
///
///     join() --> generation 0 --next()--> generation 1 --next()--> ... --leave()--> left
///       '------> generation g, if the job is running already
///
/// \code
///   ElasticMember member(described, secret, {.options = {.min_workers = 2}});
///   for (Generation now = member.join();; now = member.next(why)) {
///     Rendezvous job({.cluster = now.cluster, .secret = secret});
///     if (train(job, why)) break;        // until a worker is lost, or one waits to be admitted
///   }
///   member.leave();
/// \endcode
class ElasticMember {
 public:
  /// Listens at this process' address. \throws UsageError for a description without the addresses
  /// of all workers; ClusterError if the process cannot listen; FileError if the folder for the
  /// votes cannot be used.
  LOCKSTEP_COLD_DECL ElasticMember(const ResolvedCluster& described, const Secret& secret,
                                   ElasticSettings settings);
  ElasticMember(const ElasticMember&) = delete;
  ElasticMember& operator=(const ElasticMember&) = delete;
  /// Leaves unless that has happened.
  LOCKSTEP_COLD_DECL ~ElasticMember();

  /// Waits for generation 0, or, as long as a job runs, until that admits this process, and logs once
  /// a minute why it waits. \throws PeerLost with the missing rank after the rendezvous timeout, or
  /// if `stop` is requested, when it leaves the job, at once, or after 5 s if a stop was already
  /// requested; ClusterError if this process is refused.
  LOCKSTEP_COLD_DECL Generation join(const std::stop_token& stop = {});

  /// Agrees on the next generation with the members of the current one, whose session must be
  /// closed. `why` appears in the log. \throws PeerLost without a quorum, with fewer workers than
  /// the minimum at the rendezvous timeout, if the others went on without this process, or if it is
  /// still waiting 5 s after `stop` is requested, when it leaves the job.
  LOCKSTEP_COLD_DECL Generation next(const std::string& why, const std::stop_token& stop = {});

  /// At rank 0: true if a process waits to be admitted. One atomic load, for each step.
  LOCKSTEP_COLD_DECL bool has_newcomers() const noexcept;
  /// True if a member has ended the current generation, so that this one has to call `next`.
  LOCKSTEP_COLD_DECL bool must_reform() const noexcept;
  /// Sets the function that runs on the member's thread when `must_reform` becomes true, or at once
  /// if it is. The previous function no longer runs when this returns. It must not call members of
  /// this class other than `has_newcomers` and `must_reform`.
  LOCKSTEP_COLD_DECL void on_reform(std::function<void()> callback);
  /// The current generation could not be formed: its newcomers will not be proposed again.
  LOCKSTEP_COLD_DECL void reject_newcomers();
  /// Ends the membership: the others do not wait for this process.
  LOCKSTEP_COLD_DECL void leave();

 private:
  friend struct ElasticAccess;

  std::unique_ptr<ElasticCore> core_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/elastic/elastic_member.ipp"
#endif
