/// \file
/// Options of `fit`, `evaluate` and `predict`: plain aggregates for designated initializers.
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
#include "lockstep/training/report/progress.hpp"

namespace lockstep {

namespace detail {
template <class C, class... Others>
struct CallbackByValue {
  static_assert(
      always_false<C>,
      "lockstep::Callback: an object of a class of callbacks is given as a shared pointer; "
      "write .callbacks = {std::make_shared<C>(...)}");
};
/// A callback, or a plain pointer to one.
template <class C>
inline constexpr bool is_callback =
    std::is_base_of_v<Callback, std::remove_pointer_t<std::remove_cvref_t<C>>>;

/// A shared pointer to the options of one of the library's callbacks, such as CSVLogger.
template <class C>
inline constexpr bool points_to_options = false;
template <class C>
inline constexpr bool points_to_options<std::shared_ptr<C>> =
    !std::is_base_of_v<Callback, C> && std::is_convertible_v<const C&, std::shared_ptr<Callback>>;

template <class C>
concept InCallbacks =
    points_to_options<C> || std::is_convertible_v<const C&, std::shared_ptr<Callback>>;

template <InCallbacks C>
std::shared_ptr<Callback> to_callback(const C& callback) {
  if constexpr (points_to_options<C>)
    return callback ? std::shared_ptr<Callback>(*callback) : nullptr;
  else
    return callback;
}
}  // namespace detail

/// The callbacks of a run, in the order of their calls: `{ls::EarlyStopping{.patience = 3},
/// std::make_shared<MyCallback>()}`.
struct Callbacks : std::vector<std::shared_ptr<Callback>> {
  using Base = std::vector<std::shared_ptr<Callback>>;
  using Base::Base;
  Callbacks(Base all) : Base(std::move(all)) {}
  /// Refuses objects of callbacks in a sentence.
  template <class... Cs>
    requires((detail::is_callback<Cs> || ...))
  Callbacks(const Cs&...) {
    static_assert(sizeof(detail::CallbackByValue<Cs...>) > 0);
  }
  /// Accepts std::make_shared<ls::CSVLogger>(...) too, next to a custom callback's pointer.
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
  std::optional<std::uint64_t> steps_per_epoch{};  ///< the data then go on from epoch to epoch
  /// Counted from 0; fit runs epochs - initial_epoch epochs. Epoch k of a model that has trained
  /// nothing has the order, dropout masks and augmentation of epoch k of an uninterrupted fit; a
  /// model that has trained goes on with the next pass, at least the k-th. With `steps_per_epoch`
  /// the data go on after the first k epochs' examples: of the last pass, or of a first one.
  int initial_epoch = 0;
  int validation_freq = 1;                          ///< epochs from one validation to the next
  std::optional<std::uint64_t> validation_steps{};  ///< default: all validation data
  /// Steps between two calls of the callbacks, which then see the first one's number and the last
  /// one's logs. A GPU runs them without a word from the host: see docs/gpu.md.
  std::uint64_t steps_per_execution = 1;
  ClassWeights class_weight{};     ///< of training examples; a class without one has 1
  std::uint64_t verify_every = 0;  ///< compare the replicas' weights after each so many steps too
  Callbacks callbacks{};
  /// Ends training after the current step, or, with other processes, execution; validation after
  /// its batch.
  std::stop_token stop{};
  ProgressStyle progress = ProgressStyle::automatic;
};

/// Options of `Model::profile`.
struct ProfileOptions {
  std::size_t steps = 10;   ///< that are measured
  std::size_t warm_up = 3;  ///< before them, for what is made once
};

/// Options of `Model::evaluate` and `Model::predict`.
struct EvaluateOptions {
  std::optional<std::uint64_t> steps{};  ///< default: all data
  Callbacks callbacks{};
  std::stop_token stop{};  ///< ends the run after the current batch
  ProgressStyle progress = ProgressStyle::none;
};

}  // namespace lockstep
