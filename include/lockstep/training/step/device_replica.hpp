/// \file
/// The part of a replica that depends only on its device and its target type: the phases of a step,
/// the step's sums and their exchange. Invariants: all replicas make the same calls in the same
/// order, even for an empty slice; after `update`, or `end_round`, all hold the same weights.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/fields.hpp"
#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/concepts/loaded_batch.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/numbers/digest64.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/model/engine.hpp"
#include "lockstep/training/step/any_replicas.hpp"
#include "lockstep/training/step/loss_scale.hpp"
#include "lockstep/training/step/replicated.hpp"
#include "lockstep/training/step/run_requests.hpp"
#include "lockstep/training/step/state_average.hpp"
#include "lockstep/training/step/updates.hpp"

namespace lockstep::detail {

/// The constants of a model that its replicas need. One static object for each model and device.
template <class D>
struct ReplicaPlan {
  EnginePlan<D> engine;
  TrainedState state;
  std::span<const PenaltySegment> penalties;
  bool has_penalty;
  std::span<const Field> fields;  ///< of a batch, see BatchLayout
  std::size_t sums;               ///< elements per slice: the loss, then each metric's state
  bool exchanges;                 ///< a layer exchanges data with other replicas within a step
};

/// The parameters of a replica that its strategy and its optimizer determine.
struct ReplicaPlace {
  std::size_t slices;          ///< per global batch
  std::size_t first, mine;     ///< this replica's slices: [first, first + mine)
  bool is_only_replica;        ///< no exchange changes its gradients
  std::size_t rank, replicas;  ///< this replica among all of the job
  ReplicaRoles roles;
  const void* policy;  ///< see UpdateSite
  UpdateFacts update;
  std::span<const Slice> shared = {};  ///< see UpdateSite
};

/// The arguments of a replica for one batch.
template <class D>
struct ReplicaStep {
  const ReplicaContext<D>& replica;
  FunctionRef<LoadedBatch(std::size_t)> slice;  ///< this replica's i-th slice
  const RunRequests& requests;
  std::uint64_t seed;
  std::uint64_t step = 0;              ///< counted from 0
  double rate = 0;                     ///< that this process proposes
  double examples = 0;                 ///< that the loss is a mean over, see Replicas::mean_over
  std::uint64_t round = 0;             ///< of a policy that has such; counted from 1
  bool waits = false;                  ///< for the sums
  FunctionRef<void(Phase)> note = {};  ///< called when a phase begins
  /// The weights that the batch reads, in a replica that has parts of tables; empty: all.
  std::span<const Slice> used = {};
  std::size_t table_rows = ~std::size_t{0};  ///< see StepContext
};

/// One replica, without its loss, metrics and optimizer, which Replica adds.
///
/// The phases of a training step, in the replica's own thread; `->` marks what is queued on the
/// device or the exchange and may still be in flight when the next phase begins:
///
///     data      -> copy slice 0 to the device; clear sums_; penalties of the weights
///     forward   -> engine, loss, metrics into sums_           \  once for each
///     backward  -> engine; each finished bucket is posted     /  slice
///     reduce    -> last bucket + sums_ through the exchange; sums_ to pending_sums_
///                  (wait for them if other processes take part)
///     update    -> running statistics, then the optimizer over weights and slots
///
/// U, the object of the strategy's update policy, decides which gradients and weights travel, and
/// which weights the optimizer updates here; see concepts/update_policy.hpp.
///
/// The exchange sums one buffer of doubles, sums_:
///
///     | slice 0 | ... | slice n-1 | requests | rate of each slice | state | penalty | nonfinite |
///     0                           requests_at_                    state_at_  `---- local ----'
///
/// A slice's part is zero in all replicas except the one that computed the slice, so the order in
/// which a collective adds cannot change any sum.
template <class D, class U = Replicated::Replica<D>>
class DeviceReplica {
 public:
  using T = typename D::real;
  using Context = typename D::Context;
  /// Elements of sums_ for requests.
  static constexpr std::size_t request_count = sizeof(SummedRequests) / sizeof(double);
  /// The loss, summed over examples, then each metric's state.
  using Sums = std::vector<double>;

  /// `plan` must outlive the replica. \throws DeviceError, OutOfMemory.
  [[gnu::cold]] DeviceReplica(Context& context, const ReplicaPlan<D>& plan,
                              const ReplicaPlace& place);
  DeviceReplica(const DeviceReplica&) = delete;
  DeviceReplica& operator=(const DeviceReplica&) = delete;
  [[gnu::cold]] ~DeviceReplica();

