/// \file
/// One replica's share of a training step. Invariants: all replicas make the same calls in the same
/// order, also with no example; after `update` all hold the same weights.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/concepts/batch.hpp"
#include "lockstep/concepts/loss.hpp"
#include "lockstep/concepts/metric.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/finite.hpp"
#include "lockstep/metrics/weighted.hpp"
#include "lockstep/model/engine.hpp"
#include "lockstep/training/parameters.hpp"
#include "lockstep/training/step/loss_scale.hpp"
#include "lockstep/training/step/state_average.hpp"
#include "lockstep/training/step/updates.hpp"

namespace lockstep::detail {

template <class Net, class D, class L, class O, class... Ms>
class Replica {
 public:
  using T = typename D::real;
  using Context = typename D::Context;
  using Target = target_as<typename L::target_type, T>;
  using Batch = LoadedBatch<T, Target>;
  static constexpr std::size_t sum_count = (1 + ... + Ms::state_size), flags = 2;
  /// The loss, summed over examples, then each metric's state: `sum_count` of them.
  using Sums = std::vector<double>;

  /// Computes `mine` slices of each batch, from slice number `first` of `slices` on. `is_alone`: no
  /// exchange changes its gradients.
  /// `segments` outlive it.
  [[gnu::cold]] Replica(Context& context, const O& optimizer,
                        std::span<const UpdateSegment> segments, std::size_t slices,
                        std::size_t first, std::size_t mine, bool is_alone)
      : context_(&context),
        engine_(context),
        slots_(make_slots(context, optimizer)),
        updates_(context, options_of(optimizer), weight_decay_of(optimizer), segments,
                 slots_.data() + optimizer.slots()),
        state_(context, slices, mine),
        stop_at_(slices * sum_count),
        state_at_(stop_at_ + flags + slices),
        sums_(context, state_at_ + state_.size() + 1 + LossScale<D>::sums, Exchanged{}),
        first_slice_(first),
        slices_(mine),
        exchanges_(!is_alone || slices > 1),
        updates_at_once_(updates_by_elements && !has_penalty && is_alone && slices == 1 &&
                         updates_.is_by_parts()),
        arrivals_(1, std::vector<double>(sums_.size())) {
    std::size_t branches = 0;
    for (std::size_t n = 1; n < mine; n *= 2) ++branches;
    branches_ = make_buffers(context, branches);
  }

  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;
  [[gnu::cold, gnu::noinline]] ~Replica() {}

  /// What one process asks for and all must do after the same step: it travels with the sums.
  struct Stop {
    bool now = false;              ///< the stop token: the epoch is not finished
    bool training = false;         ///< a callback: this epoch is the last
    std::optional<double> rate{};  ///< a callback: the learning rate from this step's update on
  };

  /// Forward, loss, metrics, backward of each slice, and the exchange. Afterwards the gradients are
  /// those of the whole global batch, without penalties, and its sums are on their way, or have
  /// come if it `waits`: then what other processes did not do leaves no trace. `slice(i)` is the
  /// i-th of this replica's, and `note(phase)` is told how far it is. With one replica and slice
  /// the weights may already be updated at `rate`.
  template <class SliceOf, class Note>
  void gradients_of(const SliceOf& slice, std::uint64_t seed, std::uint64_t step, Stop stop,
                    const ReplicaContext<D>& replica, const L& loss,
                    const std::tuple<Ms...>& metrics, const O& optimizer, double rate, bool waits,
                    const Note& note) {
    step_ = step;
    trains_ = true;
    const Batch first = on_device(slice(0), replica);  // before all else: it may have to wait
    clear_sums(stop);
    add_penalties();
    AtOnce at_once{this, &optimizer, rate_of(stop, rate), step + 1};
    if constexpr (State::is_on) begin(WorkPass::forward, "state");
    typename State::Step undo(state_, engine_.state());
    Bucket last{};
    for (std::size_t i = 0; i < slices_; ++i) {
      const Batch batch = i == 0 ? first : on_device(slice(i), replica);
      const StepContext context{batch.slice, true, seed, step, replica.group};
      note(Phase::forward);
      engine_.prepare(context.count);
      const T* const x = batch.x;
      const T* const y = engine_.forward(x, context);
      score(y, batch, i, engine_.output_gradient(), loss, metrics);
      note(Phase::backward);
      engine_.backward(
          x, context,
          [&](const Bucket& b) {
            if (i + 1 < slices_) return;
            begin_exchange();
            add_branches(b);
            if (b.begin > 0)
              replica.exchange.post(engine_.gradients().data() + b.begin, b.end - b.begin);
            else
              last = b;
          },
          at_once.reference());
      begin_exchange();
      if (i + 1 < slices_) keep_branch(i);
      state_.add(i, context.count, i + 1 == slices_, engine_.state(), sums_.data() + state_at_);
    }
    note(Phase::reduce);
    exchange_sums(replica, last, state_.size());
    if (waits) wait();
    if constexpr (State::is_on) begin(WorkPass::exchange, "state");
    state_.take(sums_.data() + state_at_, first.slice.global_count, engine_.state());
    undo.done();
    note(Phase::update);
  }

