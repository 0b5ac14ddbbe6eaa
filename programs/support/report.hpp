/// \file
/// The contents of a program's report; report_file.hpp writes it. Invariant: plain values
/// only, so that the units compile without the JSON library.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/concepts/callback.hpp>
#include <lockstep/core/slice.hpp>
#include <lockstep/model/memory_plan.hpp>
#include <lockstep/training/step/update_counts.hpp>

#include "support/strategy.hpp"

namespace support {

/// Records a run's losses and times for the report.
class Recorder : public lockstep::Callback {
 public:
  std::vector<double> step_loss, step_accuracy, step_ms;
  std::vector<double> step_bytes;                                   ///< sent by this process
  std::vector<std::vector<std::pair<std::string, double>>> epochs;  ///< logs, plus "seconds"
  std::size_t steps = 0;
  std::uint64_t first_step = 0;  ///< above 0 in a run that continues from a checkpoint

  bool has_begun = false;

  void on_train_begin(const lockstep::Logs&) override;
  void on_epoch_begin(int, const lockstep::Logs&) override;
  void on_train_batch_begin(std::size_t step, const lockstep::Logs&) override;
  void on_train_batch_end(std::size_t step, const lockstep::Logs& logs) override;
  void on_epoch_end(int, const lockstep::Logs& logs) override;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point epoch_start_{}, last_{};
  std::size_t first_ = 0;
  std::uint64_t last_sent_ = 0;
};

/// The report of one run.
struct Report {
  /// The model and the job.
  struct Made {
    std::string strategy, device, precision, update, wire;
    int threads = 0;
    std::size_t replicas = 0, parameters = 0, trainable_parameters = 0, batch = 0;
    std::uint64_t seed = 0, first_step = 0;
    std::vector<std::string> fused;
    lockstep::MemoryPlan memory_plan{};  ///< of the largest slice of a batch
    std::size_t optimizer_bytes = 0;     ///< slots of all replicas of this process
    bool has_workers = false;
    std::size_t workers = 0, rank = 0;
    bool has_phases = false;  ///< asynchronous steps, or backup workers
    std::size_t backup_workers = 0;
    std::size_t heard_together = 1;  ///< steps of which the process hears at once
  };
  /// The results of training.
  struct Run {
    std::vector<double> step_loss, step_accuracy, step_ms, step_bytes;
    std::vector<std::vector<std::pair<std::string, double>>> epochs;
    std::vector<std::string> replica_digests;
    std::size_t planned_bytes = 0, resident_bytes = 0;  ///< at the peak
    lockstep::UpdateCounts updates{};                   ///< of steps in phases
    std::size_t steps = 0;
  };

  std::string program{};
  std::optional<Made> made{};
  std::optional<Run> run{};
  std::optional<std::string> error{};
  std::size_t tokens_per_example = 0;      ///< 0: examples are not of tokens
  std::optional<std::string> generated{};  ///< by a language model; bytes of any encoding
  bool is_requested = true;  ///< the chief always writes a report, the others only after an error

  void describe(Made what, bool is_chief);
  /// Sets the results. `planned_bytes`: of all replicas of this process.
  void finish(const Recorder& recorder, std::vector<std::string> replica_digests,
              std::size_t planned_bytes, const lockstep::UpdateCounts& updates);
  void fail(const std::string& what);
  /// "rank 1: " before the messages of processes other than the chief; empty for the chief.
  std::string rank_prefix() const;
};

/// Describes a model for the report.
template <template <class...> class ModelOf, class Net, class S, class... Parts>
Report::Made describe(const ModelOf<Net, S, Parts...>& model, const Options& options) {
  using Model = ModelOf<Net, S, Parts...>;
  using D = typename Model::device;
  const std::size_t shards = model.strategy().virtual_shards,
                    slices = shards > 0 ? shards : model.replicas();
  const std::size_t batch = options.batch;
  Report::Made made{
      .strategy = std::string(S::name),
      .device = std::string(D::name),
      .precision = std::string(D::precision),
      .update = options.update,
      .wire = options.wire,
      .threads = model.threads(),
      .replicas = model.replicas(),
      .parameters = Model::parameter_count,
      .trainable_parameters = Model::trainable_count,
      .batch = batch,
      .seed = model.seed(),
      .first_step = model.steps(),
      .fused = Model::fused(),
      .memory_plan = lockstep::memory_plan<Net, D>(lockstep::slice_of(batch, slices, 0).count),
      .has_workers = has_workers<S>};
  for (std::size_t i = 0; i < model.local_replicas(); ++i)
    made.optimizer_bytes += model.memory(i).optimizer;
  if constexpr (has_workers<S>) {
    // With parameter servers not every process is a worker.
    made.workers = has_servers<S> ? model.replicas() : model.workers();
    made.rank = model.rank();
    if constexpr (has_servers<S>) {
      made.backup_workers = model.strategy().backup_workers;
      made.has_phases = model.strategy().asynchronous || made.backup_workers > 0;
    }
    if (made.has_phases) made.heard_together = 4 * made.workers;
  }
  if constexpr (requires { model.strategy().policy.steps; })
    made.heard_together = model.strategy().policy.steps;
  return made;
}

}  // namespace support
