/// \file
/// Options of `fit`, `evaluate` and `predict`: plain aggregates for designated initializers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/data/class_weights.hpp"
#include "lockstep/training/progress.hpp"

namespace lockstep {

/// Options of `Model::fit`, with Keras' names and defaults.
/// \code
///   model.fit(train, {.epochs = 3, .steps_per_epoch = 5});
/// \endcode
struct FitOptions {
  int epochs = 1;                                  ///< number of the last epoch, counted from 1
  std::optional<std::uint64_t> steps_per_epoch{};  ///< the data then go on from epoch to epoch
  /// Counted from 0; fit runs epochs - initial_epoch epochs. Epoch k of a model that has trained
  /// nothing has the order, dropout masks and augmentation of epoch k of an uninterrupted fit; a
  /// model that has trained goes on with the next pass, at least the k-th. With `steps_per_epoch`
  /// the data go on after the first k epochs' examples: of the last pass, or of a first one.
  int initial_epoch = 0;
  int validation_freq = 1;                          ///< validate after each so many epochs
  std::optional<std::uint64_t> validation_steps{};  ///< default: all validation data
  /// Steps between two calls of the callbacks, which then see the first one's number and the last
  /// one's logs. A GPU runs them without a word from the host: see docs/gpu.md.
  std::uint64_t steps_per_execution = 1;
  ClassWeights class_weight{};     ///< of training examples; a class without one has 1
  std::uint64_t verify_every = 0;  ///< compare the replicas' weights after each so many steps too
  std::vector<std::shared_ptr<Callback>> callbacks{};
  /// Ends training after the current step, or, with other processes, execution; validation after
  /// its batch.
  std::stop_token stop{};
  ProgressStyle progress = ProgressStyle::automatic;
};

/// Options of `Model::evaluate` and `Model::predict`.
struct EvaluateOptions {
  std::optional<std::uint64_t> steps{};  ///< default: all data
  std::vector<std::shared_ptr<Callback>> callbacks{};
  std::stop_token stop{};  ///< ends the run after the current batch
  ProgressStyle progress = ProgressStyle::none;
};

}  // namespace lockstep
