/// \file
/// NaN is never hidden: a NaN at any place of an op's inputs makes each result NaN that depends on
/// this place. Which results depend on a place is found with Reference<double>, by replacing the
/// number there with a much larger and a much smaller one.
#pragma once

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/losses/losses.hpp"
#include "lockstep/reference.hpp"
#include "support/kernel_numbers.hpp"
#include "support/run_loss.hpp"

namespace testing {

/// Inputs of an op: numbers, and its untrained parameters.
struct NaNInputs {
  std::size_t count = 1;
  Numbers numbers;
  std::vector<float> state = {};
  bool want_dx = true, training = true;
};

template <class D, class O>
LayerResult<typename D::real> run_op(const O& op, const NaNInputs& in, const D& device = {}) {
  using T = typename D::real;
  RunOptions<T> options;
  options.x2 = as<T>(in.numbers.x2);
  options.state = as<T>(in.state);
  options.want_dx = in.want_dx;
  options.training = in.training;
  return run_layer<D>(op, in.count, as<T>(in.numbers.x), as<T>(in.numbers.w), as<T>(in.numbers.dy),
                      options, device);
}

/// The ops one after the other in double. An AddOp adds x2.
template <class O, class... Rest>
LayerResult<double> run_chain(NaNInputs in, const O& op, const Rest&... rest) {
  using Double = lockstep::Reference<double>;
  if constexpr (sizeof...(Rest) == 0) {
    return run_op<Double>(op, in);
  } else {
    NaNInputs own = in;
    if constexpr (!std::same_as<O, lockstep::AddOp>) own.numbers.x2.clear();
    own.numbers.dy.assign(in.count * op.out().size(), 0);
    in.numbers.x = as<float>(run_op<Double>(op, own).y);
    in.numbers.w.clear();
    in.state.clear();
    const bool wants_dx = std::exchange(in.want_dx, true);
    auto result = run_chain(in, rest...);
    own.numbers.dy = as<float>(result.dx);
    own.want_dx = wants_dx;
    auto first = run_op<Double>(op, own);
    if constexpr (std::same_as<O, lockstep::AddOp>) result.dx2 = first.dx2;
    result.dx = first.dx;
    result.dw = first.dw;
    return result;
  }
}

/// Marks the elements of `after` that differ from those of `before`.
inline void mark_changes(std::vector<char>& changed, const std::vector<double>& before,
                         const std::vector<double>& after) {
  changed.resize(before.size());
  for (std::size_t i = 0; i < before.size(); ++i)
    changed[i] = static_cast<char>(changed[i] != 0 || before[i] != after[i]);
}

/// The number of elements that should be NaN and are not.
inline std::size_t hidden(const std::vector<char>& dependent, const std::vector<float>& values) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    found += dependent[i] != 0 && !std::isnan(values[i]);
  return found;
}

/// Tries NaN at up to `most` places of each input. `oracle` runs the op in double, `tested` on the
/// device. A NaN of x, x2 or w makes dy NaN where it makes y NaN, as a loss does.
inline void check_nan(NaNInputs in, std::size_t most,
                      const std::function<LayerResult<double>(const NaNInputs&)>& oracle,
                      const std::function<LayerResult<float>(const NaNInputs&)>& tested) {
  lockstep::Philox g(21);
  Numbers& n = in.numbers;
  const LayerResult<double> before = oracle(in);
  const auto try_places = [&](const char* name, std::vector<float>& values) {
    for (std::size_t k = 0; k < std::min(values.size(), most); ++k) {
      const std::size_t at =
          values.size() <= most ? k : g.below(static_cast<std::uint32_t>(values.size()));
      const float value = values[at];
      std::vector<char> y, dx, dx2, dw;
      for (const float distance : {1000.0f, -1000.0f}) {
        values[at] = value + distance;
        const LayerResult<double> after = oracle(in);
        mark_changes(y, before.y, after.y);
        mark_changes(dx, before.dx, after.dx);
        mark_changes(dx2, before.dx2, after.dx2);
        mark_changes(dw, before.dw, after.dw);
      }
      values[at] = std::numeric_limits<float>::quiet_NaN();
      const std::vector<float> dy = n.dy;
      bool reaches_y = false;
      for (std::size_t i = 0; i < y.size(); ++i)
        if (y[i] != 0) reaches_y = true, n.dy[i] = std::numeric_limits<float>::quiet_NaN();
      const LayerResult<float> result = tested(in);
      INFO("NaN at " << at << " of " << name);
      CHECK(hidden(y, result.y) == 0);
      CHECK(hidden(dw, result.dw) == 0);
      // A maximum depends on all its inputs, but the gradient of only one depends on dy.
      const auto is_nan_at = [&](const std::vector<float>& of) {
        return of.empty() || !reaches_y || std::isnan(of[at]);
      };
      if (&values == &n.x) CHECK(is_nan_at(result.dx));
      if (&values == &n.x2) CHECK(is_nan_at(result.dx2));
      if (&values == &n.w || &values == &n.dy) {
        CHECK(hidden(dx, result.dx) == 0);
        CHECK(hidden(dx2, result.dx2) == 0);
      }
      if (&values != &n.dy) n.dy = dy;
      values[at] = value;
    }
  };
  if (!in.training) return try_places("x", n.x);
  try_places("x", n.x);
  try_places("x2", n.x2);
  try_places("w", n.w);
  try_places("dy", n.dy);
}

