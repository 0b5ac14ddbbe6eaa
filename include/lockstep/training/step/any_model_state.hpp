/// \file
/// Everything that a training step changes in a model, whatever its type. Invariant: it is the same in
/// all processes of a job between two steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/concepts/named_tensor.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/owned_ranges.hpp"
#include "lockstep/training/export/architecture.hpp"
#include "lockstep/training/export/load_options.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

struct JobState;
struct StateLayout;

/// The state of all replicas of a model. Implemented by Replicas only.
class AnyModelState {
 public:
  virtual std::uint64_t seed() const = 0;
  /// Training steps over the model's life, skipped ones included.
  virtual std::uint64_t steps() const = 0;
  /// Steps without those that a loss scale skipped because gradients overflowed.
  virtual std::uint64_t updates() const = 0;
  /// The optimizer's own rate or schedule for the next step.
  virtual double learning_rate() const = 0;
  /// Copies the weights' exponential moving averages over the weights (Keras' use_ema).
  virtual void overwrite_with_averages() = 0;
  /// Exchanges weights and averages; see TrainingControl.
  virtual void swap_averages(bool averages) = 0;
  virtual bool has_averages_in_weights() const = 0;
  /// Weights and state as bytes, for callbacks that keep the best ones.
  virtual std::vector<std::byte> copy() const = 0;
  virtual void restore(std::span<const std::byte> copy) = 0;
  /// Properties that must be equal in all processes of a job, and when a job continues; see
  /// model_signature.
  virtual Signature signature() const = 0;
  virtual std::vector<ParameterInfo> parameters() const = 0;
  /// Whether each process holds all elements of the optimizer's buffers. Otherwise all processes of
  /// the job call `save` together.
  virtual bool is_whole() const = 0;
  /// Writes the model's part of the state: buffers, steps, loss scale, seed, replicas, signature.
  /// It is the same in all processes, except for buffers that each replica has of its own, which only
  /// the chief gets.
  virtual void save(JobState& to) = 0;
  /// The same without an exchange, as of the last complete step, also if a loss has ended the next
  /// one within its update. Unless `is_whole`, only this process' part of the slots; see OwnedState.
  virtual void save_own(JobState& to) = 0;
  /// The weights whose slots this process holds.
  virtual Ranges owned() const = 0;
  /// Restores what `save` wrote, except the signature. All processes call it with the same state.
  virtual void load(const JobState& from) = 0;
  /// Type, names and sizes of the buffers, and the signature; costs no copy of the buffers.
  virtual StateLayout layout() const = 0;
  /// Replaces a buffer, in the order of the layout, by what `fill` writes.
  virtual void set_buffer(std::size_t buffer, FunctionRef<void(std::span<std::byte>)> fill) = 0;
  /// Restores what `save` wrote, except the buffers and the signature.
  virtual void load_facts(const JobState& from) = 0;
  virtual bool is_finite() const = 0;
  virtual std::string not_finite() const = 0;
  virtual std::vector<NamedTensor> tensors() const = 0;
  virtual Architecture architecture() const = 0;
  /// See TrainingControl.
  virtual void set_trainable(const NamePatterns& layers, bool on) = 0;

 protected:
  AnyModelState() = default;
  AnyModelState(const AnyModelState&) = default;
  AnyModelState& operator=(const AnyModelState&) = default;
  ~AnyModelState() = default;
};

}  // namespace lockstep::detail
