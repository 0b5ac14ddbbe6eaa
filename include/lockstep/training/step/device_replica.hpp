/// \file
/// What of a replica depends on its device and its targets alone: the order of a step, its sums,
/// its exchange. Invariants: all replicas make the same calls in the same order, also with no
/// example; after `update` all hold the same weights.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/concepts/loaded_batch.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/finite.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/model/engine.hpp"
#include "lockstep/training/step/any_replicas.hpp"
#include "lockstep/training/step/loss_scale.hpp"
#include "lockstep/training/step/state_average.hpp"
#include "lockstep/training/step/updates.hpp"

namespace lockstep::detail {

/// What of a model its replicas need.
template <class D>
struct ReplicaPlan {
  EnginePlan<D> engine;
  TrainedState state;
  std::span<const PenaltySegment> penalties;
  bool has_penalty;
  std::size_t target;  ///< elements of an example's
  std::size_t sums;    ///< of a slice: the loss, then each metric's state
};

/// What of its strategy and its optimizer a replica needs.
struct ReplicaPlace {
  std::size_t slices, first, mine;  ///< of each batch; those of this replica
  bool is_alone;                    ///< no exchange changes its gradients
  bool updates_by_elements;         ///< the optimizer sees each gradient by itself
  std::size_t slots, own_slots;     ///< see slot_count; those of the optimizer itself
  const UpdateOptions& options;
  double weight_decay;
  std::span<const UpdateSegment> segments;  ///< outlive the replica
};

template <class D, class Target>
class DeviceReplica {
 public:
  using T = typename D::real;
  using Context = typename D::Context;
  using Batch = LoadedBatch<T, Target>;
  static constexpr std::size_t flags = 2;
  /// The loss, summed over examples, then each metric's state.
  using Sums = std::vector<double>;

  /// `plan` outlives it.
  [[gnu::cold]] DeviceReplica(Context& context, const ReplicaPlan<D>& plan,
                              const ReplicaPlace& place);
  DeviceReplica(const DeviceReplica&) = delete;
  DeviceReplica& operator=(const DeviceReplica&) = delete;
  [[gnu::cold]] ~DeviceReplica();

  /// Waits for all that was asked of the device: the numbers of the steps have then arrived.
  void wait() {
    begin_work(*context_, {});
    wait_guarded([&] { wait_for(*context_); });
  }
  /// \throws what kernels have found wrong before the last wait. Also outside of the device's
  /// scope.
  void throw_device_error() { check_errors(*context_); }
  void clear_pending_sums() { pending_ = 0; }
  /// Of the i-th step, of training or evaluation, since then: the sums over its global batch.
  const Sums& sums(std::size_t i);
  /// The penalties of the weights that it met.
  double penalty(std::size_t i) const { return pending_sums_[i][state_at_ + state_.size()]; }

  /// Gradients that are kept beside the engine's, for slices that wait for others.
  std::size_t partial_gradients() const { return partial_gradients_.size(); }
  PlanEngine<D>& engine() { return engine_; }
  const LossScale<D>& loss_scale() const { return loss_scale_; }
  /// The loss of each slice of the last step's global batch, summed over examples.
  double slice_loss(std::size_t slice) const { return last_sums()[slice * plan_->sums]; }
  /// What any process asked for before the last step.
  RunRequests agreed_requests() const;
  void clear_requests() {
    std::fill_n(last_sums().data() + requests_at_, state_at_ - requests_at_, 0.0);
  }
  /// Between steps.
  [[gnu::cold]] void exchange_requests(RunRequests requests, const ReplicaContext<D>& replica);
  /// See TrainingControl; between steps, outside of the device's scope. A sum of squares in double
  /// is finite exactly if all floats are.
  [[gnu::cold]] bool is_finite();
  const std::vector<Buffer<Context, T>>& slots() const { return slots_; }
  /// What a buffer of this replica holds; also between steps, outside of the device's scope.
  std::vector<T> copy_of(const Buffer<Context, T>& buffer) const;

