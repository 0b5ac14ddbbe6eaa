/// \file
/// The processes of a job as a group: numbers travel over Gloo, secrets through the rendezvous.
/// Invariant: a secret is on no connection for data.
///
/// \code
///   rank 0     set ---TLS---> chief's store ---TLS---> get     ranks 1, 2, ...
///   rank 0     <------------- Gloo, plain TCP ------------>    ranks 1, 2, ...
/// \endcode
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/collectives/gloo_group.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep::detail {

/// A GlooGroup that shares secrets. \throws what GlooGroup throws; from `share_secret` also
/// PeerLost.
/// \code
///   JobGroup group(mesh, {.channel = 0}, &rendezvous, "secrets of layers");
///   group.share_secret(id, sizeof id);   // rank 0's, on all ranks
/// \endcode
class JobGroup : public GlooGroup {
 public:
  /// `job` must outlive the group; null: this process is alone. `name` begins the secrets' names in
  /// the job's store: another one for each group, the same on all ranks.
  JobGroup(std::shared_ptr<GlooMesh> mesh, const Options& options, Rendezvous* job,
           std::string name)
      : GlooGroup(std::move(mesh), options),
        job_(job),
        name_(std::move(name)),
        patience_(std::chrono::ceil<std::chrono::milliseconds>(options.timeout)) {}
  JobGroup(const JobGroup&) = delete;  // copies would not count secrets together
  JobGroup& operator=(const JobGroup&) = delete;

  /// Replaces p[0..n) by rank 0's. The barrier finds ranks that do not come, or call something
  /// else, as any operation does; after it rank 0 sets at once, so only its loss makes the others
  /// wait, and the rendezvous reports that.
  void share_secret(std::byte* p, std::size_t n) {
    barrier();
    if (size() == 1) return;
    const std::string name = text({name_, " ", shared_++});
    if (rank() == 0) return job_->set(name, {reinterpret_cast<const char*>(p), n});
    const std::string secret = get(name);
    if (secret.size() != n) {
      abort();
      throw UsageError({"share_secret: rank 0 shares ", secret.size(), " bytes, rank ", rank(),
                        " expects ", n, "; all ranks must make the same calls in the same order"});
    }
    if (n > 0) std::memcpy(p, secret.data(), n);
  }

 private:
  std::string get(const std::string& name) {
    try {
      return job_->get(name, patience_);
    } catch (const CollectiveTimeout& e) {
      throw CollectiveTimeout(0, {"share_secret: rank 0 did not share it: ", e.what()});
    }
  }

  Rendezvous* job_;
  std::string name_;
  std::chrono::milliseconds patience_;
  std::uint64_t shared_ = 0;
};

static_assert(SharesSecrets<JobGroup> && !SharesSecrets<GlooGroup>);

}  // namespace lockstep::detail
