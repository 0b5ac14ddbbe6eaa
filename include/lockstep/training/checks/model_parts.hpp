/// \file
/// The loss and the metrics of a model as its replicas compute them: those that the program passes,
/// or, if these are for outputs by name, those of the network's output row.
#pragma once

#include <tuple>
#include <utility>

namespace lockstep::detail {

/// heads.hpp has the parts of models whose loss is for outputs by name.
template <class Net, class L, class... Ms>
struct ModelParts {
  using Loss = L;
  using Metrics = std::tuple<Ms...>;
  static const L& bound(const L& loss) { return loss; }
  /// `check(metric, loss)` returns the metric.
  template <class Check>
  static Metrics metrics(const L& loss, const Check& check, Ms... metrics) {
    return {check(std::move(metrics), loss)...};
  }
};

/// `Template<First..., metrics...>` of the metrics in a tuple.
template <template <class...> class Template, class Metrics, class... First>
struct WithMetrics;
template <template <class...> class Template, class... Ms, class... First>
struct WithMetrics<Template, std::tuple<Ms...>, First...> {
  using type = Template<First..., Ms...>;
};

}  // namespace lockstep::detail