  /// All that training changes.
  struct Snapshot {
    std::vector<T> weights, state, gradients;
    std::vector<std::vector<T>> slots;
    LossScale<D> loss_scale;
  };
  [[gnu::cold]] Snapshot snapshot() const;
  /// In the device's scope.
  [[gnu::cold]] void restore_snapshot(const Snapshot& kept);

 protected:
  /// Outputs of a slice, and where its loss and metrics go.
  struct Scored {
    const T* y;
    const Batch& batch;
    T* gradient;  ///< null: not wanted
    double scale;
    double* sums;
  };
  using Score = FunctionRef<void(const Scored&)>;
  using SliceOf = FunctionRef<Batch(std::size_t)>;

  void train(SliceOf slice, std::uint64_t seed, std::uint64_t step, const RunRequests& requests,
             const ReplicaContext<D>& replica, Score score, UpdateRef<T> update, bool waits,
             FunctionRef<void(Phase)> note);
  void evaluate(SliceOf slice, std::uint64_t seed, const RunRequests& requests,
                const ReplicaContext<D>& replica, Score score);
  void predict(T* out, const Batch& batch, std::uint64_t seed, const ReplicaContext<D>& replica);

  /// The parts of the weights whose gradients are `count` from g on, for the optimizer's kernel.
  std::span<const UpdateIo<D>> parts_of(double rate, T* g, std::size_t count);
  /// What the device computes next, if it is not a layer.
  void begin(WorkPass pass, const char* part) {
    begin_work(*context_,
               {.pass = trains_ ? pass : WorkPass::evaluation, .part = part, .step = step_});
  }
  // Not inlined: there g++ 12 warns of an absent rate.
  [[gnu::noinline]] static double rate_of(const RunRequests& requests, double rate) {
    return requests.learning_rate.value_or(rate);
  }

 private:
  using State = StateAverage<D>;

  [[gnu::cold]] static std::vector<Buffer<Context, T>> make_buffers(Context& context,
                                                                    std::size_t count,
                                                                    std::size_t size);
  [[gnu::cold]] bool sum_is_finite();
  [[gnu::cold]] bool all_finite(const Buffer<Context, T>& buffer) const;
  void begin_exchange() {
    if (exchanges_) begin(WorkPass::exchange, "gradients");
  }
  Batch on_device(Batch batch, const ReplicaContext<D>& replica);
  const T* infer(const Batch& batch, std::uint64_t seed, const ReplicaContext<D>& replica);
  void score_slice(std::size_t i, const T* y, const Batch& batch, T* gradient, Score score);
  void add_penalties();
  /// If what is under way fails, nobody knows what the sums are.
  template <class Wait>
  void wait_guarded(const Wait& wait) {
    const bool are_clear = std::exchange(sums_are_clear_, false);
    wait();
    sums_are_clear_ = are_clear;
  }
  void clear_sums(const RunRequests& requests);
  // The gradients of slices are added in one binary tree over all slices of the batch, as carries
  // in a binary number: after slice i, branch b holds the sum of 2^b slices where bit b of i + 1
  // is set.
  void carry_partial(std::size_t i) {
    std::size_t b = 0;
    for (; (i >> b & 1) != 0; ++b) add_partial(b, {0, plan_->engine.weights});
    engine_.swap_gradients(partial_gradients_[b]);
  }
  /// After the last slice: the gradients in the bucket become those of all slices of this replica.
  void add_partials(const Bucket& bucket) {
    for (std::size_t b = 0; b < partial_gradients_.size(); ++b) add_partial(b, bucket);
  }
  void add_partial(std::size_t b, const Bucket& range) {
    context_->add(engine_.gradients().data() + range.begin,
                  partial_gradients_[b].data() + range.begin, range.end - range.begin);
  }

  void exchange_sums(const ReplicaContext<D>& replica, const Bucket& last,
                     std::size_t state_size = 0);

