/// \file
/// One replica of a model: DeviceReplica plus the loss, the metrics and the optimizer. Invariants:
/// all replicas make the same calls in the same order, even for an empty slice; after `update`, or
/// `end_round`, all hold the same weights.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
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
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/metrics/weighted.hpp"
#include "lockstep/model/engine.hpp"
#include "lockstep/training/parameters.hpp"
#include "lockstep/training/step/batch_layout.hpp"
#include "lockstep/training/step/device_replica.hpp"
#include "lockstep/training/step/output_masks.hpp"

namespace lockstep::detail {

/// One replica. Each member function is called by the replica's own thread (Session::each), in the
/// device's scope. A training step is `gradients_of`, then `update`; see DeviceReplica for its
/// phases.
/// `U` is the object of the strategy's update policy.
template <class Net, class D, class U, class L, class O, class... Ms>
class Replica : public DeviceReplica<D, U> {
  using Base = DeviceReplica<D, U>;

 public:
  using T = typename D::real;
  using Context = typename D::Context;
  using Target = target_as<typename L::target_type, T>;
  /// Elements of a slice's sums: the loss, then each metric's state.
  static constexpr std::size_t sum_count = (1 + ... + Ms::state_size);

  /// The replica of `rank` among `replicas` of the job, which computes `mine` of each batch's
  /// `slices`. `is_only_replica`: no exchange changes its gradients. `segments` must outlive the
  /// replica; `policy` is the value of the strategy's update policy; `shared`: see UpdateSite.
  [[gnu::cold]] Replica(Context& context, const O& optimizer,
                        std::span<const UpdateSegment> segments, std::size_t slices, Slice mine,
                        bool is_only_replica, std::size_t rank, std::size_t replicas,
                        const ReplicaRoles& roles, const void* policy,
                        std::span<const Slice> shared = {})
      : Base(context, plan,
             {.slices = slices,
              .first = mine.first,
              .mine = mine.count,
              .is_only_replica = is_only_replica,
              .rank = rank,
              .replicas = replicas,
              .roles = roles,
              .policy = policy,
              .update = {.slot_count = slot_count(optimizer),
                         .own_slots = optimizer.slot_count(),
                         .options = options_of(optimizer),
                         .weight_decay = HasParameterRules<O> ? 1 : weight_decay_of(optimizer),
                         .is_by_elements = is_by_elements,
                         .segments = segments,
                         .parameters = named_parameters<Net>(),
                         .scratch_bytes = scratch_of()},
              .shared = shared}) {
    start_slots(optimizer);
  }

  /// Forward, loss, metrics and backward of each slice, then the exchange. Afterwards the gradients
  /// are those of the global batch, without penalties. The sums are still in flight unless
  /// `s.waits`; with it, a failure in another process throws before this replica's state changes.
  /// With one replica and one slice, backward may already have updated the weights at `s.rate`;
  /// without `optimizer` it has not.
  void gradients_of(const ReplicaStep<D>& s, const StepLoss<L>& loss,
                    const std::tuple<Ms...>& metrics, const O* optimizer) {
    const auto score_it = [&](const Scored& scored) {
      score(this->engine_, scored, loss, metrics);
    };
    if (optimizer == nullptr) return this->train(s, score_it, {});
    UpdateInBackward update_in_backward{*this, *optimizer, Base::rate_of(s.requests, s.rate),
                                        s.step + 1};
    this->train(s, score_it, update_in_backward.reference());
  }
  /// The same for a loss that the program has computed: `dy` are its derivatives by the outputs of
  /// the process' share of the batch, whose first example is the one numbered `first`.
  [[gnu::cold]] void gradients_from(const ReplicaStep<D>& s, const T* dy, std::size_t first) {
    const auto copy = [&](T* gradient, Slice part, std::size_t width) {
      std::vector<T> scaled(dy + part.first * width, dy + (part.first + part.count) * width);
      for (T& v : scaled) v = static_cast<T>(static_cast<double>(v) * this->loss_scale_.value());
      this->context_->upload(reinterpret_cast<std::byte*>(gradient),
                             reinterpret_cast<const std::byte*>(scaled.data()),
                             scaled.size() * sizeof(T));
      wait_for(*this->context_);
    };
    const auto upload = [&](const Scored& scored) {
      if (scored.gradient == nullptr) return;  // no layer computes
      const Slice part{scored.batch.slice.first - first, scored.batch.slice.count};
      if constexpr (in_blocks) {
        constexpr std::size_t width = score_shape.size(), rows = Net::output_shape.size() / width;
        this->engine_.each_block(this->input_of(scored.batch), scored.step, true,
                                 [&](const Slice& block, const T*, T* gradient) {
                                   copy(gradient, {part.first * rows + block.first, block.count},
                                        width);
                                 });
      } else {
        copy(scored.gradient, part, Net::output_shape.size());
      }
    };
    this->train(s, upload, {});
  }
  /// Replaces the gradients that `update` reads by values on the host; waits for the device.
  [[gnu::cold]] void set_gradients(std::span<const T> values) {
    this->engine_.gradients().upload(values.data());
    this->context_->synchronize();
  }