/// As check_nan, for an op whose result is that of `ops` one after the other.
template <class D, class O, class... Ops>
void check_nan_in(const D& device, const O& op, const NaNInputs& in, std::size_t most,
                  const Ops&... ops) {
  check_nan(
      in, most, [&](const NaNInputs& i) { return run_chain(i, ops...); },
      [&](const NaNInputs& i) { return run_op<D>(op, i, device); });
}

/// Random inputs of layer L, with weights and state.
template <class L>
NaNInputs inputs_of(lockstep::Shape shape, std::size_t count) {
  std::size_t weights = 0, state = 0;
  for (const lockstep::Parameter& p : L::parameters(shape))
    if (p.present) (p.trainable ? weights : state) += p.shape.size();
  NaNInputs in{count, numbers(L::op(shape), shape.size(), weights, count)};
  in.numbers.x = rounded(in.numbers.x);
  in.state.assign(state, 1.0f);
  return in;
}
template <class L, class D>
void check_nan_in_layer(const D& device, lockstep::Shape shape, std::size_t count = 2,
                        std::size_t most = 6) {
  INFO(L::name << " of " << to_string(shape));
  const auto op = L::op(shape);
  check_nan_in(device, op, inputs_of<L>(shape, count), most, op);
}

/// A NaN prediction makes loss and gradient NaN; a NaN target makes the loss NaN.
template <class L, class D>
void check_nan_in_loss(const L& loss, const D& device) {
  using Op = decltype(loss.op(lockstep::shape(3)));
  using Target = lockstep::target_as<typename Op::target_type, float>;
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  INFO(L::name);
  const Op op = loss.op(lockstep::shape(3));
  const std::vector<float> p{0.2f, 0.3f, 0.5f};
  const std::vector<Target> t{Target(1), Target(0), Target(0)};
  const std::vector<Target> targets(t.begin(), t.begin() + static_cast<int>(op.target_size()));
  for (std::size_t at = 0; at < 3; ++at) {
    INFO("NaN at " << at);
    std::vector<float> broken = p;
    broken[at] = nan;
    const auto result = run_loss<D>(op, 1, broken, targets, 1, device);
    CHECK(std::isnan(result.sum));
    CHECK(std::isnan(result.gradient[at]));
    if constexpr (std::same_as<Target, float>) {
      std::vector<float> unknown = t;
      unknown[at] = nan;
      CHECK(std::isnan(run_loss<D>(op, 1, p, unknown, 1, device).sum));
    }
  }
}
template <class D>
void check_nan_in_losses(const D& device = {}) {
  using namespace lockstep;
  check_nan_in_loss(MeanSquaredError{}, device);
  check_nan_in_loss(MeanAbsoluteError{}, device);
  check_nan_in_loss(Huber{}, device);
  check_nan_in_loss(LogCosh{}, device);
  check_nan_in_loss(Poisson{}, device);
  check_nan_in_loss(Hinge{}, device);
  check_nan_in_loss(KLDivergence{}, device);
  check_nan_in_loss(CosineSimilarity{}, device);
  for (const bool from_logits : {true, false}) {
    check_nan_in_loss(BinaryCrossentropy{.from_logits = from_logits}, device);
    check_nan_in_loss(CategoricalCrossentropy{.from_logits = from_logits}, device);
    check_nan_in_loss(SparseCategoricalCrossentropy{.from_logits = from_logits}, device);
  }
}

}  // namespace testing
