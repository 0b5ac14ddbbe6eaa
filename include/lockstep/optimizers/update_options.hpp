/// \file
/// What all optimizers can be told alike. Invariant: the order is Keras': accumulate, clip, decay,
/// update, average.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/count.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/finite.hpp"

namespace lockstep {

/// Texts to look for in names: {"bias", "gamma"}.
class NameList {
 public:
  NameList() = default;
  [[gnu::noinline]] NameList(std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) names_.emplace_back(name);
  }
  // Not inlined: optimizers are copied and moved in many places.
  [[gnu::noinline]] NameList(const NameList& other) : names_(other.names_) {}
  [[gnu::noinline]] NameList(NameList&& other) noexcept : names_(std::move(other.names_)) {}
  [[gnu::noinline]] NameList& operator=(NameList other) noexcept {
    names_.swap(other.names_);
    return *this;
  }
  [[gnu::noinline]] ~NameList() {}

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
[[gnu::noinline, gnu::cold]] inline void require(bool right, std::string_view name,
                                                 const char* what, double value,
                                                 const char* remedy) {
  if (!right) throw UsageError({name, what, value, remedy});
}

/// \throws UsageError if what keeps a divisor from 0 is not a positive number.
[[gnu::noinline, gnu::cold]] inline void check_epsilon(std::string_view name, double epsilon) {
  require(epsilon > 0 && is_finite(epsilon), name, " epsilon ", epsilon,
          ": must be above 0; 1e-7 is usual");
}

/// What the optimizer `name` was told. \throws UsageError for numbers that cannot be, and for
/// options that contradict each other or have no effect.
[[gnu::noinline, gnu::cold]] inline void check_update_options(std::string_view name,
                                                              double weight_decay,
                                                              const UpdateOptions& o) {
  constexpr const char* positive = ": must be a number above 0, or 0 for none";
  const auto sized = [](double value) { return value >= 0 && value <= 1e300; };
  require(sized(weight_decay), name, " weight_decay ", weight_decay, positive);
  require(sized(o.clipnorm), name, " clipnorm ", o.clipnorm, positive);
  require(sized(o.global_clipnorm), name, " global_clipnorm ", o.global_clipnorm, positive);
  require(sized(o.clipvalue), name, " clipvalue ", o.clipvalue, positive);
  const int clips = (o.clipnorm > 0) + (o.global_clipnorm > 0) + (o.clipvalue > 0);
  require(clips < 2, name, " clipnorm, global_clipnorm, clipvalue: ", clips, " of them; give one");
  require(o.exclude_from_weight_decay.empty() || weight_decay != 0, name, " weight_decay ",
          weight_decay, ": there is nothing to exclude_from_weight_decay; give it too");
  require(o.ema_momentum >= 0 && o.ema_momentum <= 1, name, " ema_momentum ", o.ema_momentum,
          ": must be in [0, 1]; 0.99 is usual");
  require(o.use_ema || o.ema_overwrite_frequency == 0, name, " ema_overwrite_frequency ",
          static_cast<double>(o.ema_overwrite_frequency),
          ": there is no average; write .use_ema = true");
  check_count(text({name, " gradient_accumulation_steps"}), o.gradient_accumulation_steps);
  check_count(text({name, " ema_overwrite_frequency"}), o.ema_overwrite_frequency, 0);
}

}  // namespace detail
}  // namespace lockstep
