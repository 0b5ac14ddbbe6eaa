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

#include "lockstep/concepts/loaded_batch.hpp"
#include "lockstep/concepts/loss.hpp"
#include "lockstep/concepts/metric.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/finite.hpp"
#include "lockstep/metrics/weighted.hpp"
#include "lockstep/model/engine.hpp"
#include "lockstep/training/parameters.hpp"
#include "lockstep/training/step/device_replica.hpp"

namespace lockstep::detail {

template <class Net, class D, class L, class O, class... Ms>
class Replica : public DeviceReplica<D, target_as<typename L::target_type, typename D::real>> {
  using Base = DeviceReplica<D, target_as<typename L::target_type, typename D::real>>;

 public:
  using T = typename D::real;
  using Context = typename D::Context;
  using Target = target_as<typename L::target_type, T>;
  using typename Base::Batch;
  static constexpr std::size_t sum_count = (1 + ... + Ms::state_size);

  /// Computes `mine` slices of each batch, from slice number `first` of `slices` on. `is_alone`: no
  /// exchange changes its gradients.
  /// `segments` outlive it.
  [[gnu::cold]] Replica(Context& context, const O& optimizer,
                        std::span<const UpdateSegment> segments, std::size_t slices,
                        std::size_t first, std::size_t mine, bool is_alone)
      : Base(context, plan,
             {.slices = slices,
              .first = first,
              .mine = mine,
              .is_alone = is_alone,
              .updates_by_elements = updates_by_elements,
              .slots = slot_count(optimizer),
              .own_slots = optimizer.slots(),
              .options = options_of(optimizer),
              .weight_decay = weight_decay_of(optimizer),
              .segments = segments}) {
    start_slots(optimizer);
  }

  /// Forward, loss, metrics, backward of each slice, and the exchange. Afterwards the gradients are
  /// those of the whole global batch, without penalties, and its sums are on their way, or have
  /// come if it `waits`: then what other processes did not do leaves no trace. `slice(i)` is the
  /// i-th of this replica's, and `note(phase)` is told how far it is. With one replica and slice
  /// the weights may already be updated at `rate`.
  void gradients_of(FunctionRef<Batch(std::size_t)> slice, std::uint64_t seed, std::uint64_t step,
                    const RunRequests& requests, const ReplicaContext<D>& replica, const L& loss,
                    const std::tuple<Ms...>& metrics, const O& optimizer, double rate, bool waits,
                    FunctionRef<void(Phase)> note) {
    UpdateInBackward update_in_backward{this, &optimizer, Base::rate_of(requests, rate), step + 1};
    this->train(
        slice, seed, step, requests, replica, [&](const Scored& s) { score(s, loss, metrics); },
        update_in_backward.reference(), waits, note);
  }

  /// Forward, loss, metrics, exchange of the sums.
  void test(FunctionRef<Batch(std::size_t)> slice, std::uint64_t seed, const RunRequests& requests,
            const ReplicaContext<D>& replica, const L& loss, const std::tuple<Ms...>& metrics) {
    this->evaluate(slice, seed, requests, replica,
                   [&](const Scored& s) { score(s, loss, metrics); });
  }

  /// Writes the outputs for a slice's examples to `out` on the host.
  void predict_to(T* out, const Batch& batch, std::uint64_t seed,
                  const ReplicaContext<D>& replica) {
    this->predict(out, batch, seed, replica);
  }

  /// One pass of the optimizer over the flat buffers, unless backward has made it, and what its
  /// options ask for; `step` counts from 1. Nothing, if gradients overflowed: see LossScale.
  // Cold: all but the kernels' work is little.
  [[gnu::cold]] void update(const O& optimizer, double rate, std::uint64_t step) {
    this->begin(WorkPass::update, "optimizer");
    T* const w = this->engine_.weights().data();
    T* const g = this->engine_.gradients().data();
    if constexpr (ScalesLoss<D>) {
      this->wait();
      this->begin(WorkPass::update, "optimizer");
      if (!this->loss_scale_.makes_step(this->last_sums().back())) return;
      step -= this->loss_scale_.skipped();
    }
    if constexpr (HasUpdateOptions<O>)
      if (!this->updates_.begin(step, w, g)) return this->updates_.end(step, w);
    if (!this->updates_in_backward_)
      update_part(optimizer.op(rate, this->updates_.number(step)), rate, g, Net::graph.weights);
    if constexpr (HasUpdateOptions<O>) this->updates_.end(step, w);
  }
  /// The weights become their moving averages, if the optimizer keeps such.
  void overwrite_with_average() {
    if constexpr (HasUpdateOptions<O>)
      this->updates_.overwrite_with_average(this->engine_.weights().data());
  }

  /// What the optimizer keeps becomes that of a new model.
  [[gnu::cold]] void reset_optimizer(const O& optimizer) {
    for (const auto& slot : this->slots_)
      if (slot.size() > 0)
        this->context_->clear(reinterpret_cast<std::byte*>(slot.data()), slot.bytes());
    start_slots(optimizer);
    this->context_->synchronize();
    this->loss_scale_ = {};
  }

