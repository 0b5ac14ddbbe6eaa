/// \file
/// A process' membership in an elastic job. Invariant: a process has one
/// open model in an elastic job, since all of its models would have to go on from the same loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/description/elastic_options.hpp"
#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/elastic/elastic_member.hpp"
#include "lockstep/cluster/network/secret.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/strategies/job/failed_generations.hpp"

namespace lockstep::detail {

/// The options of a strategy that concern the membership.
struct ElasticJobOptions {
  Elastic elastic{};
  std::string_view strategy;
  std::size_t virtual_shards = 0;
  std::size_t replicas = 1;  ///< of each worker
  std::size_t copies = 1;    ///< servers that own each range of the weights
  bool stragglers = false;
  const ClusterArguments& cluster;
  const Environment& environment;
};

/// The generations of a job, as this process sees them.
/// \code
///   ElasticJob job(options);        // generation 0, or that of the job that this process joins
///   ...                             // a worker is lost
///   job.next(why);                  // the next generation: job.now().cluster
/// \endcode
class ElasticJob {
 public:
  /// Waits for the other workers. \throws UsageError if the process has an open model in this job;
  /// Evicted if a signal comes; and as ElasticMember does.
  LOCKSTEP_COLD_DECL explicit ElasticJob(const ElasticJobOptions& options);
  ElasticJob(const ElasticJob&) = delete;
  ElasticJob& operator=(const ElasticJob&) = delete;
  LOCKSTEP_COLD_DECL ~ElasticJob();

  const Generation& now() const { return now_; }
  const Secret& secret() const { return secret_; }
  ElasticMember& member() { return *member_; }
  const ElasticMember& member() const { return *member_; }
  /// The address of a member.
  LOCKSTEP_COLD_DECL std::string address(std::size_t rank) const;
  /// Takes note of the rank that a loss names.
  void blame(const PeerLost& loss) { failed_.blame(loss); }
  /// `has_trained`: the current generation has made a step. \throws as ElasticMember::next, and
  /// PeerLost if generations of the same members fail again and again.
  LOCKSTEP_COLD_DECL void next(const std::string& why, bool has_trained,
                               const std::stop_token& stop);
  /// See ElasticSession.
  LOCKSTEP_COLD_DECL bool has_new_members() const;
  LOCKSTEP_COLD_DECL bool is_new_member() const;
  /// The members that owned weights, parameter servers if there are any, and were lost since
  /// `forget_losses`; the rank is that of the first.
  LOCKSTEP_COLD_DECL PeerLost lost_owners() const;
  void forget_losses() { lost_.clear(); }
  /// "generation 3 has 3 workers, 1 of them new", for the log.
  LOCKSTEP_COLD_DECL std::string describe() const;
  /// This process alone, as after the end of the job.
  LOCKSTEP_COLD_DECL ResolvedCluster alone() const;

 private:
  class Registered;
  struct Lost {
    std::size_t rank;
    std::string name;
  };

  LOCKSTEP_COLD_DECL void note_lost(const Generation& before);

  ResolvedCluster described_;
  Secret secret_;
  std::unique_ptr<Registered> registered_;
  std::optional<ElasticMember> member_;
  Generation now_;
  FailedGenerations failed_;
  std::size_t copies_;
  std::vector<Lost> lost_;  // owners
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/strategies/job/elastic_job.ipp"
#endif