  /// Forward, loss and metrics of each slice, then the exchange of the sums.
  void test(const ReplicaStep<D>& s, const StepLoss<L>& loss, const std::tuple<Ms...>& metrics) {
    this->evaluate(s, [&](const Scored& scored) { score(this->engine_, scored, loss, metrics); });
  }

  /// Writes the outputs of a slice, (examples, output), to `out` on the host.
  void predict_to(T* out, const LoadedBatch& batch, std::uint64_t seed,
                  const ReplicaContext<D>& replica) {
    if constexpr (in_blocks)
      this->predict_in_blocks(out, batch, seed, replica);
    else
      this->predict(out, batch, seed, replica);
  }

  /// The optimizer's update of the weights, unless backward has made it, and the passes of its
  /// options. `step` counts from 1. Does nothing if gradients overflowed; see LossScale.
  // Cold: optimized for size, since nearly all time is spent in kernels.
  [[gnu::cold]] void update(const ReplicaContext<D>& replica, const O& optimizer, double rate,
                            std::uint64_t step) {
    this->begin(WorkPass::update, "optimizer");
    if constexpr (ScalesLoss<D>) {
      this->wait();
      update_unless(this->last_sums().back(), replica, optimizer, rate, step);
    } else {
      make_update(replica, optimizer, rate, step, this->policy_.updates_in_backward());
    }
  }
  /// The update of a step in a phase by a policy that has such: without the other replicas, except
  /// for `sum`.
  [[gnu::cold]] void update_alone(const O& optimizer, double rate, std::uint64_t step,
                                  FunctionRef<void(std::span<double>)> sum,
                                  std::span<const Slice> parts) {
    StepUpdate rule{optimizer, rate, this->policy_.number(step)};
    this->policy_.update_alone(rule, rate, step, sum, parts);
  }
  /// The same with gradients that `set_gradients` has set, of which `wrong` are not finite.
  [[gnu::cold]] void update_with([[maybe_unused]] double wrong, const ReplicaContext<D>& replica,
                                 const O& optimizer, double rate, std::uint64_t step) {
    if constexpr (ScalesLoss<D>)
      update_unless(wrong, replica, optimizer, rate, step);
    else
      make_update(replica, optimizer, rate, step, false);
  }

