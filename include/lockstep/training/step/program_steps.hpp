/// \file
/// The steps that a program makes itself: in its own loop, or as the step of a `fit`. Invariants:
/// within `fit` the exchanges of a step carry the requests of the fit, and one loss of each step is
/// in the epoch's logs; outside of it a step leaves no sums.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/concepts/loaded_batch.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/core/numbers/digest64.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/training/checks/run_checks.hpp"
#include "lockstep/training/elastic/elastic_runs.hpp"
#include "lockstep/training/gradients.hpp"
#include "lockstep/training/run.hpp"
#include "lockstep/training/step/batches.hpp"
#include "lockstep/training/step_batch.hpp"

namespace lockstep::detail {

/// A batch in memory, as one process passes it.
struct PassedBatch {
  std::uint64_t scope, examples;
  std::uint64_t contents;             ///< a digest: of the values, or of whether there are weights
  std::uint64_t first_slice, slices;  ///< of the global batch, that the process computes
};

/// The part of a batch that the process of `rank` passes. `all`: those of all processes, by rank;
/// `slices`: into which a batch is divided. \throws UsageError, in all of them, if they do not fit.
LOCKSTEP_COLD_DECL BatchSlice slice_passed(const char* call, std::span<const PassedBatch> all,
                                           std::size_t rank, std::size_t slices);

/// Refuses steps of the program's own where replicas make steps alone.
template <class Replicas>
constexpr void check_steps_of_program() {
  static_assert(
      !Replicas::makes_rounds,
      "lockstep::Model: under ls::LocalSgd and ls::DiLoCo only `fit` with the library's step "
      "knows where a round ends; leave out steps of the program's own, or the policy");
}

/// One step, or a part of one, of a model that a program trains itself.
template <class Replicas>
class ProgramSteps {
 public:
  using T = typename Replicas::T;
  using Target = typename Replicas::Target;
  using Batch = lockstep::Batch<T, Target>;
  using Network = typename Replicas::Network;

  ProgramSteps(Replicas& replicas, BetweenRuns& kept) : replicas_(replicas), kept_(kept) {}
  static Batch of(const LoadedBatch& loaded) { return {loaded, widths}; }

  Logs train(const Batch& batch) {
    const LoadedBatch loaded = begin("train_step", batch);
    begin_training();
    replicas_.train(loaded, kept_.rate_of(replicas_), requests());
    sent();
    return logs(true);
  }
  Logs test(const Batch& batch) {
    const LoadedBatch loaded = begin("test_step", batch);
    discard_pending();
    replicas_.test(loaded);
    return logs(false);
  }
  Gradients<T> gradients(const Batch& batch) {
    const LoadedBatch loaded = begin("gradients_of", batch);
    return gradients_of(loaded, nullptr);
  }
  /// `dy`: the derivatives of the program's own loss by the outputs.
  Gradients<T> gradients(const Batch& batch, std::span<const T> dy) {
    const LoadedBatch loaded = begin("gradients_of", batch, false);
    check_batch_values("gradients_of", dy.size(), batch.size(), Network::output_shape.size());
    static constexpr T none{};
    return gradients_of(loaded, dy.empty() ? &none : dy.data());
  }
  void apply(const Gradients<T>& gradients) {
    check_steps_of_program<Replicas>();
    if (gradients.values().size() != Network::graph.weights)
      throw UsageError(
          "apply: got {} gradients, but the model has {} trainable values; pass those of "
          "gradients_of",
          gradients.values().size(), std::size_t{Network::graph.weights});
    replicas_.apply(gradients.values(), gradients.learning_rate());
  }
  std::vector<T> input_gradients(const Batch& batch) {
    const LoadedBatch loaded = begin("input_gradients", batch);
    if constexpr (PlanOf<Network, typename Replicas::device>::plan.output_is_input) {
      throw UsageError("input_gradients: the network has no layer that computes");
    } else {
      std::vector<T> all;
      replicas_.input_gradients(loaded, all);
      return rows(loaded, std::move(all), widths.input);
    }
  }
  std::vector<T> predict(const Batch& batch) {
    const LoadedBatch loaded = checked("predict", batch, false);
    std::vector<T> all;
    replicas_.predict(loaded, all);
    return rows(loaded, std::move(all), Network::output_shape.size());
  }
  /// `x` is the same in all processes; computed `batch_size` examples at a time.
  std::vector<T> predict_global(std::span<const T> x, std::size_t batch_size) {
    const std::size_t count = examples("predict", global_batch, x).size();
    std::vector<T> all;
    all.reserve(count * Network::output_shape.size());
    for (std::size_t first = 0; first < count; first += batch_size)
      replicas_.predict(
          Replicas::Layout::in_memory(whole_batch(std::min(batch_size, count - first), 0, first),
                                      x.data() + first * widths.input),
          all);
    return all;
  }