  /// Forward, loss, metrics, exchange of the sums.
  template <class SliceOf>
  void test(const SliceOf& slice, std::uint64_t seed, Stop stop, const ReplicaContext<D>& replica,
            const L& loss, const std::tuple<Ms...>& metrics) {
    trains_ = false;
    const WorkWithin within(*context_, {});  // also an error ends it
    begin(WorkPass::exchange, "sums");
    clear_sums(stop);
    add_penalties();
    for (std::size_t i = 0; i < slices_; ++i) {
      const Batch batch = on_device(slice(i), replica);
      score(infer(batch, seed, replica), batch, i, nullptr, loss, metrics);
    }
    exchange_sums(replica, {});
    begin_work(*context_, {});
    waiting([&] { context_->synchronize(); });
  }

  /// Writes the outputs for a slice's examples to `out` on the host.
  void predict_to(T* out, const Batch& batch, std::uint64_t seed,
                  const ReplicaContext<D>& replica) {
    trains_ = false;
    const WorkWithin within(*context_, {});
    const T* const y = infer(on_device(batch, replica), seed, replica);
    context_->download(reinterpret_cast<std::byte*>(out), reinterpret_cast<const std::byte*>(y),
                       batch.slice.count * Net::output_shape.size() * sizeof(T));
    begin_work(*context_, {});
    context_->synchronize();
  }

  /// One pass of the optimizer over the flat buffers, unless backward has made it, and what its
  /// options ask for; `step` counts from 1. Nothing, if gradients overflowed: see LossScale.
  // Cold: all but the kernels' work is little.
  [[gnu::cold]] void update(const O& optimizer, double rate, std::uint64_t step) {
    begin(WorkPass::update, "optimizer");
    T* const w = engine_.weights().data();
    T* const g = engine_.gradients().data();
    if constexpr (ScalesLoss<D>) {
      wait();
      begin(WorkPass::update, "optimizer");
      if (!loss_scale_.makes_step(arrived().back())) return;
      step -= loss_scale_.skipped();
    }
    if constexpr (TakesOptions<O>)
      if (!updates_.begin(step, w, g)) return updates_.end(step, w);
    if (!updates_at_once_)
      update_part(optimizer.op(rate, updates_.number(step)), optimizer.slots(), rate, g,
                  Net::graph.weights);
    if constexpr (TakesOptions<O>) updates_.end(step, w);
  }
  /// The weights become their moving averages, if the optimizer keeps such.
  void take_average() {
    if constexpr (TakesOptions<O>) updates_.take_average(engine_.weights().data());
  }

  /// What the optimizer keeps becomes that of a new model.
  [[gnu::cold]] void reset_optimizer(const O& optimizer) {
    for (const auto& slot : slots_)
      if (slot.size() > 0) context_->clear(reinterpret_cast<std::byte*>(slot.data()), slot.bytes());
    start_slots(*context_, optimizer, slots_);
    context_->synchronize();
    loss_scale_ = {};
  }