  /// Writes the gradient of the loss, a mean over `examples`, with respect to the input of a slice,
  /// (examples, input), to
  /// `out` on the host. Penalties, layer state and the sums of loss and metrics are left alone.
  /// Collective if a layer exchanges data.
  [[gnu::cold]] void input_gradient_to(T* out, LoadedBatch batch, const StepContext& context,
                                       double examples, const ReplicaContext<D>& replica,
                                       const StepLoss<L>& loss, const std::tuple<Ms...>& metrics) {
    if (!input_engine_) {
      input_engine_ = std::make_unique<PlanEngine<D>>(*this->context_, input_plan);
      input_sums_ = Buffer<Context, double>(*this->context_, sum_count);
    }
    PlanEngine<D>& engine = *input_engine_;
    if (settings_ != nullptr) engine.hold(settings_->held_steps(input_plan.step, nodes));
    struct Borrowed {
      PlanEngine<D>&from, &to;
      Borrowed(PlanEngine<D>& a, PlanEngine<D>& b) : from(a), to(b) { from.swap_weights(to); }
      Borrowed(const Borrowed&) = delete;
      Borrowed& operator=(const Borrowed&) = delete;
      ~Borrowed() { from.swap_weights(to); }
    };
    const std::vector<T> state = this->copy_of(this->engine_.state());
    const Borrowed weights(this->engine_, engine);
    engine.state().upload(state.data());
    const LoadedBatch given = batch;
    batch = this->on_device(given, replica);
    engine.prepare(context.count);
    const T* const x = this->input_of(batch);
    const T* const y = engine.forward(x, context);
    const double scale = this->loss_scale_.value();
    score(engine,
          {y, batch, given, context, engine.output_gradient(), examples > 0 ? scale / examples : 0,
           input_sums_.data()},
          loss, metrics);
    engine.backward(x, context, [](const Bucket&) {});
    using A = ActivationOf<D>;
    const std::size_t count = context.count * Net::input_shape.size();
    std::vector<A> values(count);
    this->context_->download(reinterpret_cast<std::byte*>(values.data()),
                             reinterpret_cast<const std::byte*>(engine.input_gradient()),
                             count * sizeof(A));
    begin_work(*this->context_, {});
    this->context_->synchronize();
    for (std::size_t i = 0; i < count; ++i)
      out[i] = static_cast<T>(static_cast<double>(T(values[i])) / scale);
  }
  /// Applies `settings` from now on. They and the spans must outlive the replica; the spans
  /// are the segments of updates and of penalties under these settings.
  [[gnu::cold]] void change_layers(const LayerSettings& settings,
                                   std::span<const UpdateSegment> segments,
                                   std::span<const PenaltySegment> penalties_of_all) {
    settings_ = &settings;
    this->hold(settings.held_steps(plan.engine.step, nodes), segments,
               has_penalty ? penalties_of_all : plan.penalties);
  }
  /// Resets the optimizer's slots and the loss scale to those of a new model.
  [[gnu::cold]] void reset_optimizer(const O& optimizer) {
    this->policy_.clear();
    start_slots(optimizer);
    this->context_->synchronize();
    this->loss_scale_ = {};
  }

 private:
  using typename Base::Scored;
  using UpdateOp = std::remove_cvref_t<decltype(std::declval<const O&>().op(0.0, 1))>;
  static constexpr bool is_by_elements =
      ElementwiseUpdate<UpdateOp> && HostDevice<D> && !ScalesLoss<D>;
  /// The function that UpdateFacts has.
  static constexpr auto scratch_of() -> std::size_t (*)(const UpdateSegment&) {
    if constexpr (requires { Kernel<UpdateOp, D>::scratch_bytes(Shape{}, ParameterRule{}); })
      return [](const UpdateSegment& s) {
        return Kernel<UpdateOp, D>::scratch_bytes(s.shape, ParameterRule{s.slot});
      };
    else
      return nullptr;
  }
  using Layout = BatchLayout<Net, L>;
  using Masks = OutputMasks<Net, Layout>;
  static_assert(Masks::are_of_inputs(),
                "lockstep::Masking: the loss reads the mask of the output, so Masking must read an "
                "input of the network; move it before all other layers");
  static_assert(
      !Masks::exist ||
          Weighs<std::remove_cvref_t<decltype(std::declval<const L&>().op(Net::output_shape))>, D>,
      "lockstep::Model: the output has a mask of padded steps, but the kernel of the loss does not "
      "read weights; multiply by io.weight in the kernel and declare 'weighs' there");
  /// Whether the output is computed in blocks; the loss and the metrics then read single rows.
  static constexpr bool in_blocks = Net::graph.ends_in_blocks();
  static constexpr Shape score_shape =
      in_blocks ? shape(Net::output_shape.channels()) : Net::output_shape;
  static constexpr auto& layout = PlanOf<Net, D>::plan;
  static constexpr std::span<const Node> nodes{Net::graph.node.data(),
                                               static_cast<std::size_t>(Net::graph.nodes)};
  static constexpr auto penalties = penalty_segments<Net>();
  static constexpr bool has_penalty = [] {
    for (const PenaltySegment& s : penalties)
      if (s.penalty) return true;
    return false;
  }();
#ifdef LOCKSTEP_SEPARATE_COMPILATION
  // Updates<D> is compiled in the library and calls the library's kernels of these passes.
  static constexpr int of_library_passes =
      of_library<Penalty, D> + of_library<GradientPass, D> + of_library<MovingAverage, D>;
  static_assert(of_library_passes == 0 || of_library_passes == 3,
                "lockstep::Kernel: in the compiled form a device of the library keeps its kernels "
                "of Penalty, GradientPass and MovingAverage; use the header-only form");
#endif
  static_assert(!has_penalty || HasKernel<Penalty, D>,
                "lockstep::Penalty: the device has no kernel for regularizers; write "
                "Kernel<Penalty, Device> or leave them out");

