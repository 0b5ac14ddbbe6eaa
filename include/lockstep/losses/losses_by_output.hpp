/// \file
/// Losses of several outputs. Invariants: a head is found by the name of its output, whatever the
/// order of the heads; each head has its own mean, over all examples, or positions that count, of
/// the whole job.
///
/// Not part of <lockstep/lockstep.hpp>; include <lockstep/heads.hpp>.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/heads.hpp"
#include "lockstep/concepts/loss.hpp"
#include "lockstep/concepts/metric.hpp"
#include "lockstep/concepts/outputs.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/fixed_string.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/core/type_list.hpp"

namespace lockstep {

/// The mean of one head's loss, with sample weights and without the head's weight, in the logs as
/// "digit_loss". Its state, the sum of the means of batches, each times its examples, and these
/// examples, is added by the kernel of all losses.
template <FixedString output_name>
struct HeadLoss {
  struct Texts {
    static constexpr std::array<std::string_view, 2> parts{output_name.view(), "_loss"};
  };
  static constexpr std::string_view name = detail::Joined<Texts>::value;
  static constexpr std::size_t state_size = 2;
  template <class Target>
  static constexpr bool accepts(Shape) {
    return true;
  }
  template <class Target>
  constexpr HeadLossOp<output_name> op(Shape) const {
    return {};
  }
  double result(const double* state) const { return state[1] != 0 ? state[0] / state[1] : 0; }
};

/// The loss of one output, `output`, of a network with several.
///
/// - `weight`: Keras' `loss_weights`, the factor of this loss in the sum of all.
/// - `masks`: sample weights of 0 are a mask. Examples, or positions, with weight 0 do not count in
///   the mean; otherwise they do, as Keras' sample weights.
/// - `class_weight`: Keras' `class_weight`, in training only: pairs (class, weight).
template <FixedString output_name, Loss L>
struct Head {
  using loss_type = L;
  using mean_type = HeadLoss<output_name>;
  static constexpr std::string_view output = output_name.view();
  L loss = {};
  double weight = 1;
  bool masks = false;
  std::vector<std::pair<int, double>> class_weight = {};
};

/// The op of all heads of one batch.
template <class Losses>
struct LossesOp {
  using target_type = float;
  const Losses* losses;
  /// Examples of the global batch, divided by those that a head's mean is over, for each head.
  std::array<double, Losses::count> scale;
  bool adds_means = false;  ///< to the states of the HeadLoss metrics, which follow the sum
  bool trains = true;       ///< class weights apply
};

namespace detail {

/// The position of the head of output o of Net; sizeof...(Heads) if it has none.
template <class Net, std::size_t o, class... Heads>
constexpr std::size_t head_of_output() {
  const std::array<std::string_view, sizeof...(Heads)> names{Heads::output...};
  std::size_t i = 0;
  while (i < names.size() && names[i] != Net::outputs[o].name) ++i;
  return i;
}
template <class Net, std::size_t o, class... Heads>
using HeadOf = At<head_of_output<Net, o, Heads...>(), Heads...>;

/// The places of the heads, in the order of Net's outputs.
template <class Net, class... Heads>
constexpr std::array<HeadPlace, sizeof...(Heads)> head_places() {
  return []<std::size_t... o>(std::index_sequence<o...>) {
    std::array<HeadPlace, sizeof...(Heads)> places{};
    const auto set = [&]<class L>(const L*, std::size_t i) {
      const RowPart port = Net::outputs[i];
      places[i].output = i;
      places[i].shape = port.shape;
      places[i].prediction = port.offset;
      places[i].target_shape = L::target_shape(port.shape);
      places[i].weight_shape = weighed_positions<L>(port.shape);
      places[i].targets = places[i].target_shape.size();
      places[i].weights = places[i].weight_shape.size();
    };
    (set(static_cast<const typename HeadOf<Net, o, Heads...>::loss_type*>(nullptr), o), ...);
    std::size_t targets = 0, weights = 0;
    for (HeadPlace& place : places) {
      place.target = targets;
      place.weight = weights;
      targets += place.targets;
      weights += place.weights;
    }
    for (HeadPlace& place : places) {
      place.row = Net::output_shape.size();
      place.target_row = targets;
      place.weight_row = weights;
    }
    return places;
  }(std::index_sequence_for<Heads...>{});
}

/// "digit: sparse_categorical_crossentropy, even: binary_crossentropy".
template <class Net, class... Heads>
struct LossTexts {
  static constexpr auto parts = []<std::size_t... o>(std::index_sequence<o...>) {
    const std::array<std::string_view, sizeof...(Heads)> losses{
        HeadOf<Net, o, Heads...>::loss_type::name...};
    std::array<std::string_view, 4 * sizeof...(Heads)> all{};
    for (std::size_t i = 0; i < losses.size(); ++i) {
      all[4 * i] = i == 0 ? "" : ", ";
      all[4 * i + 1] = Net::outputs[i].name;
      all[4 * i + 2] = ": ";
      all[4 * i + 3] = losses[i];
    }
    return all;
  }(std::index_sequence_for<Heads...>{});
};

/// The weight of a target's class, in a sorted list: of a label or number, or of the first maximum
/// of a row of scores. 1 without an entry.
template <class T>
double class_weight_of(const std::vector<std::pair<int, double>>& weights, const T* t,
                       std::size_t count) {
  if (weights.empty()) return 1;
  const double number = count == 1 ? std::nearbyint(static_cast<double>(t[0]))
                                   : static_cast<double>(std::max_element(t, t + count) - t);
  const auto found = std::lower_bound(weights.begin(), weights.end(), number,
                                      [](const auto& a, double b) { return a.first < b; });
  return found != weights.end() && found->first == number ? found->second : 1;
}

/// The losses of Net's outputs: a Loss of its whole output row.
///
///     loss = sum over heads of weight * sum(w l) / counted     over the global batch
///
/// `counted` are the head's examples, or positions, without padded steps, those of an ignored class,
/// and those of weight 0 if the head masks.
template <class Net, class... Heads>
class LossesOf {
 public:
  using target_type = float;
  static constexpr std::size_t count = sizeof...(Heads);
  static constexpr std::string_view name = Joined<LossTexts<Net, Heads...>>::value;
  /// In the order of the outputs.
  static constexpr std::array<HeadPlace, count> places = head_places<Net, Heads...>();
  template <std::size_t o>
  using HeadAt = HeadOf<Net, o, Heads...>;
  /// The head losses in logs, in the order of the outputs.
  template <std::size_t... o>
  static auto means_of(std::index_sequence<o...>) -> std::tuple<typename HeadAt<o>::mean_type...>;
  using Means = decltype(means_of(std::index_sequence_for<Heads...>{}));
  /// For each head: the examples, or positions, of its mean.
  using Counts = std::array<double, count>;