  /// Waits for all work queued on the device. The sums of all steps are on the host afterwards.
  void wait() {
    begin_work(*context_, {});
    wait_guarded([&] { wait_for(*context_); });
  }
  /// \throws the error, if any, that a kernel reported before the last wait. May be called outside
  /// of the device's scope.
  void throw_device_error() { check_errors(*context_); }
  void clear_pending_sums() { pending_ = 0; }
  /// Adds the sums of a step that another replica has made.
  [[gnu::cold]] void add_sums(std::span<const double> sums, double penalty) {
    if (pending_ == pending_sums_.size()) pending_sums_.emplace_back(sums_.size());
    std::vector<double>& next = pending_sums_[last_ = pending_++];
    std::fill(next.begin(), next.end(), 0.0);
    std::copy(sums.begin(), sums.end(), next.begin());
    next[state_at_ + state_.size()] = penalty;
  }
  /// Drops the sums of the last step.
  void drop_last_sums() { --pending_; }
  /// Sums over the global batch of the i-th step since `clear_pending_sums`. The reference is valid
  /// until the next call.
  const Sums& sums(std::size_t i);
  /// Penalties of the weights before that step's update.
  double penalty(std::size_t i) const { return pending_sums_[i][state_at_ + state_.size()]; }

  /// The examples that the loss is a mean over, of this replica and the current round.
  double counted_in_round() const
    requires makes_rounds<U>
  {
    return round_.counted;
  }
  /// Ends a round whose steps have `examples` in all replicas. `share`: of this replica in means.
  /// The sums of its steps are pending and on the host afterwards.
  [[gnu::cold]] void end_round(const RunRequests& requests, std::span<const std::size_t> examples,
                               double share, const ReplicaContext<D>& replica)
    requires makes_rounds<U>;
  /// Sets the weights and the state of layers to those before the round with this number, unless no
  /// step of this replica has begun it.
  [[gnu::cold]] void discard_round(std::uint64_t number)
    requires makes_rounds<U>
  {
    if (round_.number != number) return;
    policy_.restore_beginning();
    std::copy(round_.state.begin(), round_.state.end(), engine_.state().data());
  }
  /// The examples that the loss of a step of the last round is a mean over, in all replicas.
  double counted_in_step(std::size_t i) const
    requires makes_rounds<U>
  {
    return round_.sums[i * (requests_at_ + 2) + requests_at_ + 1];
  }

  /// Number of gradient buffers in addition to the engine's; see carry_partial.
  std::size_t partial_gradients() const { return partial_gradients_.size(); }
  PlanEngine<D>& engine() { return engine_; }
  const LossScale<D>& loss_scale() const { return loss_scale_; }
  /// The loss of each slice of the last step's global batch, summed over examples.
  double slice_loss(std::size_t slice) const { return last_sums()[slice * plan_->sums]; }
  /// Makes the i-th step since `clear_pending_sums` the last one, for slice_loss.
  void point_to(std::size_t i) { last_ = i; }
  /// Requests that any process made before the last exchange.
  RunRequests agreed_requests() const;
  /// The rate of the step whose sums were exchanged last, if this process proposes `rate`.
  double agreed_rate(double rate) const { return rate_of(agreed_requests(), rate); }
  void clear_requests() {
    std::fill_n(last_sums().data() + requests_at_, state_at_ - requests_at_, 0.0);
  }
  /// Exchanges requests between steps; gradients stay as they are.
  [[gnu::cold]] void exchange_requests(RunRequests requests, const ReplicaContext<D>& replica);
  /// Whether all weights and gradients are finite, without gradients that the owner of a weight alone
  /// knows; see TrainingControl. Call between steps, outside
  /// of the device's scope. Checks the sum of squares in double, which cannot overflow for floats.
  [[gnu::cold]] bool is_finite();
  /// The object of the strategy's update policy.
  U& policy() { return policy_; }
  const U& policy() const { return policy_; }
  /// Call before a change of the layers' state by a step that another replica has made.
  void keep_state() { state_.keep(engine_.state()); }
  /// Sets the layers' state to that before the last step.
  [[gnu::cold]] void undo_state() {
    [[maybe_unused]] const auto scope = context_->scope();
    state_.undo(engine_.state());
    context_->synchronize();
  }
  /// This replica's part of the sums of the layers' state in the last step; see StateAverage. Empty if
  /// the state is not averaged.
  std::span<const double> state_sums() const {
    return {last_sums().data() + state_at_, state_.size()};
  }
  /// Sets the layers' state to that after a step of `count` examples whose slices other replicas have
  /// computed: `sums` are those of all.
  [[gnu::cold]] void set_mean_state(double* sums, std::size_t count) {
    state_.write_mean(sums, count, engine_.state());
  }
  void restore_loss_scale(const LossScaleState& state) { loss_scale_.restore(state); }
  /// See PlanEngine::hold, Updates::set_segments. Gradients are 0 afterwards, so that nothing can
  /// read old ones of weights that are held. Call in the device's scope.
  [[gnu::cold]] void hold(std::string_view steps, std::span<const UpdateSegment> segments,
                          std::span<const PenaltySegment> penalties) {
    engine_.hold(steps);
    std::vector<Slice> statistics;
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (const PlacedStep& s = plan_->engine.step[i]; steps[i] == '1' && s.has_statistics)
        statistics.push_back({s.state, s.state_count});
    state_.hold(std::move(statistics));
    policy_.set_segments(segments);
    penalties_ = penalties;
    const auto clear = [&](const Buffer<Context, T>& buffer) {
      if (buffer.size() > 0)
        context_->clear(reinterpret_cast<std::byte*>(buffer.data()), buffer.bytes());
    };
    clear(engine_.gradients());
    for (const auto& partial : partial_gradients_) clear(partial);
    wait();
  }
  /// Host copy of a buffer of this replica. May be called between steps, outside of the device's
  /// scope.
  template <class E = T>
  std::vector<E> copy_of(const Buffer<Context, T>& buffer) const;

