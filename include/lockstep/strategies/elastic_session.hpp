/// \file
/// The session of a strategy with ls::Elastic. Invariant: whatever ends an exchange between
/// processes is a loss, after which the session forms the next generation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/cluster/description/elastic_options.hpp"
#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/description/settings.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/process/stop_of_process.hpp"
#include "lockstep/core/process/threads.hpp"
#include "lockstep/strategies/job/elastic_job.hpp"
#include "lockstep/strategies/membership.hpp"
#include "lockstep/strategies/worker_session.hpp"

namespace lockstep::detail {

/// See the concept ElasticSession. Without min_workers the workers stay the same.
template <class Strategy>
class ElasticWorkerSession : public WorkerSession<Strategy> {
  using Fixed = WorkerSession<Strategy>;
  using D = typename Strategy::device;
  using Fixed::options_of, Fixed::start, Fixed::state_;
  static_assert(
      Strategy::can_be_elastic,
      "lockstep: ls::Elastic needs replicas on CPUs that exchange over ls::Tcp; leave it out, and "
      "let the launcher start the job again from its checkpoint");

 public:
  static constexpr bool can_reform = true;

  explicit ElasticWorkerSession(Strategy options) {
    options.elastic = elastic_settings(options.elastic, options.environment);
    if (!options.elastic) {
      start(options, options_of(options));
      return;
    }
    elastic_.reset(new Members(options));
    const auto begin = [&] {
      for (;;) try {
          return form();
        } catch (const PeerLost& e) {
          reform(e.what(), stop_of_process.token());
        }
    };
    or_evicted(begin, [] { return stop_of_process.signal(); });
  }
  ElasticWorkerSession(ElasticWorkerSession&&) noexcept = default;
  ElasticWorkerSession& operator=(ElasticWorkerSession&&) = delete;
  ~ElasticWorkerSession() { state_.reset(); }  // it uses the members

  void each(FunctionRef<void(const ReplicaContext<D>&)> body) {
    within([&] { Fixed::each(body); });
  }
  std::size_t local_replicas() const { return held().local_replicas(); }
  std::size_t replicas() const { return held().replicas(); }
  std::size_t first_replica() const { return held().first_replica(); }
  std::size_t virtual_shards() const { return held().virtual_shards(); }
  std::size_t workers() const { return held().workers(); }
  std::size_t rank() const { return held().rank(); }
  bool is_chief() const { return rank() == 0; }
  ReplicaRoles roles() const
    requires requires { Strategy::has_servers; }
  {
    ReplicaRoles roles = held().roles();
    roles.may_change = is_elastic();
    return roles;
  }

  void agree(std::string_view part, const Signature& fields) {
    static_cast<void>(held());
    if (!state_->job.is_alone()) within([&] { Fixed::agree(part, fields); });
  }
  void note(std::uint64_t step, Phase phase) {
    if (state_) Fixed::note(step, phase);
  }
  void end_epoch(int epoch) {
    within([&] { Fixed::end_epoch(epoch); });
  }
  void fail(const std::string& what) {
    if (!state_) return;
    Fixed::fail(what);
    if (!elastic_ || elastic_->has_ended || state_->job.peers_know()) return;
    // The others go on without this process, whatever its program does next.
    elastic_->job.member().leave();
    elastic_->error = std::make_exception_ptr(
        PeerLost(rank(), elastic_->job.address(rank()),
                 "has left the elastic job because of its error: " + what, std::nullopt));
    elastic_->has_ended = true;
  }

  bool is_elastic() const { return elastic_ != nullptr; }
  std::size_t min_workers() const { return elastic_ ? elastic_->options.elastic.min_workers : 1; }
  bool is_one_machine() const { return !elastic_ || elastic_->job.now().is_one_machine; }
  bool has_newcomers() const { return elastic_->job.member().has_newcomers(); }
  bool must_reform() const { return elastic_->job.member().must_reform(); }
  std::uint64_t generation() const { return elastic_ ? elastic_->job.now().number : 0; }
  bool has_new_members() const { return elastic_->job.has_new_members(); }
  bool is_new_member() const { return elastic_->job.is_new_member(); }
  void reject_newcomers() { elastic_->job.member().reject_newcomers(); }
  std::string change() const { return elastic_->job.describe(); }
  /// The loss of the owners of weights that the generations since the last recovery have lost.
  PeerLost lost_owners() const { return elastic_->job.lost_owners(); }
  void has_recovered() { elastic_->job.forget_losses(); }
  void reform(const std::string& why, const std::stop_token& stop) {
    const bool has_trained = state_ && state_->job.has_trained();
    if (state_) state_->job.leave_at_once();
    state_.reset();
    elastic_->job.next(why, has_trained, stop);
  }
  void form() {
    const Generation& now = elastic_->job.now();
    within([&] { start(elastic_->options, joined(now.cluster, now.number == 0)); });
  }
  void form_alone(std::exception_ptr error) {
    elastic_->error = std::move(error);
    elastic_->job.member().leave();  // whatever the error is, the others go on without it
    state_.reset();
    const ResolvedCluster alone = elastic_->job.alone();
    start(elastic_->options, joined(alone, false));
  }
  void end() { elastic_->has_ended = true; }

 private:
  struct Members {
    explicit Members(const Strategy& given)
        : options(given),
          job({given.elastic, Strategy::name, given.virtual_shards, given.requested_replicas(),
               options_of(given).copies, given.stragglers, given.cluster, given.environment}) {}
    const Strategy options;
    ElasticJob job;
    std::exception_ptr error{};  // the end of the job for this process
    bool has_ended = false;
  };

  WorkerOptions joined(const ResolvedCluster& generation, bool logs_members) {
    WorkerOptions result = options_of(elastic_->options);
    result.generation = &generation;
    result.on_reform = [member = &elastic_->job.member()](std::function<void()> callback) {
      member->on_reform(std::move(callback));
    };
    result.secret = &elastic_->job.secret();
    result.logs_members = logs_members;
    return result;
  }
  /// Runs f(). In an elastic job, whatever ends an exchange is a loss.
  template <class F>
  void within(const F& f) {
    if (elastic_ && elastic_->has_ended) [[unlikely]]
      std::rethrow_exception(elastic_->error);
    try {
      f();
    } catch (const PeerLost& e) {
      if (elastic_) elastic_->job.blame(e);
      throw;
    } catch (const CollectiveError& e) {
      if (!elastic_) throw;
      throw_loss(e);
    }
  }
  [[noreturn, gnu::cold]] void throw_loss(const CollectiveError& e) {
    const std::size_t peer = e.peer().value_or(0);
    throw PeerLost(peer, elastic_->job.address(peer), e.what(), std::nullopt);
  }
  /// \throws what ended the job of this process, if it could not even go on alone.
  const Fixed& held() const {
    if (!state_) [[unlikely]]
      std::rethrow_exception(elastic_->error);
    return *this;
  }

  std::unique_ptr<Members, OwningProcess> elastic_;  // null without min_workers
};

template <class Strategy>
struct SessionOf<Elastic, Strategy> {
  using type = ElasticWorkerSession<Strategy>;
};

}  // namespace lockstep::detail
