/// \file
/// Any loss as a metric: its mean over all examples.
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>

#include "lockstep/concepts/metric.hpp"

namespace lockstep {

struct CosineSimilarity;

/// One example of MeanOf. State: the sum of losses, examples. With ignored labels, only the
/// share of an example that counts.
template <class LossOp>
struct MeanOfOp {
  using target_type = typename LossOp::target_type;
  LossOp loss;

  constexpr std::size_t rows() const
    requires HasRows<LossOp>
  {
    return loss.rows();
  }
  constexpr MeanOfOp row() const
    requires HasRows<LossOp>
  {
    return {loss.row()};
  }
  constexpr std::size_t size() const { return loss.size(); }
  constexpr std::size_t target_size() const { return loss.target_size(); }

  template <class T>
  void example(const T* p, const target_as<target_type, T>* t, double* state,
               double weight = 1) const {
    state[0] += weight * loss.example(p, t, static_cast<T*>(nullptr), 1.0);
    if constexpr (IgnoresClass<LossOp>)
      state[1] += weight * static_cast<double>(loss.counted(t)) / static_cast<double>(loss.rows());
    else
      state[1] += weight;
  }
};

/// The mean of a loss over all examples, without penalties: Keras' metric of the same name. The
/// exception is CosineSimilarity, whose metric has the opposite sign: use MeanCosineSimilarity. In
/// logs it has the loss' name.
/// \code
///   ls::Model model{Net{}, strategy, ls::Huber{}, ls::Adam{},
///                   ls::MeanOf<ls::MeanAbsoluteError>{}};
///   ls::MeanOf<ls::Huber>{{.delta = 2}}
/// \endcode
template <Loss L>
struct MeanOf {
  static_assert(!std::same_as<L, CosineSimilarity>,
                "lockstep::MeanOf: the loss CosineSimilarity is the negated cosine; write "
                "ls::MeanCosineSimilarity{}");
  static constexpr std::string_view name = L::name;
  static constexpr std::size_t state_size = 2;
  static constexpr bool reads_mask = true;
  L loss = {};

  /// \throws what the loss' check() throws.
  void check() const {
    if constexpr (requires { loss.check(); }) loss.check();
  }
  template <class Target>
  static constexpr bool accepts(Shape out) {
    return std::same_as<Target, typename L::target_type> && L::accepts(out);
  }
  template <class Target>
  constexpr auto op(Shape out) const {
    return MeanOfOp<decltype(loss.op(out))>{loss.op(out)};
  }
  double result(const double* state) const { return state[1] != 0 ? state[0] / state[1] : 0; }
};

}  // namespace lockstep