  /// Adds a buffer's values to `digest`. Call between steps, outside of the device's scope.
  void add_to(Digest64& digest, const Buffer<Context, T>& buffer) const {
    if constexpr (HostDevice<D>) {
      context_->synchronize();
      digest.add(std::as_bytes(std::span<const T>(buffer.data(), buffer.size())));
    } else {
      const std::vector<T> values = copy_of(buffer);
      digest.add(std::as_bytes(std::span<const T>(values)));
    }
  }

  /// The same of the weights that all replicas have.
  void add_weights_to(Digest64& digest) const {
    if constexpr (HostDevice<D> && U::divides_slots)
      if (!shared_.empty()) {
        context_->synchronize();
        for (const Slice& part : shared_)
          digest.add(
              std::as_bytes(std::span<const T>(engine_.weights().data() + part.first, part.count)));
        return;
      }
    add_to(digest, engine_.weights());
  }

  /// Everything that a training step changes, for `model.profile`.
  struct Snapshot {
    std::vector<T> weights, state, gradients;
    std::vector<std::vector<T>> slot_values;
    LossScale<D> loss_scale;
    std::vector<T> kept{}, factors{};  // of a policy that has them
  };
  [[gnu::cold]] Snapshot snapshot() const;
  /// Call in the device's scope.
  [[gnu::cold]] void restore_snapshot(const Snapshot& kept);

 protected:
  /// The outputs of a slice, and the destinations of its loss, metrics and gradient.
  struct Scored {
    const T* y;                ///< (examples, output); null in blocks
    const LoadedBatch& batch;  ///< targets and sample weights
    const LoadedBatch& given;  ///< the same batch as it was loaded
    const StepContext& step;   ///< of forward
    T* gradient;               ///< of the loss with respect to y; null if not needed
    double scale;              ///< of that gradient: loss scale / ReplicaStep::examples
    double* sums;              ///< the slice's part of sums_
  };
  using Score = FunctionRef<void(const Scored&)>;

  /// The phases up to the exchange, see above. `update` is called with ranges of gradients as
  /// backward finishes them, if the policy updates in backward; null otherwise.
  void train(const ReplicaStep<D>& s, Score score, UpdateRef<T> update);
  void evaluate(const ReplicaStep<D>& s, Score score);
  void predict(T* out, const LoadedBatch& batch, std::uint64_t seed,
               const ReplicaContext<D>& replica);
  /// The same for a network whose output is computed in blocks.
  void predict_in_blocks(T* out, LoadedBatch batch, std::uint64_t seed,
                         const ReplicaContext<D>& replica);
  LoadedBatch on_device(LoadedBatch batch, const ReplicaContext<D>& replica);
  /// The network's input, which is the first field.
  static const T* input_of(const LoadedBatch& batch) { return batch.rows<T>(0); }

  /// Labels the device's next work, for profiles and error messages. The engine labels layers.
  void begin(WorkPass pass, const char* part) {
    begin_work(*context_,
               {.pass = trains_ ? pass : WorkPass::evaluation, .part = part, .step = step_});
  }
  // Not inlined: g++ 12 would warn that the rate may be uninitialized.
  [[gnu::noinline]] static double rate_of(const RunRequests& requests, double rate) {
    if (requests.learning_rate) return *requests.learning_rate;
    return requests.chief_rate.value_or(rate);
  }

 private:
  using State = StateAverage<D>;
  /// The steps of a round so far, of this replica.
  struct Round {
    /// For each step: sums_ up to the requests, penalty times examples, and the examples that the loss
    /// is a mean over.
    std::vector<double> sums{};
    std::size_t examples = 0;
    double counted = 0;
    std::uint64_t number = 0;
    std::vector<T> state{};  ///< of layers, before the round
  };
  struct NoRound {};

