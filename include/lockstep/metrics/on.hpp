/// \file
/// Metrics of one output of a network with several.
///
/// Not part of <lockstep/lockstep.hpp>; include <lockstep/heads.hpp>.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/concepts/heads.hpp"
#include "lockstep/concepts/metric.hpp"
#include "lockstep/core/fixed_string.hpp"
#include "lockstep/metrics/weighted.hpp"

namespace lockstep {

/// The op of a metric of one head.
template <class O, HeadPlace place>
struct OnOp {
  using target_type = float;
  O op;
};

namespace detail {

/// M on the output at `place`, whose loss has targets of type Target.
template <FixedString output_name, Metric M, HeadPlace place, class Target>
struct MetricOn {
  struct Texts {
    static constexpr std::array<std::string_view, 3> parts{output_name.view(), "_", M::name};
  };
  using metric_type = M;
  static constexpr HeadPlace head = place;
  static constexpr std::string_view name = Joined<Texts>::value;
  static constexpr std::size_t state_size = M::state_size;
  static constexpr bool is_weighted = is_weighted_metric<M>, reads_mask = reads_output_mask<M>;
  /// Where Keras puts "weighted_" into the name.
  static constexpr std::size_t name_begin = output_name.view().size() + 1;
  M metric = {};

  void check() const {
    if constexpr (requires { metric.check(); }) metric.check();
  }
  template <class Row>
  static constexpr bool accepts(Shape) {
    return M::template accepts<Target>(place.shape);
  }
  template <class Row>
  constexpr auto op(Shape) const {
    using O = std::remove_cvref_t<decltype(metric.template op<Target>(place.shape))>;
    return OnOp<O, place>{metric.template op<Target>(place.shape)};
  }
  double result(const double* state) const { return metric.result(state); }
};

}  // namespace detail

/// Metric M of the output `output_name`, in logs as "digit_accuracy". With `Weighted<M>` each
/// example, or position, has the weight of this output.
/// \code
///   ls::On<"digit", ls::Accuracy>{}
///   ls::On<"even", ls::BinaryAccuracy>{{.threshold = 0}}
///   ls::On<"tags", ls::Weighted<ls::Accuracy>>{}          // "tags_accuracy", padded steps left out
/// \endcode
template <FixedString output_name, Metric M>
struct On {
  static constexpr std::string_view output = output_name.view(), name = M::name;
  static constexpr std::size_t state_size = M::state_size;
  template <HeadPlace place, class Target>
  using at = detail::MetricOn<output_name, M, place, Target>;
  M metric = {};

  double result(const double* state) const { return metric.result(state); }
};

}  // namespace lockstep
