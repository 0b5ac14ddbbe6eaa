#pragma once

#include "lockstep/strategies/gloo_plane.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/cluster/rendezvous/file_limit.hpp"
#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/collectives/gloo_group.hpp"
#include "lockstep/collectives/gloo_mesh.hpp"
#include "lockstep/collectives/gloo_store.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/strategies/shared_job.hpp"

namespace lockstep {

namespace detail {

/// The GlooStore over the rendezvous' key-value store.
class RendezvousStore final : public GlooStore {
 public:
  explicit RendezvousStore(JobSession& session) : session_(&session) {}

  void set(const std::string& key, const std::string& bytes) override {
    session_->rendezvous().set(key, bytes);
  }
  std::optional<std::string> get(const std::string& key, Deadline deadline) override {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    try {
      return session_->rendezvous().get(key, std::max(left, std::chrono::milliseconds(1)));
    } catch (const CollectiveTimeout&) {
      return std::nullopt;
    }
  }
  void on_loss(std::function<void()> lost) override {
    if (!lost) return session_->on_loss({});
    session_->on_loss([lost = std::move(lost)](const PeerLost&) { lost(); });
  }

 private:
  JobSession* session_;
};

}  // namespace detail

JobGroups Gloo::connect(const JobLinks& links) {
  if (links.where.transport != Transport::automatic || links.where.wire == WireSecurity::sealed) {
    links.peers_know = true;  // the settings are the same on all ranks
    throw ClusterError(
        "this program exchanges over ls::Gloo, which is neither shared memory nor encrypted; unset "
        "LOCKSTEP_TRANSPORT and LOCKSTEP_WIRE");
  }
  Rendezvous& job = links.rendezvous();
  GlooMeshOptions options;
  options.rank = links.rank();
  options.size = links.size();
  options.address = job.local_address();
  options.run.assign(job.run_id().begin(), job.run_id().end());
  options.key.assign(job.key().begin(), job.key().end());
  options.limit = job.timeouts().mesh;
  options.silence = job.timeouts().silence;
  options.name = links.key("gloo");
  if (links.where.data_ports)
    options.ports = {links.where.data_ports->first, links.where.data_ports->last};
  detail::check_file_limit(options.size,
                           fmt::format("the data connections to {} workers", options.size - 1));
  detail::RendezvousStore store(links.session);
  std::shared_ptr<GlooMesh> mesh;
  {
    const detail::CoreScope scope(links.cores);
    mesh = form_gloo_mesh(options, store);
  }
  return {ProcessGroup(GlooGroup(mesh, {0, links.timeout, links.order})),
          ProcessGroup(GlooGroup(mesh, {1, links.timeout, links.order})),
          [known = std::weak_ptr(mesh)] {
            const auto its = known.lock();
            return its ? its->progress() : ExchangeProgress{};
          }};
}

}  // namespace lockstep