 protected:
  /// The last step's numbers.
  std::vector<double>& last_sums() { return pending_sums_[last_]; }
  const std::vector<double>& last_sums() const { return pending_sums_[last_]; }

  const ReplicaPlan<D>* plan_;
  Context* context_;
  PlanEngine<D> engine_;
  std::vector<Buffer<Context, T>> slots_;
  Updates<D> updates_;
  std::size_t own_slots_;
  std::vector<UpdateIo<D>> parts_;  // of an update
  State state_;
  std::vector<Buffer<Context, T>> partial_gradients_;  // gradients of slices that wait for others
  static constexpr double zero_rate = -1;              // since 0 says that nobody asked
  std::size_t requests_at_, state_at_;
  // Of each slice of the batch; then RunRequests: two flags, and the rate, in the place of a replica's
  // first slice, so that the lowest one's counts; then of the state; then, not exchanged, the
  // penalties, and how many gradients are not finite.
  Buffer<Context, double> sums_;
  bool sums_are_clear_ = true;
  [[no_unique_address]] LossScale<D> loss_scale_;
  std::size_t first_slice_, slices_;
  bool exchanges_;                                 // with other slices or replicas
  bool updates_in_backward_;                       // by backward
  std::vector<std::vector<double>> pending_sums_;  // sums_ after each step that was not taken
  std::size_t pending_ = 0, last_ = 0;
  std::uint64_t step_ = 0;  // for messages, as the next one
  bool trains_ = false;
  Buffer<Context, double> squares_;  // one, of is_finite
  Sums host_sums_;
};

template <class D, class Target>
DeviceReplica<D, Target>::DeviceReplica(Context& context, const ReplicaPlan<D>& plan,
                                        const ReplicaPlace& place)
    : plan_(&plan),
      context_(&context),
      engine_(context, plan.engine),
      slots_(make_buffers(context, place.slots, plan.engine.weights)),
      updates_(context, place.options, place.weight_decay, place.segments,
               slots_.data() + place.own_slots),
      own_slots_(place.own_slots),
      state_(context, plan.state, place.slices, place.mine),
      requests_at_(place.slices * plan.sums),
      state_at_(requests_at_ + flags + place.slices),
      sums_(context, state_at_ + state_.size() + 1 + LossScale<D>::sums, Exchanged{}),
      first_slice_(place.first),
      slices_(place.mine),
      exchanges_(!place.is_alone || place.slices > 1),
      updates_in_backward_(place.updates_by_elements && !plan.has_penalty && place.is_alone &&
                           place.slices == 1 && updates_.is_by_parts()),
      pending_sums_(1, std::vector<double>(sums_.size())) {
  std::size_t depth = 0;
  for (std::size_t n = 1; n < place.mine; n *= 2) ++depth;
  partial_gradients_ = make_buffers(context, depth, plan.engine.weights);
}
template <class D, class Target>
DeviceReplica<D, Target>::~DeviceReplica() = default;

template <class D, class Target>
void DeviceReplica<D, Target>::train(SliceOf slice, std::uint64_t seed, std::uint64_t step,
                                     const RunRequests& requests, const ReplicaContext<D>& replica,
                                     Score score, UpdateRef<T> update, bool waits,
                                     FunctionRef<void(Phase)> note) {
  step_ = step;
  trains_ = true;
  const Batch first = on_device(slice(0), replica);  // before all else: it may have to wait
  clear_sums(requests);
  add_penalties();
  if (state_.is_on()) begin(WorkPass::forward, "state");
  typename State::Rollback rollback(state_, engine_.state());
  Bucket last{};
  for (std::size_t i = 0; i < slices_; ++i) {
    const Batch batch = i == 0 ? first : on_device(slice(i), replica);
    const StepContext context{batch.slice, true, seed, step, replica.group};
    note(Phase::forward);
    engine_.prepare(context.count);
    const T* const x = batch.x;
    const T* const y = engine_.forward(x, context);
    score_slice(i, y, batch, engine_.output_gradient(), score);
    note(Phase::backward);
    engine_.backward(
        x, context,
        [&](const Bucket& b) {
          if (i + 1 < slices_) return;
          begin_exchange();
          add_partials(b);
          if (b.begin > 0)
            replica.exchange.post(engine_.gradients().data() + b.begin, b.end - b.begin);
          else
            last = b;
        },
        update);
    begin_exchange();
    if (i + 1 < slices_) carry_partial(i);
    state_.add(i, context.count, i + 1 == slices_, engine_.state(), sums_.data() + state_at_);
  }
  note(Phase::reduce);
  exchange_sums(replica, last, state_.size());
  if (waits) wait();
  if (state_.is_on()) begin(WorkPass::exchange, "state");
  state_.write_mean(sums_.data() + state_at_, first.slice.global_count, engine_.state());
  rollback.commit();
  note(Phase::update);
}

template <class D, class Target>
void DeviceReplica<D, Target>::evaluate(SliceOf slice, std::uint64_t seed,
                                        const RunRequests& requests,
                                        const ReplicaContext<D>& replica, Score score) {
  trains_ = false;
  const WorkWithin within(*context_, {});  // also an error ends it
  begin(WorkPass::exchange, "sums");
  clear_sums(requests);
  add_penalties();
  for (std::size_t i = 0; i < slices_; ++i) {
    const Batch batch = on_device(slice(i), replica);
    score_slice(i, infer(batch, seed, replica), batch, nullptr, score);
  }
  exchange_sums(replica, {});
  begin_work(*context_, {});
  wait_guarded([&] { context_->synchronize(); });
}

template <class D, class Target>
void DeviceReplica<D, Target>::predict(T* out, const Batch& batch, std::uint64_t seed,
                                       const ReplicaContext<D>& replica) {
  trains_ = false;
  const WorkWithin within(*context_, {});
  const T* const y = infer(on_device(batch, replica), seed, replica);
  context_->download(reinterpret_cast<std::byte*>(out), reinterpret_cast<const std::byte*>(y),
                     batch.slice.count * plan_->engine.output * sizeof(T));
  begin_work(*context_, {});
  context_->synchronize();
}

template <class D, class Target>
auto DeviceReplica<D, Target>::parts_of(double rate, T* g, std::size_t count)
    -> std::span<const UpdateIo<D>> {
  T* const w = engine_.weights().data();
  T* const gradients = engine_.gradients().data();
  const auto first = static_cast<std::size_t>(g - gradients);
  parts_.clear();
  for (std::size_t i = 0; i < updates_.segments(); ++i) {
    const UpdateSegment& s = updates_.segment(i);
    const std::size_t begin = std::max(s.begin, first), end = std::min(s.end, first + count);
    if (begin >= end) continue;
    UpdateIo<D> io = updates_.io(i, rate, w, gradients);
    io.size = end - begin;
    io.w += begin - s.begin;
    io.g += begin - s.begin;
    for (std::size_t k = 0; k < own_slots_; ++k) io.slot[k] = slots_[k].data() + begin;
    parts_.push_back(io);
  }
  return parts_;
}

template <class D, class Target>
auto DeviceReplica<D, Target>::make_buffers(Context& context, std::size_t count, std::size_t size)
    -> std::vector<Buffer<Context, T>> {
  std::vector<Buffer<Context, T>> buffers(count);
  for (Buffer<Context, T>& buffer : buffers) buffer = Buffer<Context, T>(context, size);
  return buffers;
}

template <class D, class Target>
void DeviceReplica<D, Target>::exchange_requests(RunRequests requests,
                                                 const ReplicaContext<D>& replica) {
  clear_sums(requests);
  exchange_sums(replica, {});
  wait_guarded([&] { context_->synchronize(); });
  --pending_;  // no step
}

template <class D, class Target>
auto DeviceReplica<D, Target>::sums(std::size_t i) -> const Sums& {
  host_sums_.resize(plan_->sums);
  std::fill(host_sums_.begin(), host_sums_.end(), 0.0);
  for (std::size_t k = 0; k < requests_at_; ++k) host_sums_[k % plan_->sums] += pending_sums_[i][k];
  return host_sums_;
}

template <class D, class Target>
RunRequests DeviceReplica<D, Target>::agreed_requests() const {
  const std::span<const double> asked(last_sums().data() + requests_at_, state_at_ - requests_at_);
  RunRequests result{asked[0] > 0, asked[1] > 0};
  for (const double rate : asked.subspan(flags))
    if (rate != 0 && !result.learning_rate) result.learning_rate = rate == zero_rate ? 0 : rate;
  return result;
}

template <class D, class Target>
auto DeviceReplica<D, Target>::copy_of(const Buffer<Context, T>& buffer) const -> std::vector<T> {
  [[maybe_unused]] const auto scope = context_->scope();
  std::vector<T> host(buffer.size());
  buffer.download(host.data());
  context_->synchronize();
  return host;
}

template <class D, class Target>
auto DeviceReplica<D, Target>::snapshot() const -> Snapshot {
  Snapshot kept{copy_of(engine_.weights()),
                copy_of(engine_.state()),
                copy_of(engine_.gradients()),
                {},
                loss_scale_};
  for (const auto& slot : slots_) kept.slots.push_back(copy_of(slot));
  return kept;
}

template <class D, class Target>
void DeviceReplica<D, Target>::restore_snapshot(const Snapshot& kept) {
  engine_.weights().upload(kept.weights.data());
  engine_.state().upload(kept.state.data());
  engine_.gradients().upload(kept.gradients.data());
  for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].upload(kept.slots[i].data());
  loss_scale_ = kept.loss_scale;
}

