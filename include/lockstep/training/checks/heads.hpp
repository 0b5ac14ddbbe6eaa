/// \file
/// Models whose loss is for outputs by name: their parts and their errors.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lockstep/concepts/heads.hpp"
#include "lockstep/concepts/outputs.hpp"
#include "lockstep/core/type_list.hpp"
#include "lockstep/training/checks/model_checks.hpp"
#include "lockstep/training/checks/model_parts.hpp"

namespace lockstep::detail {

/// The index of a name among Net's outputs; their number if it is none.
template <class Net, class M>
constexpr std::size_t output_of_metric() {
  std::size_t o = 0;
  while (o < Net::outputs.size() && Net::outputs[o].name != M::output) ++o;
  return o;
}

/// Metric M on its output of Net, whose losses are `Loss`.
template <class Net, class Loss, class M>
struct BoundMetric {
  static constexpr std::size_t output = output_of_metric<Net, M>();
  static constexpr HeadPlace place = Loss::places[output];
  using Target = typename Loss::template HeadAt<output>::loss_type::target_type;
  using type = typename M::template at<place, Target>;
};

template <class Net, BindsOutputs L, class... Ms>
struct ModelParts<Net, L, Ms...> {
  using Loss = typename L::template on<Net>;
  static Loss bound(const L& loss) { return Loss(loss.heads); }
  template <class M>
  using Bound = typename BoundMetric<Net, Loss, M>::type;
  using Metrics = decltype(std::tuple_cat(std::declval<typename Loss::Means>(),
                                          std::declval<std::tuple<Bound<Ms>...>>()));
  template <class Check>
  static Metrics metrics(const L& loss, const Check& check, Ms... metrics) {
    [[maybe_unused]] const Loss whole = bound(loss);
    return std::tuple_cat(typename Loss::Means(),
                          std::make_tuple(check(Bound<Ms>{std::move(metrics).metric}, whole)...));
  }
};

template <class M>
struct NotOfOutput {
  static_assert(always_false<M>,
                "lockstep::Model: 'M', a metric, must name an output of a network with several "
                "losses; write ls::On<\"output\", M>{}");
};
template <class M>
struct OfUnknownOutput {
  static_assert(always_false<M>,
                "lockstep::Model: the network has no output of the name in 'M'; the names are "
                "those of its ls::Out");
};
template <class M>
struct OnWithoutLosses {
  static_assert(always_false<M>,
                "lockstep::Model: 'M' is a metric of an output by name, but the loss is that of "
                "the whole network; write ls::Losses{ls::Head<\"output\", loss>{}}, or the metric "
                "without ls::On");
};

/// The error for the first metric that is not of an output.
template <class N, class M, class... Ms>
constexpr auto no_metric_of_output() {
  if constexpr (!OfOutput<M>)
    return std::type_identity<NotOfOutput<M>>();
  else if constexpr (output_of_metric<N, M>() == N::outputs.size())
    return std::type_identity<OfUnknownOutput<M>>();
  else
    return no_metric_of_output<N, Ms...>();
}
/// The error for the first metric of an output.
template <class M, class... Ms>
constexpr auto on_without_losses() {
  if constexpr (OfOutput<M>)
    return std::type_identity<OnWithoutLosses<M>>();
  else
    return on_without_losses<Ms...>();
}

template <class N, class M>
constexpr bool is_of_output() {
  if constexpr (OfOutput<M>)
    return output_of_metric<N, M>() < N::outputs.size();
  else
    return false;
}

/// ModelVerdict as a class.
template <class... OfModel>
struct VerdictOf {
  static constexpr auto verdict() { return verdict_of<OfModel...>(); }
};

template <class N, class S, class L, class O, class... Ms>
struct HeadsVerdict {
  static constexpr auto verdict() {
    if constexpr (!BindsOutputs<L>) {
      return on_without_losses<Ms...>();
    } else {
      using Fault = typename decltype(L::template fault<N>())::type;
      if constexpr (!std::is_void_v<Fault>) {
        return std::type_identity<Fault>();
      } else if constexpr (!(is_of_output<N, Ms>() && ...)) {
        return no_metric_of_output<N, Ms...>();
      } else {
        using Bound = ModelParts<N, L, Ms...>;
        return WithMetrics<VerdictOf, typename Bound::Metrics, N, S, typename Bound::Loss,
                           O>::type::verdict();
      }
    }
  }
};

}  // namespace lockstep::detail
