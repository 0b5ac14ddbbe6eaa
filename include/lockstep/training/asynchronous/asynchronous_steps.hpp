/// \file
/// The asynchronous steps of ls::ParameterServer. Invariants: between two phases all processes hold the
/// same weights; in a phase each process has its role only: the first server hands out the steps,
/// servers apply gradients, workers compute them, and all hear of each step in the same order.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/collectives/self_group.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/training/asynchronous/fit_phase.hpp"
#include "lockstep/training/asynchronous/push_client.hpp"
#include "lockstep/training/asynchronous/push_server.hpp"
#include "lockstep/training/asynchronous/touched_rows.hpp"
#include "lockstep/training/step/batches.hpp"
#include "lockstep/training/step/replicas.hpp"

namespace lockstep::detail {

/// \throws UsageError if the strategy's steps are asynchronous.
template <class Session>
[[gnu::cold]] void check_synchronous(const Session& session) {
  if (session.is_asynchronous())
    throw UsageError(
        "fit: a step of the program's own is made by all processes together, but the strategy is "
        "asynchronous; leave out .asynchronous, or the step");
}

/// Steps of fit.
///
///     begin_phase     replicas of workers, servers' threads
///     advance         worker: a step        server: updates        chief: waits for records
///     ...
///     advance         all steps are applied: all-gather of the weights ─> false
template <class Replicas, class Batches, class Data>
class AsynchronousSteps final : public StepsOver<Replicas, Batches>, public FitPhase {
  using Base = StepsOver<Replicas, Batches>;
  using D = typename Replicas::device;
  using T = typename Replicas::T;
  using Replica = typename Replicas::Replica;

 public:
  AsynchronousSteps(Replicas& replicas, Batches& batches, const Data& data,
                    const ClassWeights& class_weights)
      : Base(replicas, batches), data_(data), class_weights_(class_weights) {}

  ~AsynchronousSteps() { all().is_in_phase_ = false; }

  void begin(Pass pass, std::uint64_t skip_examples) override {
    if (asynchronous() == nullptr) return Base::begin(pass, skip_examples);
    pass_ = pass;
    position_ = skip_examples;
    is_at_.reset();
  }
  void run_step(const RunRequests& requests, double rate, bool waits) override {
    if constexpr (Replicas::can_reform)
      if (all().elastic() != nullptr) return all().train_elastic(this->batch_, rate, requests);
    all().train(this->batch_, rate, requests, waits);
  }
  AsynchronousPhase* asynchronous() override {
    return all().session().is_asynchronous() ? this : nullptr;
  }

 private:
  void begin_phase(std::uint64_t steps, const MadeSteps& made) override {
    check_norms();
    made_ = made;
    first_update_ = all().steps();
    first_step_ = first_update_ - made.count();
    applied_ = received_ = 0;
    records_.clear();
    taken_ = 0;
    all().about_to_change();
    all().are_equal_ = false;
    all().is_in_phase_ = all().is_divided_ = true;
    const PhaseShape shape{.state = state_size * sizeof(T),
                           .record = width,
                           .element = sizeof(T),
                           .steps = steps,
                           .staleness = all().session().staleness(),
                           .made = made};
    const ReplicaRoles roles = all().session().roles();
    if (roles.owners.contains(rank()))
      begin_server(shape, roles);
    else
      begin_client(shape, roles);
  }

  bool advance(bool stops, std::optional<double> rate) override {
    bool runs = true;
    try {
      all().session().each([&](const ReplicaContext<D>& r) {
        runs = server_ ? serve(stops, rate) : is_worker_ ? work(r, stops) : follow(stops);
        if (!runs) complete(r);
      });
    } catch (...) {
      leave();
      throw;
    }
    if (runs) return true;
    leave();
    most_counted_ = 0;
    position_ += (made_.count() + received_) * data_.batch_size();
    return false;
  }

  std::optional<std::uint64_t> take_step() override {
    if (taken_ == records_.size()) {
      records_.clear();
      taken_ = 0;
      return std::nullopt;
    }
    const std::span<const double> record(records_.data() + taken_, width);
    taken_ += width;
    all().add_step(record.subspan(1));
    ++all().update_counts_.steps;
    return static_cast<std::uint64_t>(record[0]);
  }
  void end_phase() override { all().is_in_phase_ = false; }
  std::uint64_t most_stale() const override { return most_stale_; }

