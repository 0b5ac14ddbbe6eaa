/// \file
/// The steps of ls::ParameterServer that are asynchronous or have backup workers. Invariants: between two
/// phases all processes hold the same weights; in a phase each process has its role only: the first
/// server hands out the steps, or their slices, servers apply gradients, workers compute them, and all
/// hear of each step in the same order.
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
#include "lockstep/core/logs.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/model/plan.hpp"
#include "lockstep/training/asynchronous/fit_phase.hpp"
#include "lockstep/training/asynchronous/push_client.hpp"
#include "lockstep/training/asynchronous/push_server.hpp"
#include "lockstep/training/asynchronous/touched_rows.hpp"
#include "lockstep/training/step/batches.hpp"
#include "lockstep/training/step/replicas.hpp"

namespace lockstep::detail {

/// \throws UsageError if the strategy makes its steps in phases.
template <class Session>
[[gnu::cold]] void check_synchronous(const Session& session) {
  if (!session.has_phases()) return;
  const bool has_backups = session.backup_workers() > 0;
  throw UsageError(
      "fit: a step of the program's own is made by all processes together, but the strategy {}; "
      "leave out .{}, or the step",
      has_backups ? "has backup workers" : "is asynchronous",
      has_backups ? "backup_workers" : "asynchronous");
}

/// Steps of fit.
///
///     begin_phase     replicas of workers, servers' threads
///     advance         worker: a step, or a slice   server: updates   chief: waits for records
///     ...
///     advance         all steps are applied, and their hooks called: all-gather of the weights ─> false
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
    return all().session().has_phases() ? this : nullptr;
  }

 private:
  void begin_phase(std::uint64_t steps, const MadeSteps& made) override {
    backups_ = all().session().backup_workers();
    check_slices();
    made_ = made;
    first_update_ = all().steps();
    first_step_ = first_update_ - made.count();
    applied_ = received_ = 0;
    has_ended_ = false;
    records_.clear();
    taken_ = 0;
    all().about_to_change();
    all().are_equal_ = false;
    all().is_in_phase_ = all().is_divided_ = true;
    const ReplicaRoles roles = all().session().roles();
    averaged_ = all().first().state_sums().size();
    const PhaseShape shape{.state = state_size * sizeof(T),
                           .record = width,
                           .element = sizeof(T),
                           .steps = steps,
                           .staleness = all().session().staleness(),
                           .made = made,
                           .slices = slices_ = slices_of_step(roles),
                           .copies = backups_,
                           .slice_state = averaged_ * sizeof(double) + state_size * sizeof(T),
                           .sums = all().segments_of_updates()};
    if (roles.owners.contains(rank()))
      begin_server(shape, roles);
    else
      begin_client(shape, roles);
  }

  bool advance(bool stops, std::optional<double> rate) override {
    const bool was_last = has_ended_;
    try {
      all().session().each([&](const ReplicaContext<D>& r) {
        if (was_last) return complete(r);
        has_ended_ = !(server_      ? serve(r, stops, rate)
                       : is_worker_ ? work(r, stops)
                                    : follow(stops));
      });
    } catch (...) {
      leave();
      throw;
    }
    if (!was_last) return true;
    leave();
    counted_ = {};
    position_ += (made_.count() + received_) * data_.batch_size();
    return false;
  }

  std::optional<std::uint64_t> take_step() override {
    if (taken_ == records_.size()) {
      records_.clear();
      taken_ = 0;
      return std::nullopt;
    }
    const std::span<double> record(records_.data() + taken_, width);
    for (std::size_t slice = 1; slice < slices_; ++slice)
      for (std::size_t i = sums_at; i < width; ++i) record[i] += record.data()[slice * width + i];
    taken_ += slices_ * width;
    all().add_step(record.subspan(1));
    ++all().update_counts_.steps;
    return static_cast<std::uint64_t>(record[0]);
  }
  void end_phase() override { all().is_in_phase_ = false; }
  void add_counts(Logs& epoch) override {
    const Counted of = std::exchange(of_epoch_, {});
    if (backups_ > 0)
      epoch.set("copies_dropped", static_cast<double>(of.dropped));
    else
      epoch.set("stale_max", static_cast<double>(of.most_stale));
  }

  using Layout = typename Replicas::Layout;
  struct Counted {
    std::uint64_t most_stale = 0, each_once = 1, dropped = 0;
  };
  static constexpr std::size_t state_size = Replicas::Network::graph.trained_state;
  /// Numbers of a slice's record: of its step the number, the examples, those that the loss is a mean
  /// over and the penalties, then its own sums.
  static constexpr std::size_t sums_at = 4, width = sums_at + Replica::sum_count;
  static constexpr auto tables = row_tables<typename Replicas::Network>();

  Replicas& all() { return this->replicas_; }
  static std::span<std::byte> as_bytes(T* values, std::size_t count) {
    return {reinterpret_cast<std::byte*>(values), count * sizeof(T)};
  }
  void note(std::uint64_t step, Phase phase) { all().session().note(step, phase); }
  void keep(const std::vector<double>& records) {
    records_.insert(records_.end(), records.begin(), records.end());
    received_ += records.size() / (slices_ * width);
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

  /// The slices that a step's batch is divided into.
  std::size_t slices_of_step(const ReplicaRoles& roles) {
    if (backups_ == 0) return 1;
    if (const std::size_t shards = all().session().virtual_shards(); shards > 0) return shards;
    const std::size_t workers = roles.computing.count;
    return workers > backups_ ? workers - backups_ : 1;  // an elastic job has lost some
  }
  /// \throws UsageError, in all processes, if workers cannot compute slices one by one.
  void check_slices() const {
    if constexpr (exists(PlanOf<typename Replicas::Network, D>::plan.exchanges))
      if (backups_ > 0)
        throw UsageError(
            "fit: a layer exchanges statistics between workers within a step, which does not wait "
            "for all of them; leave out ls::synchronized, or .backup_workers");
  }

  // --- a server ---

  void begin_server(const PhaseShape& shape, const ReplicaRoles& roles) {
    PlanEngine<D>& engine = all().first().engine();
    constexpr std::size_t weights = Replicas::Network::graph.weights;
    // Synchronous steps, of which there are none with distant tables, leave gradients.
    if constexpr (tables.count > 0)
      if (!all().is_distant())
        for (const Slice& own : all().first().policy().owned())
          std::fill_n(engine.gradients().data() + own.first, own.count, T{});
    server_.emplace(shape, all().session().pairs(), rank(), roles.owners, weights_of(rank()),
                    as_bytes(engine.weights().data(), weights),
                    as_bytes(engine.state().data(), state_size));
    server_->start();
  }

  bool serve(const ReplicaContext<D>& r, bool stops, std::optional<double> rate) {
    note(first_update_ + applied_, Phase::update);
    if (stops) server_->stop();
    const bool runs = server_->serve(
        [&](const PushServer::Push& push) {
          if (slices_ > 1) add_slice(r, push);
          if (push.slice + 1 == slices_) apply(push, rate);
        },
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
  /// Adds a slice to those before it; the last one becomes the sum of all.
  void add_slice(const ReplicaContext<D>& r, const PushServer::Push& push) {
    const std::size_t count = packed_size(push.parts) / sizeof(T);
    if (push.slice > 0 && count != slice_size_)
      throw Error("parameter server: slice {} of a step has {} gradients, the one before has {}",
                  push.slice, count, slice_size_);
    slice_size_ = count;
    carry(push.slice, reinterpret_cast<T*>(push.gradients), gradient_tree_,
          [&](T* to, const T* from) { r.device.add(to, from, count); });
    carry(push.slice, reinterpret_cast<double*>(push.state), state_tree_,
          [&](double* to, const double* from) {
            for (std::size_t i = 0; i < averaged_; ++i) to[i] += from[i];
          });
  }
  /// The tree of DeviceReplica::carry_partial, for any number of slices: the last one is added to the
  /// partial sums that are in use.
  template <class E, class Add>
  void carry(std::size_t slice, E* mine, std::vector<E*>& partial, const Add& add) const {
    const bool is_last = slice + 1 == slices_;
    std::size_t b = 0;
    for (; is_last ? slice >> b != 0 : (slice >> b & 1) != 0; ++b)
      if ((slice >> b & 1) != 0) add(mine, partial[b]);
    if (is_last) return partial.clear();
    partial.resize(std::max(partial.size(), b + 1));
    partial[b] = mine;
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
    replica.update_alone(
        all().optimizer_, rate ? *rate : all().optimizer_.learning_rate(step), step + 1,
        [&](std::span<double> values) { server_->sum(values); }, parts_);
    // The gradients of rows that the next push does not touch are 0.
    if (!push.is_whole)
      for (const Slice& part : push.parts)
        std::fill_n(gradients + part.first, part.count, std::byte{});
    T* const state = replica.engine().state().data();
    if (slices_ > 1) {
      const std::size_t sums = averaged_ * sizeof(double);
      if constexpr (state_size > 0) std::memcpy(state, push.state + sums, state_size * sizeof(T));
      return replica.set_mean_state(reinterpret_cast<double*>(push.state),
                                    static_cast<std::size_t>(push.record[1]));
    }
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
    pulled_.reset();
    if (is_worker_) prepare();
    client_.emplace(shape, all().session().pairs(), std::move(servers));
  }

  bool follow(bool stops) {
    note(first_update_ + received_, Phase::reduce);
    const PushReply reply = client_->follow(stops);
    keep(client_->take_records());
    if (reply.kind != PushReply::Kind::done) return true;
    client_->end();
    return false;
  }

  void prepare() {
    replica_slices_ =
        backups_ > 0 ? slices_ : std::max<std::size_t>(all().session().virtual_shards(), 1);
    const Slice mine{0, backups_ > 0 ? 1 : replica_slices_};
    const std::span<const UpdateSegment> segments(all().segments_.get(),
                                                  all().segments_of_updates());
    const std::span<const PenaltySegment> penalties = all().penalties_of_updates();
    all().session().each([&](const ReplicaContext<D>& r) {
      replica_.emplace(r.device, all().optimizer_, segments, replica_slices_, mine, true,
                       std::size_t{0}, std::size_t{1}, ReplicaRoles{{0, 1}, {0, 0}},
                       all().policy());
      if (!all().settings_->is_default())
        replica_->change_layers(*all().settings_, segments, penalties);
    });
    // Frozen layers, whose values no server sends.
    const auto& state = all().first().engine().state();
    std::copy(state.data() + state_size, state.data() + state.size(),
              replica_->engine().state().data() + state_size);
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
    if (reply.kind == PushReply::Kind::step) make_step(r, reply.step, reply.slice);
    if (reply.kind != PushReply::Kind::done) return true;
    client_->end();
    return false;
  }

  /// A step, or of one with backup workers the slice from `first` on.
  void make_step(const ReplicaContext<D>& r, std::uint64_t number, std::size_t first) {
    const std::uint64_t step = first_step_ + number;
    note(step, Phase::data);
    LoadedBatch batch = load(number);
    all().check_labels(batch);
    PlanEngine<D>& engine = replica_->engine();
    const std::span<std::byte> state = as_bytes(engine.state().data(), state_size);
    if constexpr (tables.count > 0) find_parts(batch);
    if (pulled_ == number) {  // another slice of the step
      std::copy(pulled_state_.begin(), pulled_state_.end(), state.begin());
    } else {
      client_->pull(reinterpret_cast<std::byte*>(engine.weights().data()), state);
      if (slices_ > 1) {
        pulled_ = number;
        pulled_state_.assign(state.begin(), state.end());
      }
    }

    const CollectiveRef alone(self_);
    const ReplicaContext<D> here{0, 0, alone, GradientExchange<T>(self_), r.device, alone, alone};
    const auto slice = [&](std::size_t i) {
      const Slice rows = slice_of(batch.slice.global_count, replica_slices_, first + i);
      return rows_of<T>(batch, Layout::fields, batch.slice.with(rows));
    };
    const auto note_phase = [&](Phase phase) { note(step, phase); };
    const double examples = this->replicas_.own_mean_over(batch);
    const RunRequests none;
    replica_->clear_pending_sums();
    replica_->gradients_of(
        {.replica = here,
         .slice = slice,
         .requests = none,
         .seed = all().seed_,
         .step = step,
         .examples = examples,
         .waits = true,
         .note = note_phase,
         .used = placed_.used,
         .table_rows = all().is_distant() ? placed_.rows.size() : ~std::size_t{0}},
        all().own_step_loss(batch), all().metrics_, nullptr);
    replica_->throw_device_error();

    note(step, Phase::reduce);
    record_ = {static_cast<double>(number), static_cast<double>(batch.slice.global_count), examples,
               replica_->penalty(0)};
    const auto& sums = replica_->sums(0);
    record_.insert(record_.end(), sums.begin(), sums.end());
    client_->push(number, reinterpret_cast<const std::byte*>(engine.gradients().data()), record_,
                  slices_ > 1 ? state_of_slice(state) : state);
  }
  /// A slice's part of the sums of the layers' state, and the state, of which the rest is used.
  std::span<const std::byte> state_of_slice(std::span<const std::byte> state) {
    const std::span<const std::byte> sums = std::as_bytes(replica_->state_sums());
    slice_state_.assign(sums.begin(), sums.end());
    slice_state_.insert(slice_state_.end(), state.begin(), state.end());
    return slice_state_;
  }

  /// The batch of a step of the phase. Steps of this worker mostly rise.
  LoadedBatch load(std::uint64_t number) {
    const std::size_t each = data_.batch_size();
    if (loaded_ && is_at_ == position_ + (number + 1) * each) return *loaded_;
    loaded_.reset();
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
    if (backups_ > 0) loaded_ = batch;  // for the next slice of the step
    return batch;
  }
  /// Lets pull and push be about the rows of tables that the batch reads.
  void find_parts(LoadedBatch& batch) {
    const std::span<const T> x(batch.rows<T>(0),
                               batch.slice.global_count * Replicas::Network::input_shape.size());
    if (all().is_distant()) {
      collect_rows(x, placed_.rows);
      placed_.place(tables.all(), Replicas::Network::graph.weights, sizeof(T), true);
      renumber<T>(x, placed_.rows, renumbered_);
      batch.field[0] = renumbered_.data();
      return client_->set_touched(placed_);
    }
    collect_rows(x, rows_);
    touched_weights(tables.all(), Replicas::Network::graph.weights, rows_, touched_);
    for (Slice& part : touched_) part = {part.first * sizeof(T), part.count * sizeof(T)};
    client_->set_touched(touched_);
  }

  // --- all ---

  /// The end of a phase, or of this process' part in it by an error.
  void leave() {
    if (server_) {
      take_records();
      counted_ = count();
    }
    server_.reset();
    client_.reset();
    replica_.reset();  // the next phase may be on other devices
  }

  /// The end of a phase: the weights of all servers, and what these have counted. Collective.
  void complete(const ReplicaContext<D>& r) {
    note(first_update_ + received_, Phase::reduce);
    Replica& replica = all().first();
    if constexpr (requires { replica.policy().complete_phase(r); })
      replica.policy().complete_phase(r);
    else
      replica.policy().complete(r, replica.engine().weights().data());
    if constexpr (state_size > 0) {
      // An owner has its state, whatever a broadcast that fails leaves.
      T* const state = replica.engine().state().data();
      std::vector<T> sent(state, state + state_size);
      const std::span<std::byte> bytes = as_bytes(sent.data(), state_size);
      r.host.broadcast(bytes.data(), bytes.size(), all().session().roles().owners.first);
      std::copy(sent.begin(), sent.end(), state);
    }
    Counted mine;
    if (server_) {
      mine = count();
      mine.each_once = each_once(server_->steps_made()) ? 1 : 0;
    }
    std::vector<Counted> counted(all().session().replicas());
    r.host.all_gather(reinterpret_cast<const std::byte*>(&mine), sizeof mine,
                      reinterpret_cast<std::byte*>(counted.data()));
    UpdateCounts& counts = all().update_counts_;
    for (const Counted& of : counted) {
      counts.most_stale = std::max(counts.most_stale, of.most_stale);
      counts.each_once = counts.each_once && of.each_once != 0;
      counts.copies_dropped += of.dropped;
      of_epoch_.most_stale = std::max(of_epoch_.most_stale, of.most_stale);
      of_epoch_.dropped += of.dropped;
    }
    all().is_divided_ = false;
  }
  /// The counts of this server in the phase so far.
  Counted count() {
    return {std::max(counted_.most_stale, server_->most_stale()), 1,
            counted_.dropped + server_->dropped()};
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
  Counted counted_{};   // by this server, in parts of the phase that a loss has ended
  Counted of_epoch_{};  // by all
  std::vector<double> records_;
  std::size_t taken_ = 0;
  std::optional<PushServer> server_;
  std::optional<PushClient> client_;
  bool is_worker_ = false, has_ended_ = false;  // this process' part of the phase
  std::size_t backups_ = 0;
  std::size_t slices_ = 1, averaged_ = 0;  // of a step; numbers in its sums of the layers' state
  std::vector<T*> gradient_tree_;          // sums of 2^b slices in number b
  std::vector<double*> state_tree_;
  std::size_t slice_size_ = 0;      // gradients
  std::size_t replica_slices_ = 1;  // of a batch, for replica_
  SelfGroup self_;
  std::optional<Replica> replica_;  // makes whole steps
  std::optional<Loader<T>> loader_;
  std::optional<std::uint64_t> is_at_;  // the next example of the loader
  std::optional<LoadedBatch> loaded_;   // with backup workers, the one before it
  std::vector<double> record_;
  std::optional<std::uint64_t> pulled_;  // the step whose weights replica_ has
  std::vector<std::byte> pulled_state_, slice_state_;
  std::vector<std::size_t> rows_;
  std::vector<Slice> touched_, parts_;
  PlacedRows placed_;  // if only servers have the tables
  std::vector<T> renumbered_;
};

}  // namespace lockstep::detail