 private:
  using typename Base::Scored;
  using UpdateOp = std::remove_cvref_t<decltype(std::declval<const O&>().op(0.0, 1))>;
  static constexpr bool updates_by_elements =
      ElementwiseUpdate<UpdateOp> && HostDevice<D> && !ScalesLoss<D>;
  static constexpr auto& layout = PlanOf<Net, D>::plan;
  static constexpr auto penalties = penalty_segments<Net>();
  static constexpr bool has_penalty = [] {
    for (const PenaltySegment& s : penalties)
      if (s.penalty) return true;
    return false;
  }();
#ifdef LOCKSTEP_SEPARATE_COMPILATION
  // Compiled beside the device's own kernels, which they call.
  static constexpr int of_library_passes =
      of_library<Penalty, D> + of_library<GradientPass, D> + of_library<MovingAverage, D>;
  static_assert(of_library_passes == 0 || of_library_passes == 3,
                "lockstep::Kernel: in the compiled form a device of the library keeps its kernels "
                "of Penalty, GradientPass and MovingAverage; use the header-only form");
#endif
  static_assert(!has_penalty || HasKernel<Penalty, D>,
                "lockstep::Penalty: the device has no kernel for regularizers; write "
                "Kernel<Penalty, Device> or leave them out");

  static constexpr ReplicaPlan<D> plan = {
      .engine = Engine<Net, D>::constants,
      .state = {.size = Net::graph.state,
                .changes = layout.updates_state,
                .averaged = {layout.averaged.data(), layout.averages},
                .averaged_size = layout.averaged_size},
      .penalties = {penalties.begin(), penalties.size()},
      .has_penalty = has_penalty,
      .target = L::target_shape(Net::output_shape).size(),
      .sums = sum_count};

  /// The update of a step, whose gradients come in parts.
  struct UpdateInBackward {
    Replica* replica;
    const O* optimizer;
    double rate;
    std::uint64_t step;
    std::optional<UpdateOp> op{};  // made once a step: it may be work

    UpdateRef<T> reference() {
      if (!replica->updates_in_backward_) return {};
      op.emplace(optimizer->op(rate, replica->updates_.number(step)));
      return *this;
    }
    void operator()(T* g, std::size_t count) const {
      const WorkWithin within(
          *replica->context_,
          {.pass = WorkPass::update, .part = "optimizer", .step = replica->step_});
      replica->update_part(*op, rate, g, count);
    }
  };
  /// The optimizer's own pass over the weights whose gradients are `count` from g on.
  void update_part(const UpdateOp& op, double rate, T* g, std::size_t count) {
    const std::span<const UpdateIo<D>> parts = this->parts_of(rate, g, count);
    if constexpr (UpdatesAll<UpdateOp, D>)
      Kernel<UpdateOp, D>::update_all(op, parts);
    else
      for (const UpdateIo<D>& io : parts) run_kernel<D>(op, io);
  }

  /// Cleared slots get the optimizer's first values.
  [[gnu::cold]] void start_slots([[maybe_unused]] const O& optimizer) {
    if constexpr (requires { optimizer.slot_start(0); }) {
      for (std::size_t i = 0; i < optimizer.slots(); ++i)
        this->slots_[i].upload(
            std::vector<T>(Net::graph.weights, static_cast<T>(optimizer.slot_start(i))).data());
      this->context_->synchronize();
    }
  }

  /// Where the state of metric I begins, among the sums of a slice.
  template <std::size_t I>
  static constexpr std::size_t first_of = [] {
    std::size_t at = 1, metric = 0;
    ((at += metric++ < I ? Ms::state_size : 0), ...);
    return at;
  }();

  /// Loss and metrics of the outputs of a slice; the loss' gradient if wanted.
  void score(const Scored& s, const L& loss, const std::tuple<Ms...>& metrics) {
    const std::size_t count = s.batch.slice.count;
    const Target* const target = s.batch.y;
    const T* const weight = s.batch.w;
    using Labels = typename L::target_type;
    const auto loss_op = loss.op(Net::output_shape);
    using LossOp = std::remove_cvref_t<decltype(loss_op)>;
    const LossIo<D, Labels> loss_io{*this->context_, count,   s.y,    target,
                                    s.gradient,      s.scale, s.sums, weight};
    // A parameter, since clang 14 looks into what a lambda discards.
    [&]<class Together, std::size_t... I>(Together, std::index_sequence<I...>) {
      const auto ops =
          std::make_tuple(std::get<I>(metrics).template op<Labels>(Net::output_shape)...);
      using OpList = std::remove_const_t<decltype(ops)>;
      const auto io_of = [&](std::size_t at, bool weighted) {
        return MetricIo<D, Labels>{*this->context_, count,       s.y,
                                   target,          s.sums + at, weighted ? weight : nullptr};
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
};

}  // namespace lockstep::detail