  using Layout = typename Replicas::Layout;
  static constexpr std::size_t state_size = Replicas::Network::graph.state;
  /// Numbers of a step's record: its own, examples, those that the loss is a mean over, penalties, sums.
  static constexpr std::size_t width = 4 + Replica::sum_count;
  static constexpr auto tables = row_tables<typename Replicas::Network>();

  Replicas& all() { return this->replicas_; }
  static std::span<std::byte> as_bytes(T* values, std::size_t count) {
    return {reinterpret_cast<std::byte*>(values), count * sizeof(T)};
  }
  void note(std::uint64_t step, Phase phase) { all().session().note(step, phase); }
  void keep(const std::vector<double>& records) {
    records_.insert(records_.end(), records.begin(), records.end());
    received_ += records.size() / width;
  }

  std::size_t rank() { return all().session().first_replica(); }
  /// The weights of a server.
  ServedWeights weights_of(std::size_t owner) {
    const auto in_bytes = [](Slice range) {
      return Slice{range.first * sizeof(T), range.count * sizeof(T)};
    };
    const auto& policy = all().first().policy();
    ServedWeights of{in_bytes(policy.ranges()[owner]), {}};
    for (const Slice& range : policy.owned_by(owner)) of.pushed.push_back(in_bytes(range));
    return of;
  }

  // --- a server ---

  void begin_server(const PhaseShape& shape, const ReplicaRoles& roles) {
    PlanEngine<D>& engine = all().first().engine();
    constexpr std::size_t weights = Replicas::Network::graph.weights;
    if constexpr (tables.count > 0) std::fill_n(engine.gradients().data(), weights, T{});
    server_.emplace(shape, all().session().pairs(), rank(), roles.owners, weights_of(rank()),
                    as_bytes(engine.weights().data(), weights),
                    as_bytes(engine.state().data(), state_size));
    server_->start();
  }

  bool serve(bool stops, std::optional<double> rate) {
    note(first_update_ + applied_, Phase::update);
    if (stops) server_->stop();
    const bool runs = server_->serve([&](const PushServer::Push& push) { apply(push, rate); },
                                     std::chrono::milliseconds(100));
    keep(server_->take_records());
    return runs;
  }
  /// Takes the records of updates that all servers have made.
  void take_records() {
    keep(server_->take_records());
    if constexpr (requires(Replica& r) { r.policy().finish_update(); })
      if (received_ == server_->steps_made().size()) all().first().policy().finish_update();
  }
  void apply(const PushServer::Push& push, std::optional<double> rate) {
    Replica& replica = all().first();
    replica.keep_state();
    auto* const gradients = reinterpret_cast<std::byte*>(replica.engine().gradients().data());
    unpack(push.parts, {push.gradients, packed_size(push.parts)}, gradients);
    parts_.clear();
    if constexpr (requires { all().optimizer_.skips_zeros(); })
      if (!push.is_whole && all().optimizer_.skips_zeros())
        for (const Slice& part : push.parts)
          parts_.push_back({part.first / sizeof(T), part.count / sizeof(T)});
    const std::uint64_t step = first_update_ + applied_++;
    replica.update_alone(all().optimizer_, rate ? *rate : all().optimizer_.learning_rate(step),
                         step + 1, push.squares, parts_);
    // The gradients of rows that the next push does not touch are 0.
    if (!push.is_whole)
      for (const Slice& part : push.parts)
        std::fill_n(gradients + part.first, part.count, std::byte{});
    T* const state = replica.engine().state().data();
    const auto* const after = reinterpret_cast<const T*>(push.state);
    const auto* const before = reinterpret_cast<const T*>(push.pulled);
    if (push.is_next)
      std::copy_n(after, state_size, state);
    else
      for (std::size_t i = 0; i < state_size; ++i) state[i] += after[i] - before[i];
  }

  // --- a worker, or a process that makes no steps ---

  void begin_client(const PhaseShape& shape, const ReplicaRoles& roles) {
    is_worker_ = roles.computing.contains(rank());
    std::vector<PushClient::Server> servers;
    const std::size_t count = is_worker_ ? roles.owners.count : 1;
    for (std::size_t r = roles.owners.first; r < roles.owners.first + count; ++r)
      servers.push_back({r, weights_of(r)});
    if (is_worker_) prepare();
    client_.emplace(shape, all().session().pairs(), rank(), std::move(servers));
  }

  bool follow(bool stops) {
    note(first_update_ + received_, Phase::reduce);
    const PushReply reply = client_->follow(stops);
    keep(client_->take_records());
    if (reply.kind != PushReply::Kind::done) return true;
    client_->end();
    return false;
  }

