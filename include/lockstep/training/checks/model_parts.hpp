/// \file
/// The loss and the metrics of a model as its replicas compute them: those that the program passes,
/// or, if these are for outputs by name, those of the network's output row.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lockstep/concepts/heads.hpp"
#include "lockstep/core/type_list.hpp"

namespace lockstep::detail {

template <class Net, class L, class... Ms>
struct ModelParts {
  using Loss = L;
  using Metrics = std::tuple<Ms...>;
  static const L& bound(const L& loss) { return loss; }
};

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
};

/// `Template<First..., metrics...>` of the metrics in a tuple.
template <template <class...> class Template, class Metrics, class... First>
struct WithMetrics;
template <template <class...> class Template, class... Ms, class... First>
struct WithMetrics<Template, std::tuple<Ms...>, First...> {
  using type = Template<First..., Ms...>;
};

}  // namespace lockstep::detail