  static_assert(!HasUpdateOptions<O> || (HasKernel<GradientPass, D> && HasKernel<MovingAverage, D>),
                "lockstep::UpdateOptions: the device lacks Kernel<GradientPass, Device> or "
                "Kernel<MovingAverage, Device>; write both, or use an optimizer without `with`");

  static constexpr ReplicaPlan<D> plan = {
      .engine = Engine<Net, D>::constants,
      .state = {.size = Net::graph.trained_state,
                .changes = layout.updates_state,
                .averaged = {layout.averaged.data(), layout.averages},
                .averaged_size = layout.averaged_size},
      .penalties = {penalties.begin(), penalties.size()},
      .has_penalty = has_penalty,
      .fields = Layout::fields,
      .sums = sum_count,
      .exchanges = exists(layout.exchanges)};

  void make_update(const ReplicaContext<D>& replica, const O& optimizer, double rate,
                   std::uint64_t step, bool is_applied) {
    StepUpdate rule{optimizer, rate, this->policy_.number(step)};
    this->policy_.update(replica, rule, rate, step, is_applied);
  }
  /// The update of a device with a loss scale, unless gradients overflowed.
  void update_unless(double wrong, const ReplicaContext<D>& replica, const O& optimizer,
                     double rate, std::uint64_t step) {
    this->begin(WorkPass::update, "optimizer");
    this->policy_.sum_over_owners(replica, {&wrong, 1});
    if (this->loss_scale_.accept_step(wrong))
      make_update(replica, optimizer, rate, step - this->loss_scale_.skipped(), false);
  }

  static constexpr EnginePlan<D> input_plan =
      engine_plan_of<Net, D, InputPlanOf<Net, D>>(&Engine<Net, D>::name_step);

  /// The optimizer's update of one step, for any part of the weights.
  struct StepUpdate {
    const O& optimizer;
    double rate;
    std::uint64_t number;
    // Made once per step, a schedule may be expensive, or for each part with another multiplier.
    std::optional<UpdateOp> op{};
    double of = 1;

    void operator()(std::span<const UpdateIo<D>> parts) {
      if (!op || of != parts[0].rate) op.emplace(optimizer.op(rate * (of = parts[0].rate), number));
      if constexpr (UpdatesAll<UpdateOp, D>)
        Kernel<UpdateOp, D>::update_all(*op, parts);
      else
        for (const UpdateIo<D>& io : parts) run_kernel<D>(*op, io);
    }
  };
  /// The same as backward's callback: called with each range of finished gradients.
  struct UpdateInBackward {
    Replica& replica;
    StepUpdate rule;

    UpdateInBackward(Replica& of, const O& optimizer, double rate, std::uint64_t step)
        : replica(of), rule{optimizer, rate, of.policy_.number(step)} {}
    UpdateRef<T> reference() {
      if (!replica.policy_.updates_in_backward()) return {};
      rule.op.emplace(rule.optimizer.op(rule.rate, rule.number));
      return *this;
    }
    void operator()(T* g, std::size_t count) {
      const WorkWithin within(
          *replica.context_,
          {.pass = WorkPass::update, .part = "optimizer", .step = replica.step_});
      const auto first = static_cast<std::size_t>(g - replica.engine_.gradients().data());
      replica.policy_.apply_to({first, count}, rule, rule.rate);
    }
  };

  /// Fills the slots with the optimizer's initial values, if those are not 0.
  [[gnu::cold]] void start_slots([[maybe_unused]] const O& optimizer) {
    if constexpr (requires { optimizer.slot_start(0); })
      for (std::size_t i = 0; i < optimizer.slot_count(); ++i)
        this->policy_.fill(i, optimizer.slot_start(i));
  }

  /// Offset of metric I's state within a slice's sums.
  template <std::size_t I>
  static constexpr std::size_t first_of = [] {
    std::size_t at = 1, metric = 0;
    ((at += metric++ < I ? Ms::state_size : 0), ...);
    return at;
  }();