  /// Whether a slice of `count` examples need not be computed: it is empty, no layer waits for it,
  /// and the policy does not read its gradients.
  bool is_idle(std::size_t count) const {
    if constexpr (requires { policy_.reads_gradients(); })
      return count == 0 && !policy_.reads_gradients() && !plan_->exchanges;
    else
      return false;
  }
  /// The gradients whose sums all replicas know; only these may decide anything.
  std::span<const Slice> known_sums() const {
    if constexpr (U::divides_slots)
      return {};
    else
      return policy_.owned().parts();
  }
  [[gnu::cold]] bool sum_is_finite();
  [[gnu::cold]] bool all_finite(const Buffer<Context, T>& buffer, std::span<const Slice> of) const;
  void begin_exchange() {
    if (exchanges_) begin(WorkPass::exchange, "gradients");
  }
  const T* infer(const LoadedBatch& batch, const StepContext& context);
  static StepContext inference(const LoadedBatch& batch, std::uint64_t seed,
                               const ReplicaContext<D>& replica) {
    return {batch.slice, false, seed, 0, replica.group};
  }
  void score_slice(std::size_t i, const T* y, const LoadedBatch& batch, const LoadedBatch& given,
                   const StepContext& context, T* gradient, double examples, Score score);
  void add_penalties();
  /// Calls `wait`. If it throws, a pending transfer failed and the contents of sums_ are undefined,
  /// so the next step clears the buffer.
  template <class Wait>
  void wait_guarded(const Wait& wait) {
    const bool are_clear = std::exchange(sums_are_clear_, false);
    wait();
    sums_are_clear_ = are_clear;
  }
  /// Zeroes sums_, then writes this process' requests.
  void clear_sums(const RunRequests& requests);
  // The gradients of slices are added in one binary tree over all slices of the batch, like carries
  // in a binary counter: after slice i, partial gradient b holds the sum of 2^b slices if bit b of
  // i + 1 is set, and is free otherwise. The tree depends on the number of slices only, not on the
  // number of replicas, so virtual shards give the same bits for any number of replicas.
  //
  //     slice 0   g0 ------------- partial 0
  //     slice 1   g1 + partial 0 - partial 1
  //     slice 2   g2 ------------- partial 0
  //     slice 3   g3 + partial 0 + partial 1: the last one adds all partial gradients
  void carry_partial(std::size_t i, std::span<const Slice> used) {
    std::size_t b = 0;
    for (; (i >> b & 1) != 0; ++b) add_partial(b, {0, plan_->engine.weights}, used);
    engine_.swap_gradients(partial_gradients_[b]);
  }
  /// After the last slice: adds all partial gradients to the engine's, within the bucket.
  void add_partials(const Bucket& bucket, std::span<const Slice> used) {
    for (std::size_t b = 0; b < partial_gradients_.size(); ++b) add_partial(b, bucket, used);
  }
  void add_partial(std::size_t b, const Bucket& range, std::span<const Slice> used) {
    const auto add = [&](std::size_t begin, std::size_t end) {
      context_->add(engine_.gradients().data() + begin, partial_gradients_[b].data() + begin,
                    end - begin);
    };
    if constexpr (U::divides_slots)
      if (!used.empty()) {
        for (const Slice& part : used)
          if (const std::size_t begin = std::max(part.first, range.begin),
              end = std::min(part.first + part.count, range.end);
              begin < end)
            add(begin, end);
        return;
      }
    add(range.begin, range.end);
  }

  /// Exchanges the last bucket and sums_, and queues the sums' copy to the host.
  void exchange_sums(const ReplicaContext<D>& replica, Slice last, std::size_t state_size = 0);
  /// Moves the sums of a step alone to those of its round.
  void add_to_round(const ReplicaStep<D>& s, std::size_t examples)
    requires makes_rounds<U>;

 protected:
  /// Host copy of the last step's sums_.
  std::vector<double>& last_sums() { return pending_sums_[last_]; }
  const std::vector<double>& last_sums() const { return pending_sums_[last_]; }

  /// The weights that all replicas have.
  std::span<const Slice> shared_or(const Slice& all) const {
    return !U::divides_slots || shared_.empty() ? std::span<const Slice>(&all, 1) : shared_;
  }