  /// A batch in memory; `scope` is absent if the program names none. Collective.
  /// \throws UsageError.
  Batch in_memory(const char* call, std::optional<BatchScope> scope, std::span<const T> x,
                  std::span<const Target> y, std::span<const T> w) const {
    const std::size_t count = examples_of<Network>(call, x).count();
    if (y.size() != count * widths.target)
      throw UsageError("{}: {} examples need {} target values, not {}", call, count,
                       count * widths.target, y.size());
    if (!w.empty()) check_weighs<Network, typename Replicas::device, typename Replicas::Loss>();
    check_weights(call, w, count, widths.weight);
    const BatchSlice slice = slice_of_passed(
        call, scope, count,
        [&](Digest64& digest) {
          digest.add(std::as_bytes(x));
          digest.add(std::as_bytes(y));
          digest.add(std::as_bytes(w));
        },
        !w.empty());
    const Batch whole(Replicas::Layout::in_memory(slice, x.data()), widths);
    if (whole.global_size() == 0)
      throw UsageError("{}: the batch is empty; pass at least one example", call);
    const Batch labeled = whole.with_targets(y);
    return w.empty() ? labeled : labeled.with_weights(w);
  }
  /// The same without targets.
  Batch examples(const char* call, std::optional<BatchScope> scope, std::span<const T> x) const {
    const std::size_t count = examples_of<Network>(call, x).count();
    const BatchSlice slice = slice_of_passed(
        call, scope, count, [&](Digest64& digest) { digest.add(std::as_bytes(x)); }, false);
    return {Replicas::Layout::in_memory(slice, x.data()), widths};
  }

 private:
  using Step = typename Replicas::ProgramStep;
  using Layout = typename Replicas::Layout;
  static constexpr BatchWidths widths{Network::input_shape.size(), Layout::target_shape.size(),
                                      Layout::weight_shape.size()};

  template <class Add>
  BatchSlice slice_of_passed(const char* call, std::optional<BatchScope> scope, std::size_t count,
                             const Add& add, bool has_weights) const {
    if (replicas_.is_alone()) return whole_batch(count, kept_.passes);
    if (!scope)
      throw UsageError(
          "{}: in a job of several processes a batch in memory needs its scope: pass "
          "ls::global_batch first if all pass the same batch, ls::local_batch if each passes its "
          "part",
          call);
    if (*scope == BatchScope::local && replicas_.elastic() != nullptr)
      throw UsageError(
          "{}: in an elastic job the parts change with the workers; pass the whole batch, with "
          "ls::global_batch",
          call);
    Digest64 digest;
    if (*scope == BatchScope::global) add(digest);
    const Slice here = replicas_.slices_here();
    const PassedBatch mine{static_cast<std::uint64_t>(*scope), count,
                           *scope == BatchScope::global ? digest.value()
                           : has_weights                ? 1U
                                                        : 0U,
                           here.first, here.count};
    std::vector<PassedBatch> all;
    for (const auto& bytes : replicas_.gather(std::as_bytes(std::span(&mine, 1))))
      std::memcpy(&all.emplace_back(), bytes.data(), sizeof mine);
    BatchSlice slice = slice_passed(call, all, replicas_.session().rank(), replicas_.full_slices());
    slice.pass = kept_.passes;
    return slice;
  }