  /// Waits for all that was asked of the device: the numbers of the steps have then arrived.
  void wait() {
    begin_work(*context_, {});
    waiting([&] { wait_for(*context_); });
  }
  /// \throws what kernels have found wrong before the last wait. Also outside of the device's
  /// scope.
  void look() { look_at(*context_); }
  void forget_arrivals() { arrived_ = 0; }
  /// Of the i-th step, of training or evaluation, since then: the sums over its global batch.
  const Sums& sums(std::size_t i) {
    std::fill(host_sums_.begin(), host_sums_.end(), 0.0);
    for (std::size_t k = 0; k < stop_at_; ++k) host_sums_[k % sum_count] += arrivals_[i][k];
    return host_sums_;
  }
  /// The penalties of the weights that it met.
  double penalty(std::size_t i) const { return arrivals_[i][state_at_ + state_.size()]; }

  /// Gradients that are kept beside the engine's, for slices that wait for others.
  std::size_t branches() const { return branches_.size(); }
  Engine<Net, D>& engine() { return engine_; }
  const LossScale<D>& loss_scale() const { return loss_scale_; }
  LossScale<D>& loss_scale() { return loss_scale_; }
  /// The loss of each slice of the last step's global batch, summed over examples.
  double slice_loss(std::size_t slice) const { return arrived()[slice * sum_count]; }
  /// What any process asked for before the last step.
  Stop stop() const {
    const std::span<const double> asked(arrived().data() + stop_at_, state_at_ - stop_at_);
    Stop result{asked[0] > 0, asked[1] > 0};
    for (const double rate : asked.subspan(flags))
      if (rate != 0 && !result.rate) result.rate = rate == zero_rate ? 0 : rate;
    return result;
  }
  void forget_stop() { std::fill_n(arrived().data() + stop_at_, state_at_ - stop_at_, 0.0); }
  /// Between steps.
  void exchange_stop(Stop own, const ReplicaContext<D>& replica) {
    clear_sums(own);
    exchange_sums(replica, {});
    waiting([&] { context_->synchronize(); });
    --arrived_;  // no step
  }
  /// See TrainingControl; between steps, outside of the device's scope. A sum of squares in double
  /// is finite exactly if all floats are.
  [[gnu::cold]] bool is_finite() {
    if constexpr (HasKernel<GradientPass, D>)
      return sum_is_finite();
    else
      return all_finite(engine_.weights()) && all_finite(engine_.gradients());
  }
  const std::vector<Buffer<Context, T>>& slots() const { return slots_; }
  /// What a buffer of this replica holds; also between steps, outside of the device's scope.
  std::vector<T> copy_of(const Buffer<Context, T>& buffer) const {
    [[maybe_unused]] const auto scope = context_->scope();
    std::vector<T> host(buffer.size());
    buffer.download(host.data());
    context_->synchronize();
    return host;
  }

 private:
  using State = StateAverage<Net, D>;
  using UpdateOp = std::remove_cvref_t<decltype(std::declval<const O&>().op(0.0, 1))>;
  static constexpr bool updates_by_elements =
      ElementwiseUpdate<UpdateOp> && HostDevice<D> && !ScalesLoss<D>;
  static constexpr auto penalties = penalty_segments<Net>();
  static constexpr bool has_penalty = [] {
    for (const PenaltySegment& s : penalties)
      if (s.penalty) return true;
    return false;
  }();

  [[gnu::cold]] bool sum_is_finite() {
    [[maybe_unused]] const auto scope = context_->scope();
    if (squares_.size() == 0) squares_ = Buffer<Context, double>(*context_, 1);
    context_->clear(reinterpret_cast<std::byte*>(squares_.data()), squares_.bytes());
    const auto add_squares = [&](T* values) {
      run_kernel<D>(GradientPass{}, GradientPassIo<D>{*context_, Net::graph.weights, values, values,
                                                      nullptr, Penalty{}, squares_.data()});
    };
    add_squares(engine_.weights().data());
    if constexpr (!ScalesLoss<D>) add_squares(engine_.gradients().data());
    double squares = 0;
    squares_.download(&squares);
    context_->synchronize();
    return detail::is_finite(squares);
  }
  [[gnu::cold]] bool all_finite(const Buffer<Context, T>& buffer) const {
    const std::vector<T> all = copy_of(buffer);
    return std::all_of(all.begin(), all.end(), [](T v) { return detail::is_finite(v); });
  }