  /// Computes the loss and the metrics of a slice's outputs, and the loss' gradient if wanted;
  /// `engine` has just run forward.
  void score([[maybe_unused]] PlanEngine<D>& engine, const Scored& s, const StepLoss<L>& loss,
             const std::tuple<Ms...>& metrics) {
    const T* const weight = s.batch.template rows<T>(Layout::weight);
    Outputs all{
        s.y,     s.gradient,         s.batch.template rows<Target>(Layout::target), weight, weight,
        nullptr, s.batch.slice.count};
    if constexpr (Masks::exist) {
      const int slot = static_cast<int>(Layout::fields.size());  // after the batch's fields
      const auto feed = [&](int number, const T* its, std::vector<T>& host) {
        Masks::write(s.given, its, host);
        return this->context_->feed(slot + number, host.data(),
                                    s.given.slice.count * Layout::weight_shape.size());
      };
      all.masked = all.mask = feed(0, s.given.template rows<T>(Layout::weight), masked_);
      if (weight != nullptr && ((reads_output_mask<Ms> && !is_weighted_metric<Ms>) || ...))
        all.mask = feed(1, nullptr, mask_);
    }
    if constexpr (in_blocks) {
      constexpr std::size_t rows = Net::output_shape.size() / score_shape.size(),
                            target = L::target_shape(score_shape).size();
      double sum = 0;  // the loss of an example is the mean over its rows
      engine.each_block(this->input_of(s.batch), s.step, s.gradient != nullptr,
                        [&](const Slice& block, const T* y, T* dy) {
                          this->begin(WorkPass::loss, "loss");
                          const auto of_block = [&](const T* w) {
                            return w != nullptr ? w + block.first : nullptr;
                          };
                          score_outputs(
                              {y, dy, all.target + block.first * target, of_block(all.weight),
                               of_block(all.masked), of_block(all.mask), block.count},
                              s.scale / rows, &sum, s.sums, loss, metrics);
                        });
      *s.sums += sum / rows;
    } else {
      score_outputs(all, s.scale, s.sums, s.sums, loss, metrics);
    }
  }

  /// `count` examples, or rows of a block, with their targets. `weight` are the sample weights, `masked`
  /// the same with the mask of the output, `mask` that mask; null: all are 1.
  struct Outputs {
    const T* y;
    T* gradient;
    const Target* target;
    const T *weight, *masked, *mask;
    std::size_t count;
  };
  /// One kernel computes the loss and the metrics where the device has such a kernel
  /// (ScoresTogether). Adds the loss to *sum, and the metrics to their parts of a slice's `sums`.
  void score_outputs(const Outputs& o, double scale, double* sum, double* sums,
                     const StepLoss<L>& loss, const std::tuple<Ms...>& metrics) {
    using Labels = typename L::target_type;
    const auto loss_op = loss.op(score_shape);
    using LossOp = std::remove_cvref_t<decltype(loss_op)>;
    constexpr std::size_t weights = in_blocks ? 1 : Layout::weight_shape.size();
    const LossIo<D, Labels> loss_io{*this->context_, o.count, o.y,      o.target, o.gradient,
                                    scale,           sum,     o.masked, weights};
    // Together is a template parameter since clang 14 instantiates discarded branches in a lambda
    // otherwise.
    [&]<class Together, std::size_t... I>(Together, std::index_sequence<I...>) {
      const auto ops = std::make_tuple(std::get<I>(metrics).template op<Labels>(score_shape)...);
      using OpList = std::remove_const_t<decltype(ops)>;
      const auto io_of = [&]<class M>(std::size_t at, const M*) {
        const bool reads_mask = Masks::exist && reads_output_mask<M>;
        const T* const its = is_weighted_metric<M> ? (reads_mask ? o.masked : o.weight)
                             : reads_mask          ? o.mask
                                                   : nullptr;
        return MetricIo<D, Labels>{*this->context_,
                                   o.count,
                                   o.y,
                                   o.target,
                                   sums + at,
                                   its,
                                   is_weighted_metric<M> || reads_mask ? weights : 1};
      };
      if constexpr (ScoresTogether<D, Labels, LossOp, std::tuple_element_t<I, OpList>...>) {
        Kernel<Together, D>::run(
            loss_op, loss_io,
            MetricCall<std::tuple_element_t<I, OpList>, D, Labels>{
                std::get<I>(ops), io_of(first_of<I>, &std::get<I>(metrics))}...);
      } else {
        run_kernel<D>(loss_op, loss_io);
        (run_kernel<D>(std::get<I>(ops), io_of(first_of<I>, &std::get<I>(metrics))), ...);
      }
    }(Scores{}, std::index_sequence_for<Ms...>{});
  }

  const LayerSettings* settings_ = nullptr;      // null: the defaults
  std::unique_ptr<PlanEngine<D>> input_engine_;  // made by the first input_gradient_to
  Buffer<Context, double> input_sums_;
  std::vector<T> masked_;  // the weights of a slice with the mask of the output
  std::vector<T> mask_;    // that mask
};

}  // namespace lockstep::detail