  /// A batch that this model can read. A model of this process alone takes a share of a job's batch
  /// as a batch of its own. \throws UsageError.
  LoadedBatch checked(const char* call, const Batch& batch, bool reads_targets) const {
    LoadedBatch loaded = batch.loaded();
    if (batch.widths().input != widths.input ||
        (reads_targets && batch.widths().target != widths.target))
      throw UsageError(
          "{}: the batch has {} values of input and {} of target for each example, but the model "
          "reads {} and {}; pass a batch of this model",
          call, batch.widths().input, batch.widths().target, widths.input, widths.target);
    if (reads_targets && loaded.field[Replicas::Layout::target] == nullptr)
      throw UsageError("{}: the batch has no targets; pass them to `batch`, or use with_targets",
                       call);
    BatchSlice& slice = loaded.slice;
    if (replicas_.is_alone()) {
      slice = whole_batch(slice.count, slice.pass, slice.first_ordinal);
      return loaded;
    }
    const Slice mine = replicas_.share()(slice.global_count);
    if (mine.count > 0 &&
        (mine.first < slice.first || mine.first + mine.count > slice.first + slice.count))
      throw UsageError(
          "{}: the batch has examples {} to {} of {}, but this process computes {} to {}; pass a "
          "batch of this model",
          call, slice.first, slice.first + slice.count, slice.global_count, mine.first,
          mine.first + mine.count);
    return loaded;
  }
  LoadedBatch begin(const char* call, const Batch& batch, bool reads_targets = true) const {
    LoadedBatch loaded = checked(call, batch, reads_targets);
    if (!batch.weights().empty()) {
      check_weighs<Network, typename Replicas::device, typename Replicas::Loss>();
      if (batch.widths().weight != widths.weight)
        throw UsageError(
            "{}: the batch has {} weights for each example, but the loss has {} positions; pass a "
            "batch of this model",
            call, batch.widths().weight, widths.weight);
    }
    check_weights(call, batch.weights(), batch.size(), widths.weight);
    if (reads_targets) replicas_.check_labels(loaded);
    return loaded;
  }
  void discard_pending() {
    if (replicas_.program_step() == nullptr) replicas_.discard_pending_steps();
  }
  void begin_training() {
    check_steps_of_program<Replicas>();
    discard_pending();
    // They are exchanged after an epoch with SwapEMAWeights.
    if (replicas_.program_step() == nullptr) replicas_.swap_averages(false);
  }
  /// `dy` may be null: the loss is the model's.
  Gradients<T> gradients_of(const LoadedBatch& loaded, const T* dy) {
    begin_training();
    const double rate =
        replicas_.compute_gradients(loaded, kept_.rate_of(replicas_), requests(), dy);
    sent();
    Logs its = logs(dy == nullptr);
    return {replicas_.complete_gradients(), named_parameters<Network>(), rate, std::move(its)};
  }
  /// Those of the fit, and a learning rate that the program has set since the last exchange.
  RunRequests requests() {
    Step* const step = replicas_.program_step();
    RunRequests none, &mine = step != nullptr ? step->requests : none;
    if (!replicas_.is_alone() && kept_.unsent_rate)
      mine.learning_rate = std::exchange(kept_.unsent_rate, std::nullopt);
    return mine;
  }
  void sent() {
    if (Step* const step = replicas_.program_step())
      step->has_sent = true;
    else if (const auto rate = replicas_.agreed_requests().learning_rate)
      kept_.rate = *rate;
  }
  Logs logs(bool trains) {
    Step* const step = replicas_.program_step();
    const bool counts = step != nullptr && trains && !std::exchange(step->has_logs, true);
    return replicas_.last_logs(counts);
  }
  /// The rows of the examples that the batch has here.
  static std::vector<T> rows(const LoadedBatch& batch, std::vector<T> all, std::size_t width) {
    const BatchSlice& slice = batch.slice;
    if (slice.count == slice.global_count) return all;
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(slice.first * width);
    return {first, first + static_cast<std::ptrdiff_t>(slice.count * width)};
  }

  Replicas& replicas_;
  BetweenRuns& kept_;
};

/// Steps of a `fit` with a step of the program, `step(batch)`.
template <class Replicas, class Batches, class Function>
class CustomSteps final : public StepsOver<Replicas, Batches> {
 public:
  using Batch = typename ProgramSteps<Replicas>::Batch;

  CustomSteps(Replicas& replicas, Batches& batches, Function& step)
      : StepsOver<Replicas, Batches>(replicas, batches), step_(step) {}
  void run_step(const RunRequests& requests, double, bool) override {
    check_steps_of_program<Replicas>();
    Replicas& all = this->replicas_;
    typename Replicas::ProgramStep facts{requests};
    struct Within {
      Replicas& of;
      Within(Replicas& r, typename Replicas::ProgramStep& step) : of(r) {
        of.set_program_step(&step);
      }
      Within(const Within&) = delete;
      Within& operator=(const Within&) = delete;
      ~Within() { of.set_program_step(nullptr); }
    };
    {
      const Within within(all, facts);
      const ElasticRuns::Nesting together(all.elastic(), true);
      step_(ProgramSteps<Replicas>::of(this->batch_));
    }
    if (!facts.has_sent) all.exchange_requests(facts.requests);
  }
  bool is_of_program() const override { return true; }

 private:
  Function& step_;
};

/// A step of the program, as an argument of run_fit.
template <class Function>
struct ProgramStepOf {
  static constexpr bool reads_batches = true;
  Function& step;
  template <class Replicas, class Batches>
  auto steps(Replicas& replicas, Batches& batches) const {
    return CustomSteps<Replicas, Batches, Function>(replicas, batches, step);
  }
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/step/program_steps.ipp"
#endif