  // Not inlined: there g++ 12 warns of an absent rate.
  [[gnu::noinline]] static double rate_of(const Stop& stop, double rate) {
    return stop.rate.value_or(rate);
  }

  /// The update of a step, whose gradients come in parts.
  struct AtOnce {
    Replica* replica;
    const O* optimizer;
    double rate;
    std::uint64_t step;
    std::optional<UpdateOp> op{};  // made once a step: it may be work

    UpdateRef<T> reference() {
      if (!replica->updates_at_once_) return {};
      op.emplace(optimizer->op(rate, replica->updates_.number(step)));
      return *this;
    }
    void operator()(T* g, std::size_t count) const {
      const WorkWithin within(
          *replica->context_,
          {.pass = WorkPass::update, .part = "optimizer", .step = replica->step_});
      replica->update_part(*op, optimizer->slots(), rate, g, count);
    }
  };
  /// The optimizer's own pass over the weights whose gradients are `count` from g on.
  void update_part(const UpdateOp& op, std::size_t slots, double rate, T* g, std::size_t count) {
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
      for (std::size_t k = 0; k < slots; ++k) io.slot[k] = slots_[k].data() + begin;
      if constexpr (UpdatesAll<UpdateOp, D>)
        parts_.push_back(io);
      else
        run_kernel<D>(op, io);
    }
    if constexpr (UpdatesAll<UpdateOp, D>) Kernel<UpdateOp, D>::update_all(op, parts_);
  }

  [[gnu::cold]] static std::vector<Buffer<Context, T>> make_buffers(Context& context,
                                                                    std::size_t count) {
    std::vector<Buffer<Context, T>> buffers(count);
    for (Buffer<Context, T>& buffer : buffers)
      buffer = Buffer<Context, T>(context, Net::graph.weights);
    return buffers;
  }
  [[gnu::cold]] static std::vector<Buffer<Context, T>> make_slots(Context& context,
                                                                  const O& optimizer) {
    std::vector<Buffer<Context, T>> slots = make_buffers(context, slot_count(optimizer));
    start_slots(context, optimizer, slots);
    return slots;
  }
  /// Cleared slots get the optimizer's first values.
  [[gnu::cold]] static void start_slots(Context& context, const O& optimizer,
                                        const std::vector<Buffer<Context, T>>& slots) {
    if constexpr (requires { optimizer.slot_start(0); }) {
      for (std::size_t i = 0; i < optimizer.slots(); ++i)
        slots[i].upload(
            std::vector<T>(Net::graph.weights, static_cast<T>(optimizer.slot_start(i))).data());
      context.synchronize();
    }
  }

  /// What the device computes next, if it is not a layer.
  [[gnu::noinline]] void begin(WorkPass pass, const char* part) {
    begin_work(*context_,
               {.pass = trains_ ? pass : WorkPass::evaluation, .part = part, .step = step_});
  }
  void begin_exchange() {
    if (exchanges_) begin(WorkPass::exchange, "gradients");
  }
  /// The batch with its examples in the device's memory.
  Batch on_device(Batch batch, const ReplicaContext<D>& replica) {
    begin(WorkPass::data, "batch");
    if constexpr (!HostDevice<D>)
      if (batch.fetch) return batch.fetch(replica.local, batch.slice);
    const std::size_t count = batch.slice.count;
    batch.x = context_->feed(0, batch.x, count * Net::input_shape.size());
    if (batch.y != nullptr)
      batch.y = context_->feed(1, batch.y, count * L::target_shape(Net::output_shape).size());
    if (batch.w != nullptr) batch.w = context_->feed(2, batch.w, count);
    return batch;
  }

