/// \file
/// Initializers and regularizers of parameters that are not called kernel or bias: an option
/// `Named<Rule>` holds the rule of one parameter.
#pragma once

#include <type_traits>

#include "lockstep/layers/initializers.hpp"
#include "lockstep/layers/regularizers.hpp"

namespace lockstep::detail {

/// Whether O is a `Named<Rule>`, for example a `DepthwiseInitializer<Rule>`.
template <class O, template <class> class Named>
inline constexpr bool is_rule_for = false;
template <class Rule, template <class> class Named>
inline constexpr bool is_rule_for<Named<Rule>, Named> = true;

/// The initializer in the `Named` option; `value` without one.
template <template <class> class Named, auto... Options>
constexpr Initializer initializer_for(Initializer value) {
  [[maybe_unused]] auto visit = [&]<auto O>() {
    if constexpr (is_rule_for<std::remove_cvref_t<decltype(O)>, Named>) value = &initialize<O.rule>;
  };
  (visit.template operator()<Options>(), ...);
  return value;
}

/// The penalty of the `Named` option; zero without one.
template <template <class> class Named, auto... Options>
constexpr Penalty penalty_for() {
  Penalty p;
  [[maybe_unused]] auto visit = [&]<auto O>() {
    if constexpr (is_rule_for<std::remove_cvref_t<decltype(O)>, Named>) p = O.rule.penalty();
  };
  (visit.template operator()<Options>(), ...);
  return p;
}

}  // namespace lockstep::detail