template <class D, class Target>
bool DeviceReplica<D, Target>::is_finite() {
  if constexpr (HasKernel<GradientPass, D>)
    return sum_is_finite();
  else
    return all_finite(engine_.weights()) && all_finite(engine_.gradients());
}

template <class D, class Target>
bool DeviceReplica<D, Target>::sum_is_finite() {
  [[maybe_unused]] const auto scope = context_->scope();
  if (squares_.size() == 0) squares_ = Buffer<Context, double>(*context_, 1);
  context_->clear(reinterpret_cast<std::byte*>(squares_.data()), squares_.bytes());
  const auto add_squares = [&](T* values) {
    run_kernel<D>(GradientPass{}, GradientPassIo<D>{*context_, plan_->engine.weights, values,
                                                    values, nullptr, Penalty{}, squares_.data()});
  };
  add_squares(engine_.weights().data());
  if constexpr (!ScalesLoss<D>) add_squares(engine_.gradients().data());
  double squares = 0;
  squares_.download(&squares);
  context_->synchronize();
  return detail::is_finite(squares);
}

template <class D, class Target>
bool DeviceReplica<D, Target>::all_finite(const Buffer<Context, T>& buffer) const {
  const std::vector<T> all = copy_of(buffer);
  return std::all_of(all.begin(), all.end(), [](T v) { return detail::is_finite(v); });
}

