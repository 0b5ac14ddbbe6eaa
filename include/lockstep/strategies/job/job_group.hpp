/// \file
/// The processes of a job as a group: data travels over the job's data plane, secrets through the
/// rendezvous. Invariant: a secret is never sent over a data connection.
///
/// \code
///   rank 0     set ---TLS---> chief's store ---TLS---> get     ranks 1, 2, ...
///   rank 0     <------- TCP, shared memory, MPI ---------->    ranks 1, 2, ...
/// \endcode
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/collectives/algorithms/process_group.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

/// A group of processes that can share secrets. \throws what the data's group throws;
/// `share_secret` also PeerLost.
/// \code
///   JobGroup group(TcpGroup(mesh, {.channel = 0}), timeout, &rendezvous, "secrets of layers");
///   group.share_secret(id, sizeof id);   // rank 0's, on all ranks
/// \endcode
class JobGroup : public ProcessGroup {
 public:
  /// `job` must outlive the group; it is null if this process is alone. `name` prefixes the names
  /// of the secrets in the job's store: unique per group, the same on all ranks. `timeout` is that
  /// of the data's group.
  [[gnu::cold]] JobGroup(ProcessGroup data, std::chrono::nanoseconds timeout, Rendezvous* job,
                         std::string name)
      : ProcessGroup(std::move(data)),
        job_(job),
        name_(std::move(name)),
        timeout_(std::chrono::ceil<std::chrono::milliseconds>(timeout)) {}
  JobGroup(const JobGroup&) = delete;  // copies would not share the counter of secrets
  JobGroup& operator=(const JobGroup&) = delete;

  /// Replaces p[0..n) with rank 0's. Begins with a barrier, which detects ranks that are absent or
  /// call another operation. After it rank 0 sets the secret immediately, so that only its loss can
  /// keep the others waiting, which the rendezvous reports.
  [[gnu::cold]] void share_secret(std::byte* p, std::size_t n) {
    barrier();
    if (size() == 1) return;
    const std::string name = format_text("{} {}", name_, shared_++);
    if (rank() == 0) return job_->set(name, {reinterpret_cast<const char*>(p), n});
    const std::string secret = get(name);
    if (secret.size() != n) {
      abort();
      throw UsageError(
          "share_secret: rank 0 shares {} bytes, rank {} expects {}; all ranks must make the same "
          "calls in the same order",
          secret.size(), rank(), n);
    }
    if (n > 0) std::memcpy(p, secret.data(), n);
  }

 private:
  [[gnu::cold]] std::string get(const std::string& name) {
    try {
      return job_->get(name, timeout_);
    } catch (const CollectiveTimeout& e) {
      throw CollectiveTimeout(0, "share_secret: rank 0 did not share its secret: {}", e.what());
    }
  }

  Rendezvous* job_;
  std::string name_;
  std::chrono::milliseconds timeout_;
  std::uint64_t shared_ = 0;
};

static_assert(SharesSecrets<JobGroup> && !SharesSecrets<ProcessGroup>);

}  // namespace lockstep::detail