  /// \throws UsageError, in all processes, if no server could know the norm by which gradients are
  /// clipped.
  void check_norms() {
    const std::size_t servers = all().session().roles().owners.count;
    const UpdateOptions& with = options_of(all().optimizer_);
    sends_squares_ = with.global_clipnorm > 0 && with.clipnorm <= 0 && servers > 1;
    if (!sends_squares_) return;
    if (with.gradient_accumulation_steps > 1)
      throw UsageError(
          "fit: several servers clip asynchronous steps by the norm of all gradients of a step, not "
          "of those that are accumulated; use one server, .clipnorm, or no "
          ".gradient_accumulation_steps");
    for (const PenaltySegment& s : penalty_segments<typename Replicas::Network>())
      if (s.penalty)
        throw UsageError(
            "fit: several servers clip asynchronous steps by the norm of all gradients, which does "
            "not include those of regularizers; use one server, .clipnorm, or .weight_decay of the "
            "optimizer");
  }

  void prepare() {
    slices_ = std::max<std::size_t>(all().session().virtual_shards(), 1);
    all().session().each([&](const ReplicaContext<D>& r) {
      replica_.emplace(
          r.device, all().optimizer_,
          std::span<const UpdateSegment>(all().segments_.get(), all().segments_of_updates()),
          slices_, Slice{0, slices_}, true, std::size_t{0}, std::size_t{1},
          ReplicaRoles{{0, 1}, {0, 0}}, all().policy());
    });
    if (loader_) return;
    BatchSizes sizes = batch_sizes(data_);
    sizes.depth = 0;  // which batch is next depends on the other workers
    loader_.emplace(std::unique_ptr<ExampleSource<T>>(new PipelineSource<T, Data>(data_)),
                    std::move(sizes), typename Loader<T>::Share{}, class_weights_,
                    Layout::weight_shape);
  }

  bool work(const ReplicaContext<D>& r, bool stops) {
    note(first_update_ + received_, Phase::reduce);
    const PushReply reply = client_->next(stops);
    keep(client_->take_records());
    if (reply.kind == PushReply::Kind::step) make_step(r, reply.step);
    if (reply.kind != PushReply::Kind::done) return true;
    client_->end();
    return false;
  }

  void make_step(const ReplicaContext<D>& r, std::uint64_t number) {
    const std::uint64_t step = first_step_ + number;
    note(step, Phase::data);
    const LoadedBatch batch = load(number);
    all().check_labels(batch);
    PlanEngine<D>& engine = replica_->engine();
    const std::span<std::byte> state = as_bytes(engine.state().data(), state_size);
    if constexpr (tables.count > 0) find_parts(batch);
    client_->pull(reinterpret_cast<std::byte*>(engine.weights().data()), state);

    const CollectiveRef alone(self_);
    const ReplicaContext<D> here{0, 0, alone, GradientExchange<T>(self_), r.device, alone, alone};
    const auto slice = [&](std::size_t i) {
      const Slice rows = slice_of(batch.slice.global_count, slices_, i);
      return rows_of<T>(batch, Layout::fields, batch.slice.with(rows));
    };
    const auto note_phase = [&](Phase phase) { note(step, phase); };
    const double examples = this->replicas_.own_mean_over(batch);
    const RunRequests none;
    replica_->clear_pending_sums();
    replica_->gradients_of({.replica = here,
                            .slice = slice,
                            .requests = none,
                            .seed = all().seed_,
                            .step = step,
                            .examples = examples,
                            .waits = true,
                            .note = note_phase},
                           all().loss_, all().metrics_, nullptr);
    replica_->throw_device_error();

    note(step, Phase::reduce);
    record_ = {static_cast<double>(number), static_cast<double>(batch.slice.global_count), examples,
               replica_->penalty(0)};
    const auto& sums = replica_->sums(0);
    record_.insert(record_.end(), sums.begin(), sums.end());
    client_->push(number, reinterpret_cast<const std::byte*>(engine.gradients().data()),
                  squares(engine.gradients().data()), record_, state);
  }