  explicit LossesOf(std::tuple<Heads...> heads) : heads_(std::move(heads)) {
    const auto sort = [](auto& weights) { std::sort(weights.begin(), weights.end()); };
    (sort(std::get<Heads>(heads_).class_weight), ...);
  }

  static constexpr bool accepts(Shape out) { return out == Net::output_shape; }
  static constexpr Shape target_shape(Shape) {
    return count == 1 ? places[0].target_shape : shape(places[0].target_row);
  }
  static constexpr Shape positions(Shape) {
    return count == 1 ? places[0].weight_shape : shape(places[0].weight_row);
  }
  constexpr LossesOp<LossesOf> op(Shape) const { return {this, ones()}; }

  /// Calls f(Constant<o>, head) for each output.
  template <class F>
  constexpr void each(F f) const {
    [&]<std::size_t... o>(std::index_sequence<o...>) {
      (f(Constant<o>{}, std::get<HeadAt<o>>(heads_)), ...);
    }(std::index_sequence_for<Heads...>{});
  }
  /// The head of output o.
  template <std::size_t o>
  const HeadAt<o>& head() const {
    return std::get<HeadAt<o>>(heads_);
  }

  /// \throws UsageError for an option out of its range.
  [[gnu::cold]] void check() const {
    each([]<std::size_t o>(Constant<o>, const HeadAt<o>& head) {
      if constexpr (requires { head.loss.check(); }) head.loss.check();
      if (!is_finite(head.weight))
        throw UsageError("losses: output '{}' has weight {}; weights must be finite", head.output,
                         head.weight);
      const auto& classes = head.class_weight;
      constexpr Shape shape = places[o].shape;
      constexpr bool are_labels =
          std::same_as<typename HeadAt<o>::loss_type::target_type, std::int32_t>;
      constexpr std::size_t width = places[o].targets / places[o].weights;
      const int most = are_labels ? shape.channels() : width > 1 ? static_cast<int>(width) : 0;
      for (std::size_t i = 0; i < classes.size(); ++i) {
        const auto& [number, weight] = classes[i];
        if (number < 0 || (most > 0 && number >= most))
          throw UsageError(
              "losses: output '{}' has a class_weight of class {}, but its classes are 0 to {}; "
              "change the last layer or the weights",
              head.output, number, most > 0 ? std::to_string(most - 1) : "any above");
        if (i > 0 && classes[i - 1].first == number)
          throw UsageError("losses: output '{}' has two class_weights of class {}; give one",
                           head.output, number);
        if (!is_finite(static_cast<float>(weight)))
          throw UsageError(
              "losses: output '{}' has class_weight {} of class {}; weights must be finite",
              head.output, weight, number);
      }
    });
  }