/// The batch with its examples in the device's memory.
template <class D, class Target>
auto DeviceReplica<D, Target>::on_device(Batch batch, const ReplicaContext<D>& replica) -> Batch {
  begin(WorkPass::data, "batch");
  if constexpr (!HostDevice<D>)
    if (batch.fetch) return batch.fetch(replica.local, batch.slice);
  const std::size_t count = batch.slice.count;
  batch.x = context_->feed(0, batch.x, count * plan_->engine.input);
  if (batch.y != nullptr) batch.y = context_->feed(1, batch.y, count * plan_->target);
  if (batch.w != nullptr) batch.w = context_->feed(2, batch.w, count);
  return batch;
}

template <class D, class Target>
auto DeviceReplica<D, Target>::infer(const Batch& batch, std::uint64_t seed,
                                     const ReplicaContext<D>& replica) -> const T* {
  engine_.prepare(batch.slice.count);
  return engine_.forward(batch.x, StepContext{batch.slice, false, seed, 0, replica.group});
}

template <class D, class Target>
void DeviceReplica<D, Target>::score_slice(std::size_t i, const T* y, const Batch& batch,
                                           T* gradient, Score score) {
  begin(WorkPass::loss, "loss");
  score({y, batch, gradient, loss_scale_.value() / static_cast<double>(batch.slice.global_count),
         sums_.data() + (first_slice_ + i) * plan_->sums});
}