  const T* infer(const Batch& batch, std::uint64_t seed, const ReplicaContext<D>& replica) {
    engine_.prepare(batch.slice.count);
    return engine_.forward(batch.x, StepContext{batch.slice, false, seed, 0, replica.group});
  }

  /// Where the state of metric I begins, among the sums of a slice.
  template <std::size_t I>
  static constexpr std::size_t first_of = [] {
    std::size_t at = 1, metric = 0;
    ((at += metric++ < I ? Ms::state_size : 0), ...);
    return at;
  }();

  /// Loss and metrics of the outputs y of slice i into its part of sums_; the loss' gradient if
  /// wanted.
  void score(const T* y, const Batch& batch, std::size_t i, T* gradient, const L& loss,
             const std::tuple<Ms...>& metrics) {
    begin(WorkPass::loss, "loss");
    const std::size_t count = batch.slice.count;
    const Target* const target = batch.y;
    const T* const weight = batch.w;
    double* const sums = sums_.data() + (first_slice_ + i) * sum_count;
    using Labels = typename L::target_type;
    const auto loss_op = loss.op(Net::output_shape);
    using LossOp = std::remove_cvref_t<decltype(loss_op)>;
    const LossIo<D, Labels> loss_io{
        *context_, count,    y,
        target,    gradient, loss_scale_.value() / static_cast<double>(batch.slice.global_count),
        sums,      weight};
    // A parameter, since clang 14 looks into what a lambda discards.
    [&]<class Together, std::size_t... I>(Together, std::index_sequence<I...>) {
      const auto ops =
          std::make_tuple(std::get<I>(metrics).template op<Labels>(Net::output_shape)...);
      using OpList = std::remove_const_t<decltype(ops)>;
      const auto io_of = [&](std::size_t at, bool weighted) {
        return MetricIo<D, Labels>{*context_, count,     y,
                                   target,    sums + at, weighted ? weight : nullptr};
      };
      if constexpr (ScoresTogether<D, Labels, LossOp, std::tuple_element_t<I, OpList>...>) {
        Kernel<Together, D>::run(
            loss_op, loss_io,
            MetricCall<std::tuple_element_t<I, OpList>, D, Labels>{
                std::get<I>(ops), io_of(first_of<I>, is_weighted_metric<Ms>)}...);
      } else {
        run_kernel<D>(loss_op, loss_io);
        (run_kernel<D>(std::get<I>(ops), io_of(first_of<I>, is_weighted_metric<Ms>)), ...);
      }
    }(Scores{}, std::index_sequence_for<Ms...>{});
  }

  /// Sum of all penalties of the weights as they are.
  void add_penalties() {
    if constexpr (has_penalty) {
      begin(WorkPass::loss, "penalties");
      const T* const w = engine_.weights().data();
      double* const sum = sums_.data() + state_at_ + state_.size();
      if constexpr (SumsAllPenalties<D>)
        Kernel<Penalty, D>::run_all({penalties.begin(), penalties.size()},
                                    PenaltyIo<D>{*context_, w, Net::graph.weights, sum});
      else
        for (const PenaltySegment& s : penalties)
          if (s.penalty)
            run_kernel<D>(s.penalty, PenaltyIo<D>{*context_, w + s.begin, s.end - s.begin, sum});
    }
  }

  /// If what is under way fails, nobody knows what the sums are.
  template <class Wait>
  void waiting(const Wait& wait) {
    const bool are_clear = std::exchange(sums_are_clear_, false);
    wait();
    sums_are_clear_ = are_clear;
  }

  // Not inlined: there g++ 12 warns of an absent rate at -O2.
  [[gnu::noinline]] void clear_sums(const Stop& stop) {
    begin(WorkPass::exchange, "sums");
    if (!std::exchange(sums_are_clear_, false))
      context_->clear(reinterpret_cast<std::byte*>(sums_.data()), sums_.bytes());
    if (!stop.now && !stop.training && !stop.rate) return;
    const double asked[flags] = {stop.now ? 1.0 : 0.0, stop.training ? 1.0 : 0.0};
    context_->upload(reinterpret_cast<std::byte*>(sums_.data() + stop_at_),
                     reinterpret_cast<const std::byte*>(asked), sizeof asked);
    const double rate = stop.rate == 0.0 ? zero_rate : stop.rate.value_or(0);
    context_->upload(reinterpret_cast<std::byte*>(sums_.data() + stop_at_ + flags + first_slice_),
                     reinterpret_cast<const std::byte*>(&rate), sizeof rate);
    wait();
  }