  /// \throws UsageError for a label that is not a class of its output. t (count, targets); `first`:
  /// place of the first example in the batch.
  template <class T>
  void check_labels(const T* t, std::size_t examples, std::size_t first) const {
    each([&]<std::size_t o>(Constant<o>, const HeadAt<o>& head) {
      if constexpr (std::same_as<typename HeadAt<o>::loss_type::target_type, std::int32_t>) {
        constexpr HeadPlace place = places[o];
        const auto ignored = ignored_class(head.loss.op(place.shape));
        for (std::size_t i = 0; i < examples * place.targets; ++i) {
          const std::size_t n = i / place.targets, k = i % place.targets;
          const double label = static_cast<double>(t[n * place.target_row + place.target + k]);
          const bool is_whole = label == std::nearbyint(label);
          if (is_whole && label >= 0 && label < place.shape.channels()) continue;
          if (ignored && label == *ignored) continue;
          throw UsageError(
              "labels: example {} of the batch has {} for output '{}'{}, whose classes are 0 to "
              "{}; {}",
              first + n, label, head.output,
              place.targets > 1 ? format_text(" at step {}", k) : std::string(),
              place.shape.channels() - 1,
              is_whole ? "change its last layer or the labels, or set .ignore_class in its loss"
                       : "labels are whole numbers; check the order of the targets");
        }
      }
    });
  }

  /// Whether the mean of a head is over other examples than the whole batch.
  bool counts() const {
    bool result = false;
    each([&]<std::size_t o>(Constant<o>, const HeadAt<o>& head) {
      result = result || head.masks || ignored_class(head.loss.op(places[o].shape));
    });
    return result;
  }
  /// The examples, or positions, of each head's mean, among these. t (examples, targets), w (examples,
  /// weights) or null; is_step(n, i): weight i of example n is not that of a padded step.
  template <class T, class IsStep>
  Counts counted(const T* t, const T* w, std::size_t examples, const IsStep& is_step) const {
    Counts result{};
    each([&]<std::size_t o>(Constant<o>, const HeadAt<o>& head) {
      constexpr HeadPlace place = places[o];
      const auto ignored = ignored_class(head.loss.op(place.shape));
      for (std::size_t n = 0; n < examples; ++n)
        for (std::size_t r = 0; r < place.weights; ++r) {
          const bool is_ignored =
              ignored && place.targets == place.weights &&
              static_cast<double>(t[n * place.target_row + place.target + r]) == *ignored;
          const bool is_masked =
              head.masks && w != nullptr && w[n * place.weight_row + place.weight + r] == 0;
          result[o] += is_ignored || is_masked || !is_step(n, place.weight + r) ? 0 : 1;
        }
    });
    return result;
  }

  /// The losses of one batch, for its kernels.
  struct Step {
    const LossesOf* losses;
    Counts scale;
    bool trains;
    LossesOp<LossesOf> op(Shape) const { return {losses, scale, true, trains}; }
  };
  /// `counts`: of the global batch of `examples`; null: all.
  Step step(const Counts* counts, std::size_t examples, bool trains) const {
    Step result{this, ones(), trains};
    for (std::size_t o = 0; o < count && counts != nullptr; ++o) {
      const double all = static_cast<double>(examples * places[o].weights);
      result.scale[o] = (*counts)[o] > 0 ? all / (*counts)[o] : 0;
    }
    return result;
  }

 private:
  static constexpr Counts ones() {
    Counts result{};
    for (double& one : result) one = 1;
    return result;
  }

