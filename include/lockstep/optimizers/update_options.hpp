/// \file
/// What all optimizers can be told alike. Invariant: the order is Keras': accumulate, clip, decay,
/// update, average.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// Texts to look for in names: {"bias", "gamma"}.
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

/// Options of all optimizers, as Keras names them; `weight_decay` is the optimizer's own.
///
/// - `clipnorm`: the gradient of each parameter is scaled down to this norm, if it is larger.
/// - `global_clipnorm`: the gradients of all parameters together.
/// - `clipvalue`: each element is cut to [-clipvalue, clipvalue]. 0 means none; one of the three.
///   All of them see the gradient of the global batch, penalties included.
/// - `exclude_from_weight_decay`: parameters whose name contains one of these texts do not decay.
/// - `use_ema`: keeps average = ema_momentum average + (1 - ema_momentum) w after each step (in the
///   first: w). The weights become the averages every `ema_overwrite_frequency` updates (0: never)
///   and when `fit` ends.
/// - `gradient_accumulation_steps`: the mean of the gradients of so many steps makes one update.
///   Schedules count steps, not updates. \code ls::SGD{.learning_rate = 0.1, .weight_decay = 1e-4,
///   .with = {.global_clipnorm = 1, .exclude_from_weight_decay = {"bias", "gamma"}}}
/// \endcode
struct UpdateOptions {
  double clipnorm = 0, global_clipnorm = 0, clipvalue = 0;
  NameList exclude_from_weight_decay = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::uint64_t ema_overwrite_frequency = 0;
  std::uint64_t gradient_accumulation_steps = 1;
};

namespace detail {

/// \throws UsageError, unless `right`.
LOCKSTEP_COLD_DECL void require(bool right, std::string_view name, const char* what, double value,
                                const char* remedy);

/// \throws UsageError if what keeps a divisor from 0 is not a positive number.
LOCKSTEP_COLD_DECL void check_epsilon(std::string_view name, double epsilon);

/// What the optimizer `name` was told. \throws UsageError for numbers that cannot be, and for
/// options that contradict each other or have no effect.
LOCKSTEP_COLD_DECL void check_update_options(std::string_view name, double weight_decay,
                                             const UpdateOptions& o);

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/optimizers/update_options.ipp"
#endif