  // The gradients of slices are added in one binary tree over all slices of the batch, as carries
  // in a binary number: after slice i, branch b holds the sum of 2^b slices where bit b of i + 1
  // is set.
  void keep_branch(std::size_t i) {
    std::size_t b = 0;
    for (; (i >> b & 1) != 0; ++b) add_branch(b, {0, Net::graph.weights});
    engine_.swap_gradients(branches_[b]);
  }
  /// After the last slice: the gradients in the bucket become those of all slices of this replica.
  void add_branches(const Bucket& bucket) {
    for (std::size_t b = 0; b < branches_.size(); ++b) add_branch(b, bucket);
  }
  void add_branch(std::size_t b, const Bucket& range) {
    context_->add(engine_.gradients().data() + range.begin, branches_[b].data() + range.begin,
                  range.end - range.begin);
  }

  /// The last bucket's exchange, with the sums. A slice's sums are zero but in the replica that
  /// computed it, so that no collective's order of additions can change them; they are merged here,
  /// in the order of slices.
  void exchange_sums(const ReplicaContext<D>& replica, const Bucket& last,
                     std::size_t state_size = 0) {
    begin_exchange();
    replica.exchange.finish(engine_.gradients().data() + last.begin, last.end - last.begin,
                            sums_.data(), state_at_ + state_size);
    if constexpr (ScalesLoss<D>)
      if (last.end > 0)
        loss_scale_.unscale(*context_, engine_.gradients().data(), Net::graph.weights,
                            sums_.data() + sums_.size() - 1);
    if (arrived_ == arrivals_.size()) arrivals_.emplace_back(sums_.size());
    last_ = arrived_++;
    begin(WorkPass::exchange, "sums");
    if constexpr (requires { context_->hand_over(nullptr, nullptr, 0); })
      if (state_.size() == 0) {  // else they are still read
        context_->hand_over(reinterpret_cast<std::byte*>(arrived().data()),
                            reinterpret_cast<std::byte*>(sums_.data()), sums_.bytes());
        sums_are_clear_ = true;
        return;
      }
    sums_.download(arrived().data());
  }
  /// The last step's numbers.
  std::vector<double>& arrived() { return arrivals_[last_]; }
  const std::vector<double>& arrived() const { return arrivals_[last_]; }

  Context* context_;
  Engine<Net, D> engine_;
  std::vector<Buffer<Context, T>> slots_;
  Updates<D> updates_;
  std::vector<UpdateIo<D>> parts_;            // of an update that is made by one call
  std::vector<Buffer<Context, T>> branches_;  // gradients of slices that wait for others
  State state_;
  static constexpr double zero_rate = -1;  // since 0 says that nobody asked
  std::size_t stop_at_, state_at_;
  // Of each slice of the batch; then Stop: two flags, and the rate, in the place of a replica's
  // first slice, so that the lowest one's counts; then of the state; then, not exchanged, the
  // penalties, and how many gradients are not finite.
  Buffer<Context, double> sums_;
  bool sums_are_clear_ = true;
  [[no_unique_address]] LossScale<D> loss_scale_;
  std::size_t first_slice_, slices_;
  bool exchanges_;                             // with other slices or replicas
  bool updates_at_once_;                       // by backward
  std::vector<std::vector<double>> arrivals_;  // sums_ after each step that was not taken
  std::size_t arrived_ = 0, last_ = 0;
  std::uint64_t step_ = 0;  // for messages, as the next one
  bool trains_ = false;
  Buffer<Context, double> squares_;  // one, of is_finite
  Sums host_sums_ = Sums(sum_count);
};

}  // namespace lockstep::detail