  std::tuple<Heads...> heads_;
};

template <FixedString output>
struct OutputWithoutLoss {
  static_assert(output.view().empty(),
                "lockstep::Losses: 'output', an output of the network, has no loss; add an "
                "ls::Head for it, with .weight = 0 if it is not trained");
};
template <class TheHead>
struct HeadWithoutOutput {
  static_assert(always_false<TheHead>,
                "lockstep::Losses: the network has no output of the name in 'TheHead'; the names "
                "are those of its ls::Out");
};
template <class TheHead>
struct OutputWithTwoLosses {
  static_assert(always_false<TheHead>,
                "lockstep::Losses: the output of 'TheHead' has two losses; remove one");
};
template <class TheHead>
struct HeadDoesNotFit {
  static_assert(always_false<TheHead>,
                "lockstep::Losses: the loss in 'TheHead' does not accept the shape of its output; "
                "change the output's last layer, or the loss");
};
template <class TheHead>
struct HeadHasKernel {
  static_assert(always_false<TheHead>,
                "lockstep::Losses: the loss in 'TheHead' has a kernel of its own; give its op "
                "'example', as in ls::MeanSquaredErrorOp");
};
template <class Net>
struct NoOutputs {
  static_assert(always_false<Net>,
                "lockstep::Losses: the network has one output without a name; pass the loss "
                "itself, or write an ls::Graph with ls::Out");
};

template <class Net, class TheHead>
constexpr bool names_output() {
  for (const RowPart& port : Net::outputs)
    if (port.name == TheHead::output) return true;
  return false;
}
template <class Net, class TheHead>
constexpr Shape shape_of_head() {
  for (const RowPart& port : Net::outputs)
    if (port.name == TheHead::output) return port.shape;
  return {};
}
template <class Net, class H>
constexpr bool head_fits() {
  return H::loss_type::accepts(shape_of_head<Net, H>());
}
template <class Net, class H>
constexpr bool is_rowwise_head() {
  return RowwiseLoss<std::remove_cvref_t<decltype(std::declval<const typename H::loss_type&>().op(
      shape_of_head<Net, H>()))>>;
}
template <class Net, class H, class... All>
constexpr auto fault_of_head() {
  if constexpr (!names_output<Net, H>())
    return std::type_identity<HeadWithoutOutput<H>>();
  else if constexpr ((std::size_t{0} + ... + (All::output == H::output ? 1u : 0u)) > 1)
    return std::type_identity<OutputWithTwoLosses<H>>();
  else if constexpr (!head_fits<Net, H>())
    return std::type_identity<HeadDoesNotFit<H>>();
  else if constexpr (!is_rowwise_head<Net, H>())
    return std::type_identity<HeadHasKernel<H>>();
  else
    return std::type_identity<void>();
}
template <class Net, std::size_t o>
constexpr auto output_name() {
  char text[Net::outputs[o].name.size() + 1]{};
  std::copy(Net::outputs[o].name.begin(), Net::outputs[o].name.end(), text);
  return FixedString(text);
}
/// The first fault of the heads from the I-th on, or void.
template <class Net, std::size_t I, class... Heads>
constexpr auto fault_of_heads() {
  if constexpr (I == sizeof...(Heads)) {
    constexpr std::size_t without = [] {
      std::size_t o = 0;
      const std::array<std::string_view, sizeof...(Heads)> names{Heads::output...};
      while (o < Net::outputs.size() &&
             std::find(names.begin(), names.end(), Net::outputs[o].name) != names.end())
        ++o;
      return o;
    }();
    if constexpr (without < Net::outputs.size()) {
      return std::type_identity<OutputWithoutLoss<output_name<Net, without>()>>();
    } else {
      return std::type_identity<void>();
    }
  } else {
    constexpr auto its = fault_of_head<Net, At<I, Heads...>, Heads...>();
    if constexpr (std::is_void_v<typename decltype(its)::type>)
      return fault_of_heads<Net, I + 1, Heads...>();
    else
      return its;
  }
}

}  // namespace detail

/// The losses of a network with several outputs: their sum, each times its head's weight, as in
/// Keras. Heads are found by the names of the outputs; each output has one. Logs have "loss", and
/// for each output its loss without the weight: "digit_loss". Metrics are those of one output,
/// `On`.
///
/// Targets are one row per example, in the order of the outputs; labels are whole numbers in it,
/// exact up to 2^24 in float. Weights of examples are one for all outputs, or a row with one for
/// each output, or each of its positions, in that order. `examples` makes these rows from fields
/// with names.
///
/// \throws UsageError for options out of their range.
/// \code
///   ls::Model model{TwoTowers{}, strategy,
///                   ls::Losses{ls::Head<"digit", ls::SparseCategoricalCrossentropy>{
///                                  .loss = {.from_logits = true}},
///                              ls::Head<"even", ls::BinaryCrossentropy>{
///                                  .loss = {.from_logits = true}, .weight = 0.3}},
///                   ls::Adam{}, ls::On<"digit", ls::Accuracy>{}};
/// \endcode
template <class... Heads>
struct Losses {
  static_assert(
      sizeof...(Heads) > 0,
      "lockstep::Losses: there is no head; write ls::Losses{ls::Head<\"output\", loss>{}}");
  static constexpr bool binds_outputs = true;
  template <class Net>
  using on = detail::LossesOf<Net, Heads...>;
  /// The fault for the network, or void.
  template <class Net>
  static constexpr auto fault() {
    if constexpr (detail::named_outputs<Net>().size() == 0)
      return std::type_identity<detail::NoOutputs<Net>>();
    else
      return detail::fault_of_heads<Net, 0, Heads...>();
  }

  Losses() = default;
  Losses(Heads... of_outputs)
    requires(sizeof...(Heads) > 0)
      : heads(std::move(of_outputs)...) {}

  std::tuple<Heads...> heads;
};

}  // namespace lockstep