  /// The batch of a step of the phase. Steps of this worker mostly rise.
  LoadedBatch load(std::uint64_t number) {
    const std::size_t each = data_.batch_size();
    if (!is_at_ || *is_at_ > position_ + number * each) {
      loader_->begin(pass_, position_ + number * each);
    } else {
      loader_->skip(position_ + number * each - *is_at_);
    }
    LoadedBatch batch;
    if (!loader_->next(batch))
      throw Error("fit: the data ended before step {} of the epoch, although their size is known",
                  number + 1);
    is_at_ = position_ + (number + 1) * each;
    return batch;
  }
  /// Lets pull and push be about the rows of tables that the batch reads.
  void find_parts(const LoadedBatch& batch) {
    rows_.clear();
    const T* const x = batch.rows<T>(0);
    for (std::size_t i = 0; i < batch.slice.global_count * Replicas::Network::input_shape.size();
         ++i)
      if (x[i] >= 0 && x[i] < T(1 << 30)) rows_.push_back(static_cast<std::size_t>(x[i]));
    touched_weights(tables.all(), Replicas::Network::graph.weights, rows_, touched_);
    for (Slice& part : touched_) part = {part.first * sizeof(T), part.count * sizeof(T)};
    client_->set_touched(touched_);
  }
  /// The sum of squares of all gradients; below 0 if no server needs it.
  double squares(const T* gradients) const {
    if (!sends_squares_) return -1;
    double sum = 0;
    for (std::size_t i = 0; i < Replicas::Network::graph.weights; ++i)
      sum += static_cast<double>(gradients[i]) * static_cast<double>(gradients[i]);
    return sum;
  }

  // --- all ---

  /// The end of a phase, or of this process' part in it by an error.
  void leave() {
    if (server_) {
      take_records();
      most_counted_ = std::max(most_counted_, server_->most_stale());
    }
    server_.reset();
    client_.reset();
    replica_.reset();  // the next phase may be on other devices
  }

  /// The end of a phase: the weights of all servers, and what these have counted. Collective.
  void complete(const ReplicaContext<D>& r) {
    note(first_update_ + received_, Phase::reduce);
    Replica& replica = all().first();
    replica.policy().complete(r, replica.engine().weights().data());
    const std::span<std::byte> state = as_bytes(replica.engine().state().data(), state_size);
    if (!state.empty())
      r.host.broadcast(state.data(), state.size(), all().session().roles().owners.first);
    struct Counted {
      std::uint64_t most_stale = 0, each_once = 1;
    };
    Counted mine;
    if (server_)
      mine = {std::max(most_counted_, server_->most_stale()),
              each_once(server_->steps_made()) ? 1U : 0U};
    std::vector<Counted> counted(all().session().replicas());
    r.host.all_gather(reinterpret_cast<const std::byte*>(&mine), sizeof mine,
                      reinterpret_cast<std::byte*>(counted.data()));
    UpdateCounts& counts = all().update_counts_;
    most_stale_ = 0;
    for (const Counted& of : counted) {
      most_stale_ = std::max(most_stale_, of.most_stale);
      counts.each_once = counts.each_once && of.each_once != 0;
    }
    counts.most_stale = std::max(counts.most_stale, most_stale_);
    all().is_divided_ = false;
  }

  /// Whether the updates of a phase were those of its first steps, each once.
  bool each_once(std::span<const std::uint64_t> steps) const {
    MadeSteps all = made_;
    for (const std::uint64_t step : steps) all.add(step);
    return all.ahead.empty() && all.count() == made_.count() + steps.size() &&
           steps.size() == received_;
  }

  const Data& data_;
  const ClassWeights& class_weights_;
  Pass pass_{};
  std::uint64_t position_ = 0;    // examples of the pass before the phase
  MadeSteps made_{};              // before the phase
  std::uint64_t first_step_ = 0;  // the number of the phase's first step in the model's life
  // Updates: of the model before the phase, made by this server, and known to this process.
  std::uint64_t first_update_ = 0, applied_ = 0, received_ = 0;
  std::uint64_t most_stale_ = 0;
  std::uint64_t most_counted_ = 0;  // by this server, in parts of the phase that a loss has ended
  std::vector<double> records_;
  std::size_t taken_ = 0;
  std::optional<PushServer> server_;
  std::optional<PushClient> client_;
  bool is_worker_ = false, sends_squares_ = false;
  std::size_t slices_ = 1;
  SelfGroup self_;
  std::optional<Replica> replica_;  // makes whole steps
  std::optional<Loader<T>> loader_;
  std::optional<std::uint64_t> is_at_;  // the next example of the loader
  std::vector<double> record_;
  std::vector<std::size_t> rows_;
  std::vector<Slice> touched_, parts_;
};

}  // namespace lockstep::detail