  const ReplicaPlan<D>* plan_;
  Context* context_;
  std::span<const PenaltySegment> penalties_;  // of the weights that train
  std::span<const Slice> shared_;              // empty: all
  PlanEngine<D> engine_;
  U policy_;
  State state_;
  std::vector<Buffer<Context, T>> partial_gradients_;  // see carry_partial
  std::size_t requests_at_, state_at_;                 // offsets in sums_
  // Layout: see the drawing above. A process writes its rate to the slot of its replicas' first
  // slice; all processes then use the first rate found, that is the lowest rank's, before those of
  // replicas that compute nothing.
  Buffer<Context, double> sums_;
  bool sums_are_clear_ = true;
  [[no_unique_address]] LossScale<D> loss_scale_;
  std::size_t first_slice_, slices_;
  bool is_first_;   // of the job
  bool exchanges_;  // gradients are summed over other slices or replicas
  // Host copies of sums_, one for each step since clear_pending_sums. Only grows, so that a step
  // of a running fit allocates nothing; the first `pending_` are in use, `last_` is the newest.
  std::vector<std::vector<double>> pending_sums_;
  std::size_t pending_ = 0, last_ = 0;
  std::uint64_t step_ = 0;  // labels work, as does the next one
  bool trains_ = false;     // false: evaluation or prediction
  [[no_unique_address]] std::conditional_t<makes_rounds<U>, Round, NoRound> round_{};
  Buffer<Context, double> squares_;  // one element, for is_finite; allocated when first needed
  Sums host_sums_;                   // returned by sums(i)
};

template <class D, class U>
DeviceReplica<D, U>::DeviceReplica(Context& context, const ReplicaPlan<D>& plan,
                                   const ReplicaPlace& place)
    : plan_(&plan),
      context_(&context),
      penalties_(plan.penalties),
      shared_(place.shared),
      engine_(context, plan.engine, U::divides_slots),
      policy_(UpdateSite<D>{.device = context,
                            .engine = engine_,
                            .facts = place.update,
                            .rank = place.rank,
                            .replicas = place.replicas,
                            .roles = place.roles,
                            .policy = place.policy,
                            .shared = place.shared,
                            .has_final_gradients =
                                !plan.has_penalty &&
                                (makes_rounds<U> || (place.is_only_replica && place.slices == 1))}),
      state_(context, plan.state, place.slices, place.mine),
      requests_at_(place.slices * plan.sums),
      state_at_(requests_at_ + request_count + place.slices),
      sums_(context, state_at_ + state_.size() + 1 + LossScale<D>::sums, Exchanged{}),
      first_slice_(place.first),
      slices_(place.mine),
      is_first_(place.rank == 0),
      exchanges_(!place.is_only_replica || place.slices > 1),
      pending_sums_(1, std::vector<double>(sums_.size())) {
  for (std::size_t n = 1; n < place.mine; n *= 2)
    if constexpr (HostDevice<D>)  // carry_partial exchanges them
      partial_gradients_.emplace_back(context, plan.engine.weights, Exchanged{});
    else
      partial_gradients_.emplace_back(context, plan.engine.weights);
}
template <class D, class U>
DeviceReplica<D, U>::~DeviceReplica() = default;

template <class D, class U>
void DeviceReplica<D, U>::train(const ReplicaStep<D>& s, Score score, UpdateRef<T> update) {
  const ReplicaContext<D>& replica = s.replica;
  step_ = s.step;
  trains_ = true;
  if constexpr (requires { policy_.begin_step(s.step); }) policy_.begin_step(s.step + 1);
  LoadedBatch given = s.slice(0);
  const LoadedBatch first = on_device(given, replica);  // the copy may have to wait
  if constexpr (makes_rounds<U>) {
    const bool begins = round_.number != s.round;
    policy_.begin_local_step(begins, first.slice.count);
    if (begins) {
      const T* const state = engine_.state().data();
      round_.sums.clear();
      round_.examples = 0;
      round_.counted = 0;
      round_.number = s.round;
      round_.state.assign(state, state + plan_->state.size);
    }
  }
  clear_sums(s.requests);
  add_penalties();
  if (state_.is_on()) begin(WorkPass::forward, "state");
  typename State::Rollback rollback(state_, engine_.state());
  Slice last{};
  for (std::size_t i = 0; i < slices_; ++i) {
    if (i > 0) given = s.slice(i);
    const LoadedBatch batch = i == 0 ? first : on_device(given, replica);
    StepContext context{batch.slice, true, s.seed, s.step, replica.group};
    context.table_rows = s.table_rows;
    if (is_idle(context.count)) {
      last = {0, plan_->engine.weights};
      if constexpr (!makes_rounds<U>)
        state_.add(i, 0, i + 1 == slices_, engine_.state(), sums_.data() + state_at_);
      continue;
    }
    s.note(Phase::forward);
    engine_.prepare(context.count);
    const T* const x = input_of(batch);
    const T* const y = engine_.forward(x, context);
    score_slice(i, y, batch, given, context, engine_.output_gradient(), s.examples, score);
    s.note(Phase::backward);
    engine_.backward(
        x, context,
        [&](const Bucket& b) {
          if (i + 1 < slices_) return;
          begin_exchange();
          add_partials(b, s.used);
          const Slice range{b.begin, b.end - b.begin};
          if (engine_.is_last(b))
            last = range;
          else
            policy_.ready(replica, range);
        },
        update);
    begin_exchange();
    if (i + 1 < slices_) carry_partial(i, s.used);
    if constexpr (!makes_rounds<U>)
      state_.add(i, context.count, i + 1 == slices_, engine_.state(), sums_.data() + state_at_);
  }
  if constexpr (makes_rounds<U>) {
    exchange_sums(replica, last);
    add_to_round(s, first.slice.count);
  } else {
    s.note(Phase::reduce);
    exchange_sums(replica, last, state_.size());
    if (s.waits) wait();
    if (state_.is_on()) begin(WorkPass::exchange, "state");
    state_.write_mean(sums_.data() + state_at_, first.slice.global_count, engine_.state());
  }
  rollback.commit();
  // Without weights of its own it waits for those that have.
  if (policy_.owned().size() > 0) s.note(Phase::update);
}

template <class D, class U>
void DeviceReplica<D, U>::add_to_round(const ReplicaStep<D>& s, std::size_t examples)
  requires makes_rounds<U>
{
  wait();
  const double* const sums = last_sums().data();
  round_.sums.insert(round_.sums.end(), sums, sums + requests_at_);
  round_.sums.push_back(static_cast<double>(examples) * sums[state_at_ + state_.size()]);
  round_.sums.push_back(s.examples);
  round_.examples += examples;
  round_.counted += s.examples;
  drop_last_sums();
}

template <class D, class U>
void DeviceReplica<D, U>::end_round(const RunRequests& requests,
                                    std::span<const std::size_t> examples, double share,
                                    const ReplicaContext<D>& replica)
  requires makes_rounds<U>
{
  trains_ = true;
  clear_sums(requests);
  double* const shared = sums_.data() + requests_at_;  // requests, rates, state
  const std::size_t count = state_at_ + state_.size() - requests_at_;
  state_.add(0, round_.examples, true, engine_.state(), sums_.data() + state_at_);
  std::vector<double>& sums = round_.sums;
  sums.insert(sums.end(), shared, shared + count);
  begin(WorkPass::exchange, "weights");
  policy_.end_round(replica, share, sums.data(), sums.size());
  std::copy(sums.end() - static_cast<std::ptrdiff_t>(count), sums.end(), shared);
  std::size_t all = 0;
  for (const std::size_t of_step : examples) all += of_step;
  state_.write_mean(sums_.data() + state_at_, all, engine_.state());
  const double* step = sums.data();
  for (const std::size_t of_step : examples) {
    if (pending_ == pending_sums_.size()) pending_sums_.emplace_back(sums_.size());
    std::vector<double>& next = pending_sums_[last_ = pending_++];
    std::copy_n(step, requests_at_, next.begin());
    std::copy_n(shared, count, next.begin() + static_cast<std::ptrdiff_t>(requests_at_));
    next[state_at_ + state_.size()] = step[requests_at_] / static_cast<double>(of_step);
    step += requests_at_ + 2;
  }
  wait();
}

template <class D, class U>
void DeviceReplica<D, U>::evaluate(const ReplicaStep<D>& s, Score score) {
  trains_ = false;
  const WorkWithin within(*context_, {});  // ends the label even if an exception is thrown
  begin(WorkPass::exchange, "sums");
  clear_sums(s.requests);
  add_penalties();
  for (std::size_t i = 0; i < slices_; ++i) {
    const LoadedBatch given = s.slice(i), batch = on_device(given, s.replica);
    if (is_idle(batch.slice.count)) continue;
    const StepContext context = inference(batch, s.seed, s.replica);
    score_slice(i, infer(batch, context), batch, given, context, nullptr, s.examples, score);
  }
  exchange_sums(s.replica, {});
  begin_work(*context_, {});
  wait_guarded([&] { context_->synchronize(); });
}

template <class D, class U>
void DeviceReplica<D, U>::predict(T* out, const LoadedBatch& batch, std::uint64_t seed,
                                  const ReplicaContext<D>& replica) {
  trains_ = false;
  const WorkWithin within(*context_, {});
  const T* const y = infer(on_device(batch, replica), inference(batch, seed, replica));
  context_->download(reinterpret_cast<std::byte*>(out), reinterpret_cast<const std::byte*>(y),
                     batch.slice.count * plan_->engine.output * sizeof(T));
  begin_work(*context_, {});
  context_->synchronize();
}

template <class D, class U>
void DeviceReplica<D, U>::predict_in_blocks(T* out, LoadedBatch batch, std::uint64_t seed,
                                            const ReplicaContext<D>& replica) {
  trains_ = false;
  const WorkWithin within(*context_, {});
  batch = on_device(batch, replica);
  const StepContext context = inference(batch, seed, replica);
  infer(batch, context);
  const std::size_t width = plan_->engine.blocks.width;
  engine_.each_block(input_of(batch), context, false, [&](const Slice& rows, const T* y, T*) {
    context_->download(reinterpret_cast<std::byte*>(out + rows.first * width),
                       reinterpret_cast<const std::byte*>(y), rows.count * width * sizeof(T));
  });
  begin_work(*context_, {});
  context_->synchronize();
}

template <class D, class U>
void DeviceReplica<D, U>::exchange_requests(RunRequests requests,
                                            const ReplicaContext<D>& replica) {
  clear_sums(requests);
  exchange_sums(replica, {});
  wait_guarded([&] { context_->synchronize(); });
  drop_last_sums();  // exchange_sums counted a step, but none was made
}

template <class D, class U>
auto DeviceReplica<D, U>::sums(std::size_t i) -> const Sums& {
  host_sums_.resize(plan_->sums);
  std::fill(host_sums_.begin(), host_sums_.end(), 0.0);
  for (std::size_t k = 0; k < requests_at_; ++k) host_sums_[k % plan_->sums] += pending_sums_[i][k];
  return host_sums_;
}

template <class D, class U>
RunRequests DeviceReplica<D, U>::agreed_requests() const {
  const double* const asked = last_sums().data() + requests_at_;
  SummedRequests summed;
  std::memcpy(&summed, asked, sizeof summed);
  return summed.requests({asked + request_count, last_sums().data() + state_at_});
}

template <class D, class U>
template <class E>
auto DeviceReplica<D, U>::copy_of(const Buffer<Context, T>& buffer) const -> std::vector<E> {
  [[maybe_unused]] const auto scope = context_->scope();
  std::vector<E> host(buffer.bytes() / sizeof(E));
  buffer.download(reinterpret_cast<T*>(host.data()));
  context_->synchronize();
  return host;
}

template <class D, class U>
auto DeviceReplica<D, U>::snapshot() const -> Snapshot {
  Snapshot kept{copy_of(engine_.weights()),
                copy_of(engine_.state()),
                copy_of(engine_.gradients()),
                {},
                loss_scale_};
  for (const auto& slot : policy_.slot_buffers()) kept.slot_values.push_back(copy_of(slot));
  if constexpr (KeepsGradients<U>) {
    kept.kept = copy_of(policy_.kept());
    kept.factors = copy_of(policy_.factors());
  }
  return kept;
}

template <class D, class U>
void DeviceReplica<D, U>::restore_snapshot(const Snapshot& kept) {
  engine_.weights().upload(kept.weights.data());
  engine_.state().upload(kept.state.data());
  engine_.gradients().upload(kept.gradients.data());
  for (std::size_t i = 0; i < kept.slot_values.size(); ++i)
    policy_.slot_buffers()[i].upload(kept.slot_values[i].data());
  if constexpr (KeepsGradients<U>) policy_.set_kept(kept.kept.data(), kept.factors.data());
  loss_scale_ = kept.loss_scale;
}

template <class D, class U>
bool DeviceReplica<D, U>::is_finite() {
  [[maybe_unused]] const Slice all{0, plan_->engine.weights};
  if constexpr (HasKernel<GradientPass, D>)
    return sum_is_finite();
  else
    return all_finite(engine_.weights(), shared_or(all)) &&
           all_finite(engine_.gradients(), known_sums());
}

template <class D, class U>
bool DeviceReplica<D, U>::sum_is_finite() {
  [[maybe_unused]] const auto scope = context_->scope();
  if (squares_.size() == 0) squares_ = Buffer<Context, double>(*context_, 1);
  context_->clear(reinterpret_cast<std::byte*>(squares_.data()), squares_.bytes());
  const auto add_squares = [&](T* values, std::span<const Slice> of) {
    for (const Slice& range : of) {
      T* const first = values + range.first;
      run_kernel<D>(GradientPass{}, GradientPassIo<D>{*context_, range.count, first, first, nullptr,
                                                      Penalty{}, squares_.data()});
    }
  };
  const Slice all{0, plan_->engine.weights};
  add_squares(engine_.weights().data(), shared_or(all));
  if constexpr (!ScalesLoss<D>) add_squares(engine_.gradients().data(), known_sums());
  double squares = 0;
  squares_.download(&squares);
  context_->synchronize();
  return detail::is_finite(squares);
}

template <class D, class U>
bool DeviceReplica<D, U>::all_finite(const Buffer<Context, T>& buffer,
                                     std::span<const Slice> of) const {
  const std::vector<T> all = copy_of(buffer);
  return std::all_of(of.begin(), of.end(), [&](const Slice& range) {
    const T* const first = all.data() + range.first;
    return std::all_of(first, first + range.count, [](T v) { return detail::is_finite(v); });
  });
}

/// The batch with its examples in device memory.
template <class D, class U>
auto DeviceReplica<D, U>::on_device(LoadedBatch batch, const ReplicaContext<D>& replica)
    -> LoadedBatch {
  begin(WorkPass::data, "batch");
  if constexpr (!HostDevice<D>)
    if (batch.fetch) return batch.fetch(replica.local, batch.slice);
  for (std::size_t i = 0; i < plan_->fields.size(); ++i) {
    if (batch.field[i] == nullptr) continue;
    const Field& field = plan_->fields[i];
    const std::size_t count = batch.slice.count * field.shape.size();
    const auto slot = static_cast<int>(i);
    batch.field[i] =
        field.type == FieldType::int32
            ? static_cast<const void*>(context_->feed(slot, batch.rows<std::int32_t>(i), count))
            : context_->feed(slot, batch.rows<T>(i), count);
  }
  return batch;
}

template <class D, class U>
auto DeviceReplica<D, U>::infer(const LoadedBatch& batch, const StepContext& context) -> const T* {
  engine_.prepare(batch.slice.count);
  return engine_.forward(input_of(batch), context);
}

template <class D, class U>
void DeviceReplica<D, U>::score_slice(std::size_t i, const T* y, const LoadedBatch& batch,
                                      const LoadedBatch& given, const StepContext& context,
                                      T* gradient, double examples, Score score) {
  begin(WorkPass::loss, "loss");
  score({y, batch, given, context, gradient, examples > 0 ? loss_scale_.value() / examples : 0,
         sums_.data() + (first_slice_ + i) * plan_->sums});
}

/// Adds the penalties of the current weights, all regularizers together, to their place in sums_.
template <class D, class U>
void DeviceReplica<D, U>::add_penalties() {
  if (!plan_->has_penalty) return;
  begin(WorkPass::loss, "penalties");
  const T* const w = engine_.weights().data();
  double* const sum = sums_.data() + state_at_ + state_.size();
  if constexpr (SumsAllPenalties<D>)
    Kernel<Penalty, D>::run_all(penalties_, PenaltyIo<D>{*context_, w, plan_->engine.weights, sum});
  else if constexpr (HasKernel<Penalty, D>)  // optional on devices without regularized models
    for (const PenaltySegment& s : penalties_)
      if (s.penalty)
        run_kernel<D>(s.penalty, PenaltyIo<D>{*context_, w + s.begin, s.end - s.begin, sum});
}

template <class D, class U>
void DeviceReplica<D, U>::clear_sums(const RunRequests& requests) {
  begin(WorkPass::exchange, "sums");
  if (!std::exchange(sums_are_clear_, false))
    context_->clear(reinterpret_cast<std::byte*>(sums_.data()), sums_.bytes());
  const bool has_chief_rate = requests.chief_rate && is_first_;
  if (!requests.stop_now && !requests.end_training && !requests.learning_rate && !requests.admit &&
      !has_chief_rate)
    return;
  SummedRequests asked = SummedRequests::of(requests);
  if (!has_chief_rate) asked.chief_rate = 0;  // the first replica of the job alone sends it
  double* const to = sums_.data() + requests_at_;
  context_->upload(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(&asked),
                   sizeof asked);
  const double rate = SummedRequests::encoded(requests.learning_rate);
  context_->upload(reinterpret_cast<std::byte*>(to + request_count + first_slice_),
                   reinterpret_cast<const std::byte*>(&rate), sizeof rate);
  wait();
}

/// Exchanges the last bucket together with the sums. A slice's sums are zero except in the replica
/// that computed the slice, so a collective's order of additions cannot change them; `sums` merges
/// them later, in the order of slices.
template <class D, class U>
void DeviceReplica<D, U>::exchange_sums(const ReplicaContext<D>& replica, Slice last,
                                        std::size_t state_size) {
  begin_exchange();
  policy_.finish(replica, last, sums_.data(), state_at_, state_size);
  if constexpr (ScalesLoss<D>)
    if (last.count > 0)
      for (const Slice& range : policy_.owned())
        loss_scale_.unscale(*context_, engine_.gradients().data() + range.first, range.count,
                            sums_.data() + sums_.size() - 1);
  if (pending_ == pending_sums_.size()) pending_sums_.emplace_back(sums_.size());
  last_ = pending_++;
  begin(WorkPass::exchange, "sums");
  if constexpr (requires { context_->download_and_clear(nullptr, nullptr, 0); })
    if (state_.size() == 0) {  // otherwise write_mean still reads sums_
      context_->download_and_clear(reinterpret_cast<std::byte*>(last_sums().data()),
                                   reinterpret_cast<std::byte*>(sums_.data()), sums_.bytes());
      sums_are_clear_ = true;
      return;
    }
  sums_.download(last_sums().data());
}

}  // namespace lockstep::detail
