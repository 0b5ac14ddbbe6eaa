/// \file
/// Options of `fit`, `evaluate`, `predict` and `profile`: aggregates for designated initializers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/core/type_list.hpp"
#include "lockstep/data/operations/class_weights.hpp"
#include "lockstep/training/checkpoint/checkpoint_options.hpp"
#include "lockstep/training/report/progress.hpp"

namespace lockstep {

namespace detail {
/// The error for a custom callback passed by value or by raw pointer.
template <class C, class... Others>
struct CallbackByValue {
  static_assert(always_false<C>,
                "lockstep::Callback: a custom callback must be passed as a shared pointer; write "
                ".callbacks = {std::make_shared<C>(...)}");
};
/// Whether C, or what C points to, is a callback.
template <class C>
inline constexpr bool is_callback =
    std::is_base_of_v<Callback, std::remove_pointer_t<std::remove_cvref_t<C>>>;

/// Whether C is a shared pointer to the options of a library callback, such as CSVLogger.
template <class C>
inline constexpr bool points_to_options = false;
template <class C>
inline constexpr bool points_to_options<std::shared_ptr<C>> =
    !std::is_base_of_v<Callback, C> && std::is_convertible_v<const C&, std::shared_ptr<Callback>>;

/// Convertible to an element of Callbacks.
template <class C>
concept InCallbacks =
    points_to_options<C> || std::is_convertible_v<const C&, std::shared_ptr<Callback>>;

/// The callback of a pointer to options, or the pointer itself; null pointers stay null.
template <InCallbacks C>
std::shared_ptr<Callback> to_callback(const C& callback) {
  if constexpr (points_to_options<C>)
    return callback ? std::shared_ptr<Callback>(*callback) : nullptr;
  else
    return callback;
}
}  // namespace detail

/// The callbacks of a run, in the order in which their hooks are called.
/// \code
///   ls::Callbacks callbacks{ls::EarlyStopping{.patience = 3}, std::make_shared<MyCallback>()};
/// \endcode
struct Callbacks : std::vector<std::shared_ptr<Callback>> {
  using Base = std::vector<std::shared_ptr<Callback>>;
  using Base::Base;
  Callbacks(Base all) : Base(std::move(all)) {}
  /// Emits one error for callbacks passed by value.
  template <class... Cs>
    requires((detail::is_callback<Cs> || ...))
  Callbacks(const Cs&...) {
    static_assert(sizeof(detail::CallbackByValue<Cs...>) > 0);
  }
  /// Also accepts pointers to options: `std::make_shared<ls::CSVLogger>(...)`.
  template <detail::InCallbacks... Cs>
    requires((detail::points_to_options<Cs> || ...))
  Callbacks(const Cs&... all) : Base{detail::to_callback(all)...} {}
};

/// Options of `Model::fit`, with Keras' names and defaults.
/// \code
///   model.fit(train, {.epochs = 3, .steps_per_epoch = 5});
/// \endcode
struct FitOptions {
  int epochs = 1;                                  ///< number of the last epoch, counted from 1
  std::optional<std::uint64_t> steps_per_epoch{};  ///< epochs then share one pass over the data
  /// First epoch, counted from 0; `fit` runs epochs - initial_epoch epochs. In a new model, epoch k
  /// has the order, dropout masks and augmentation of epoch k of an uninterrupted fit. A model that
  /// has trained continues with its next pass, or with pass k if that is later. With
  /// `steps_per_epoch`, training continues after the examples of the first k epochs: of the model's
  /// last pass or, in a new model, of the first.
  int initial_epoch = 0;
  int validation_freq = 1;                          ///< epochs from one validation to the next
  std::optional<std::uint64_t> validation_steps{};  ///< batches; default: all validation data
  /// Steps between two calls of the batch hooks, which get the number of the first step and the
  /// logs of the last. A GPU runs these steps without waiting for the host; see docs/gpu.md.
  std::uint64_t steps_per_execution = 1;
  ClassWeights class_weight{};  ///< of training examples or their positions, by class; default 1
  /// Steps between two comparisons of the replicas' weights, in addition to the one before the
  /// first epoch; 0: none.
  std::uint64_t verify_every = 0;
  Callbacks callbacks{};
  CheckpointOptions checkpoint{};  ///< needs <lockstep/checkpoints.hpp>
  /// Ends training after the current step (with several processes, after the current execution),
  /// and validation after the current batch.
  std::stop_token stop{};
  ProgressStyle progress = ProgressStyle::automatic;
};

/// Options of `Model::profile`.
struct ProfileOptions {
  std::size_t steps = 10;   ///< measured
  std::size_t warm_up = 3;  ///< before the measured ones, to exclude one-time costs
};

/// Options of `Model::evaluate` and `Model::predict`.
struct EvaluateOptions {
  std::optional<std::uint64_t> steps{};  ///< batches; default: all data
  Callbacks callbacks{};
  std::stop_token stop{};  ///< ends the run after the current batch
  ProgressStyle progress = ProgressStyle::none;
};

/// Options of `model.batches`.
struct BatchesOptions {
  ClassWeights class_weight{};  ///< as in FitOptions
};

}  // namespace lockstep