/// Sum of all penalties of the weights as they are.
template <class D, class Target>
void DeviceReplica<D, Target>::add_penalties() {
  if (!plan_->has_penalty) return;
  begin(WorkPass::loss, "penalties");
  const T* const w = engine_.weights().data();
  double* const sum = sums_.data() + state_at_ + state_.size();
  if constexpr (SumsAllPenalties<D>)
    Kernel<Penalty, D>::run_all(plan_->penalties,
                                PenaltyIo<D>{*context_, w, plan_->engine.weights, sum});
  else if constexpr (HasKernel<Penalty, D>)  // needed only by who has penalties
    for (const PenaltySegment& s : plan_->penalties)
      if (s.penalty)
        run_kernel<D>(s.penalty, PenaltyIo<D>{*context_, w + s.begin, s.end - s.begin, sum});
}

template <class D, class Target>
void DeviceReplica<D, Target>::clear_sums(const RunRequests& requests) {
  begin(WorkPass::exchange, "sums");
  if (!std::exchange(sums_are_clear_, false))
    context_->clear(reinterpret_cast<std::byte*>(sums_.data()), sums_.bytes());
  if (!requests.stop_now && !requests.end_training && !requests.learning_rate) return;
  const double asked[flags] = {requests.stop_now ? 1.0 : 0.0, requests.end_training ? 1.0 : 0.0};
  context_->upload(reinterpret_cast<std::byte*>(sums_.data() + requests_at_),
                   reinterpret_cast<const std::byte*>(asked), sizeof asked);
  const double rate =
      requests.learning_rate == 0.0 ? zero_rate : requests.learning_rate.value_or(0);
  context_->upload(reinterpret_cast<std::byte*>(sums_.data() + requests_at_ + flags + first_slice_),
                   reinterpret_cast<const std::byte*>(&rate), sizeof rate);
  wait();
}

/// The last bucket's exchange, with the sums. A slice's sums are zero but in the replica that
/// computed it, so that no collective's order of additions can change them; they are merged here,
/// in the order of slices.
template <class D, class Target>
void DeviceReplica<D, Target>::exchange_sums(const ReplicaContext<D>& replica, const Bucket& last,
                                             std::size_t state_size) {
  begin_exchange();
  replica.exchange.finish(engine_.gradients().data() + last.begin, last.end - last.begin,
                          sums_.data(), state_at_ + state_size);
  if constexpr (ScalesLoss<D>)
    if (last.end > 0)
      loss_scale_.unscale(*context_, engine_.gradients().data(), plan_->engine.weights,
                          sums_.data() + sums_.size() - 1);
  if (pending_ == pending_sums_.size()) pending_sums_.emplace_back(sums_.size());
  last_ = pending_++;
  begin(WorkPass::exchange, "sums");
  if constexpr (requires { context_->download_and_clear(nullptr, nullptr, 0); })
    if (state_.size() == 0) {  // else they are still read
      context_->download_and_clear(reinterpret_cast<std::byte*>(last_sums().data()),
                                   reinterpret_cast<std::byte*>(sums_.data()), sums_.bytes());
      sums_are_clear_ = true;
      return;
    }
  sums_.download(last_sums().data());
}

}  // namespace lockstep::detail
