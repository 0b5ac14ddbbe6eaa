/// \file
/// The steps that a program makes itself: in its own loop, or as the step of a `fit`. Invariants:
/// within `fit` the exchanges of a step carry the requests of the fit, and one loss of each step is in
/// the epoch's logs; outside of it a step leaves no sums.
#pragma once

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
#include "lockstep/training/step_batch.hpp"
#include "lockstep/training/checks/run_checks.hpp"
#include "lockstep/training/elastic/elastic_runs.hpp"
#include "lockstep/training/gradients.hpp"
#include "lockstep/training/run.hpp"
#include "lockstep/training/step/batches.hpp"

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

/// One step, or a part of one, of a model that a program trains itself.
template <class Replicas>
class ProgramSteps {
 public:
  using T = typename Replicas::T;
  using Target = typename Replicas::Target;
  using Batch = lockstep::Batch<T, Target>;
  using Network = typename Replicas::Network;

  ProgramSteps(Replicas& replicas, BetweenRuns& kept) : replicas_(replicas), kept_(kept) {}
  static Batch of(const LoadedBatch& loaded) { return {loaded, input_size, target_size}; }

  Logs train(const Batch& batch) {
    begin("train_step", batch);
    replicas_.train(batch.loaded(), kept_.rate_of(replicas_), requests());
    sent();
    return logs(true);
  }
  Logs test(const Batch& batch) {
    begin("test_step", batch);
    replicas_.test(batch.loaded());
    return logs(false);
  }
  /// `dy` may be null: the loss is the model's.
  Gradients<T> gradients(const Batch& batch, const T* dy = nullptr) {
    begin("gradients_of", batch, dy == nullptr);
    const double rate =
        replicas_.compute_gradients(batch.loaded(), kept_.rate_of(replicas_), requests(), dy);
    sent();
    Logs its = logs(true);
    return {replicas_.complete_gradients(), named_parameters<Network>(), rate, std::move(its)};
  }
  std::vector<T> input_gradients(const Batch& batch) {
    begin("input_gradients", batch);
    std::vector<T> all;
    replicas_.input_gradients(batch.loaded(), all);
    return rows(batch, std::move(all), input_size);
  }
  std::vector<T> predict(const Batch& batch) {
    std::vector<T> all;
    replicas_.predict(batch.loaded(), all);
    return rows(batch, std::move(all), Network::output_shape.size());
  }

  /// A batch in memory; `scope` is absent if the program names none. Collective.
  /// \throws UsageError.
  Batch in_memory(const char* call, std::optional<BatchScope> scope, std::span<const T> x,
                  std::span<const Target> y, std::span<const T> w) const {
    const std::size_t count = examples_of<Network>(call, x).count();
    if (count == 0) throw UsageError("{}: the batch is empty; pass at least one example", call);
    if (y.size() != count * target_size)
      throw UsageError("{}: {} examples need {} target values, not {}", call, count,
                       count * target_size, y.size());
    if (!w.empty()) check_weighs<Network, typename Replicas::device, typename Replicas::Loss>();
    check_weights(call, w, count);
    const BatchSlice slice = slice_of_passed(
        call, scope, count,
        [&](Digest64& digest) {
          digest.add(std::as_bytes(x));
          digest.add(std::as_bytes(y));
          digest.add(std::as_bytes(w));
        },
        !w.empty());
    return {Replicas::Layout::in_memory(slice, x.data(), y.data(), w.empty() ? nullptr : w.data()),
            input_size, target_size};
  }
  /// The same without targets.
  Batch examples(const char* call, std::optional<BatchScope> scope, std::span<const T> x) const {
    const std::size_t count = examples_of<Network>(call, x).count();
    const BatchSlice slice = slice_of_passed(
        call, scope, count, [&](Digest64& digest) { digest.add(std::as_bytes(x)); }, false);
    return {Replicas::Layout::in_memory(slice, x.data()), input_size, target_size};
  }

 private:
  using Step = typename Replicas::ProgramStep;
  static constexpr std::size_t input_size = Network::input_shape.size();
  static constexpr std::size_t target_size =
      Replicas::Loss::target_shape(Network::output_shape).size();

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
    BatchSlice slice = slice_passed(call, all, replicas_.session().rank(), replicas_.slices());
    slice.pass = kept_.passes;
    return slice;
  }

  void begin(const char* call, const Batch& batch, bool reads_targets = true) {
    if (reads_targets && batch.y().data() == nullptr)
      throw UsageError("{}: the batch has no targets; pass them to `batch`, or use with_targets",
                       call);
    check_weights(call, batch.weights(), batch.size());
    Replicas::check_labels(batch.loaded());
    if (replicas_.program_step() != nullptr) return;
    replicas_.discard_pending_steps();
    replicas_.swap_averages(false);  // they are exchanged after an epoch with SwapEMAWeights
  }
  /// Those of the fit, or a learning rate that the program has set since the last step.
  RunRequests requests() {
    if (const Step* const step = replicas_.program_step()) return step->requests;
    RunRequests mine;
    if (!replicas_.is_alone()) mine.learning_rate = std::exchange(kept_.unsent_rate, std::nullopt);
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
  /// The rows of this process' share of the batch.
  static std::vector<T> rows(const Batch& batch, std::vector<T> all, std::size_t width) {
    if (batch.size() == batch.global_size()) return all;
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(batch.first() * width);
    return {first, first + static_cast<std::ptrdiff_t>(batch.size() * width)};
  }

  Replicas& replicas_;
  BetweenRuns& kept_;
};

/// Steps of a `fit` with a step of the program, `step(batch)`.
template <class Replicas, class Batches, class Function>
class CustomSteps final : public StepsOver<Replicas, Batches> {
 public:
  using Batch = typename ProgramSteps<Replicas>::Batch;

  CustomSteps(Replicas& replicas, Batches& batches, const Function& step)
      : StepsOver<Replicas, Batches>(replicas, batches), step_(step) {}
  void run_step(const RunRequests& requests, double, bool) override {
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
    if (!facts.has_sent) all.exchange_requests(requests);
  }
  bool is_of_program() const override { return true; }

 private:
  const Function& step_;
};

/// A step of the program, as an argument of run_fit.
template <class Function>
struct ProgramStepOf {
  static constexpr bool reads_batches = true;
  const Function& step;
  template <class Replicas, class Batches>
  auto steps(Replicas& replicas, Batches& batches) const {
    return CustomSteps<Replicas, Batches, Function>(replicas, batches, step);
  }
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/step/program_steps.ipp"
#endif
