/// \file
/// The options that all optimizers share. Invariant: the order is that of Keras:
///
///     accumulate ──> clip ──> decay ──> update ──> average (EMA)
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// Substrings of parameter names, such as {"bias", "gamma"}.
class NameList {
 public:
  NameList() = default;
  LOCKSTEP_COLD_DECL NameList(std::initializer_list<std::string_view> names);
  // Compiled once: optimizers are copied and moved in many places.
  LOCKSTEP_COLD_DECL NameList(const NameList& other);
  LOCKSTEP_COLD_DECL NameList(NameList&& other) noexcept;
  LOCKSTEP_COLD_DECL NameList& operator=(NameList other) noexcept;
  LOCKSTEP_COLD_DECL ~NameList();

  bool empty() const { return names_.empty(); }
  auto begin() const { return names_.begin(); }
  auto end() const { return names_.end(); }

 private:
  std::vector<std::string> names_;
};

/// The options of all optimizers, with Keras' names; `weight_decay` is a member of each optimizer.
///
/// - `clipnorm`: scales the gradient of each parameter down to this L2 norm if it is larger.
/// - `block_clipnorm`: does so with the gradient of each named block, the innermost one of a layer, and
///   of each layer outside of named blocks.
/// - `global_clipnorm`: does so with the gradient of all parameters together.
/// - `clipvalue`: clips each element to [-clipvalue, clipvalue].
///   At most one of the four may be set; 0 means off. They apply to the gradient of the global
///   batch, including penalties.
/// - `exclude_from_weight_decay`: parameters whose name contains one of these do not decay. A text
///   that no parameter of the model nor of the library's layers contains is an error.
/// - `use_ema`: keeps average = ema_momentum average + (1 - ema_momentum) w after each step (w
///   after the first). The averages overwrite the weights every `ema_overwrite_frequency` updates
///   (0: never) and when `fit` ends.
/// - `gradient_accumulation_steps`: one update uses the mean gradient of this many steps. Schedules
///   count steps, not updates.
/// \code
///   ls::SGD{.learning_rate = 0.1, .weight_decay = 1e-4,
///           .with = {.global_clipnorm = 1, .exclude_from_weight_decay = {"bias", "gamma"}}}
/// \endcode
struct UpdateOptions {
  double clipnorm = 0, global_clipnorm = 0, clipvalue = 0;
  NameList exclude_from_weight_decay = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::uint64_t ema_overwrite_frequency = 0;
  std::uint64_t gradient_accumulation_steps = 1;
  double block_clipnorm = 0;

  /// Whether an update needs norms of the gradient.
  bool clips_by_norm() const { return clipnorm > 0 || block_clipnorm > 0 || global_clipnorm > 0; }
};

namespace detail {

/// \throws UsageError, unless `right`.
LOCKSTEP_COLD_DECL void require(bool right, std::string_view name, const char* what, double value,
                                const char* remedy);

/// \throws UsageError if epsilon is not positive and finite.
LOCKSTEP_COLD_DECL void check_epsilon(std::string_view name, double epsilon);

/// Checks the options of the optimizer `name`. \throws UsageError for values out of range, and for
/// options that contradict each other or have no effect.
LOCKSTEP_COLD_DECL void check_update_options(std::string_view name, double weight_decay,
                                             const UpdateOptions& o);

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/optimizers/update_options.ipp"
#endif
