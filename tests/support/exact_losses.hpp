/// \file
/// Losses and metrics compared with long double, for predictions and targets from 1e-30 to 1e37.
/// docs/house/losses.md states the bounds.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "lockstep/losses/losses.hpp"
#include "lockstep/metrics/metrics.hpp"
#include "support/run_loss.hpp"
#include "support/run_metric.hpp"

namespace testing {

/// The loss of one element, its slope, and the size of the terms whose difference the loss is: the
/// allowed error is relative to it.
struct ExactLoss {
  long double value, slope, terms;
};

/// Magnitudes with both signs, and 0; few of them if `sparse`.
inline std::vector<float> magnitudes(bool sparse) {
  std::vector<float> values{0};
  const std::vector<float> all{1e-30f, 1e-20f, 1e-10f, 1e-7f, 1e-5f, 1e-3f, 0.1f,
                               0.5f,   0.9f,   1.5f,   4,     20,    90,    1e4f,
                               1e10f,  1e19f,  1e25f,  1e30f, 3e37f},
      few{1e-20f, 1e-3f, 0.5f, 20, 1e25f};
  for (const float size : sparse ? few : all) values.insert(values.end(), {size, -size});
  return values;
}

/// `bound`: of the value relative to its terms, of the slope relative to max(1, slope).
template <class D, class L, class Exact>
void loss_is_exact(const L& loss, const std::vector<float>& predictions,
                   const std::vector<float>& targets, double bound, const Exact& exact) {
  using T = typename D::real;
  const auto op = loss.op(lockstep::shape(1));
  INFO(L::name);
  for (const float p : predictions)
    for (const float t : targets) {
      const ExactLoss right = exact(static_cast<long double>(p), static_cast<long double>(t));
      const auto result =
          run_loss<D>(op, 1, {static_cast<T>(p)}, {static_cast<T>(t)}, 1, {}, {}, 0);
      // A rule returns its value as T.
      const bool representable =
          std::same_as<L, lockstep::MeanSquaredError> ||
          right.terms < static_cast<long double>(std::numeric_limits<T>::max());
      const long double floor = std::same_as<L, lockstep::MeanSquaredError> ? 0 : 2e-38L;
      const double error = static_cast<double>(
                       std::abs(static_cast<long double>(result.sum) - right.value)),
                   allowed =
                       static_cast<double>(static_cast<long double>(bound) * right.terms + floor),
                   slope = static_cast<double>(
                       std::abs(static_cast<long double>(result.gradient[0]) - right.slope)),
                   steep = static_cast<double>(std::abs(right.slope));
      CAPTURE(p, t, result.sum, static_cast<double>(right.value), result.gradient[0],
              static_cast<double>(right.slope));
      if (representable && !(error <= allowed)) CHECK(error <= allowed);
      const bool steepness_fits = steep < static_cast<double>(std::numeric_limits<T>::max());
      if (steepness_fits && !(slope <= bound * std::max(1.0, steep)))
        CHECK(slope <= bound * std::max(1.0, steep));
    }
  SUCCEED();
}

template <class D>
void losses_are_exact(double bound, bool sparse = false) {
  using namespace lockstep;
  const auto all = magnitudes(sparse);
  std::vector<float> rates, shares{1e-5f, 1e-3f, 0.1f, 0.5f, 0.9f};
  for (const float v : all)
    if (v >= 0) rates.push_back(v);

  const auto sized = [](long double value, long double slope) {
    return ExactLoss{value, slope, std::abs(value)};
  };
  loss_is_exact<D>(MeanSquaredError{}, all, all, bound, [&](long double p, long double t) {
    return sized((p - t) * (p - t), 2 * (p - t));
  });
  loss_is_exact<D>(MeanAbsoluteError{}, all, all, bound, [&](long double p, long double t) {
    return sized(std::abs(p - t), p > t ? 1 : p < t ? -1 : 0);
  });
  loss_is_exact<D>(Huber{}, all, all, bound, [&](long double p, long double t) {
    const long double e = p - t, size = std::abs(e);
    return sized(size <= 1 ? e * e / 2 : size - 0.5L, size <= 1 ? e : e / size);
  });
  loss_is_exact<D>(LogCosh{}, all, all, bound, [&](long double p, long double t) {
    const long double e = std::abs(p - t), root = e < 1 ? std::sinh(e / 2) : 0;
    return sized(
        e < 1 ? std::log1p(2 * root * root) : e + std::log1p(std::exp(-2 * e)) - std::log(2.0L),
        std::tanh(p - t));
  });
  loss_is_exact<D>(Hinge{}, all, {1, -1}, bound, [&](long double p, long double t) {
    const long double margin = 1 - t * p;
    return sized(margin < 0 ? 0 : margin, margin < 0 ? 0 : -t);
  });
  loss_is_exact<D>(Poisson{}, rates, rates, bound, [](long double p, long double t) {
    const long double logarithm = std::log(p + 1e-7L);
    return ExactLoss{p - t * logarithm, 1 - t / (p + 1e-7L), p + t * (std::abs(logarithm) + 1)};
  });
  loss_is_exact<D>(BinaryCrossentropy{.from_logits = true}, all, {0, 1}, bound,
                   [&](long double p, long double t) {
                     const long double away = t == 1 ? -p : p;
                     return sized((away > 0 ? away : 0) + std::log1p(std::exp(-std::abs(away))),
                                  1 / (1 + std::exp(-p)) - t);
                   });
  loss_is_exact<D>(BinaryCrossentropy{}, shares, {0, 1}, bound, [](long double p, long double t) {
    const long double chosen = t == 1 ? p : 1 - p, value = -std::log(chosen);
    return ExactLoss{value, (t == 1 ? -1 : 1) / chosen, value + 1};
  });
  loss_is_exact<D>(KLDivergence{}, shares, shares, bound, [](long double p, long double t) {
    const long double logarithm = std::log(t / p);
    return ExactLoss{t * logarithm, -t / p, t * (std::abs(logarithm) + 1)};
  });
}

/// Cross-entropies and cosines of rows; errors relative to max(1, loss).
template <class D>
void rows_are_exact(double bound) {
  using namespace lockstep;
  using T = typename D::real;
  const auto close = [&](double result, long double right) {
    const double size = std::max(1.0, static_cast<double>(std::abs(right)));
    CHECK(std::abs(result - static_cast<double>(right)) <= bound * size);
  };
  for (const float scale : {1e-30f, 1e-3f, 1.0f, 30.0f, 1e4f, 1e30f})
    for (const int classes : {3, 21}) {
      std::vector<T> logits, one_hot(static_cast<std::size_t>(classes));
      for (int k = 0; k < classes; ++k)
        logits.push_back(static_cast<T>(scale * static_cast<float>((5 * k + 1) % classes - 1)));
      one_hot[2] = 1;
      long double most = logits[0], sum = 0;
      for (const T v : logits) most = std::max(most, static_cast<long double>(v));
      for (const T v : logits) sum += std::exp(static_cast<long double>(v) - most);
      const long double right = std::log(sum) + (most - static_cast<long double>(logits[2]));
      CAPTURE(scale, classes);
      const Shape out = shape(classes);
      close(
          run_loss<D>(SparseCategoricalCrossentropy{.from_logits = true}.op(out), 1, logits, {2}, 1)
              .sum,
          right);
      close(run_loss<D>(CategoricalCrossentropy{.from_logits = true}.op(out), 1, logits, one_hot, 1)
                .sum,
            right);
    }
  for (const float p_scale : {1e-5f, 1.0f, 1e19f, 1e30f, 1e38f})
    for (const float t_scale : {1e-5f, 1.0f, 1e19f, 1e30f, 1e38f}) {
      CAPTURE(p_scale, t_scale);
      const std::vector<float> p{p_scale, 2 * p_scale, -p_scale}, t{t_scale, 3 * t_scale, 0};
      const auto wide_p = as<T>(p), wide_t = as<T>(t);
      long double pp = 0, tt = 0, pt = 0;
      for (std::size_t k = 0; k < 3; ++k) {
        const auto a = static_cast<long double>(p[k]), b = static_cast<long double>(t[k]);
        pp += a * a, tt += b * b, pt += a * b;
      }
      const long double cosine = pt / std::sqrt(pp) / std::sqrt(tt);
      const auto result = run_loss<D>(CosineSimilarity{}.op(shape(3)), 1, wide_p, wide_t, 1);
      close(result.sum, -cosine);
      close(metric_value<D, float>(MeanCosineSimilarity{}, shape(3), wide_p, wide_t), cosine);
      for (std::size_t k = 0; k < 3; ++k) {
        const long double slope = (cosine * static_cast<long double>(p[k]) / std::sqrt(pp) -
                                   static_cast<long double>(t[k]) / std::sqrt(tt)) /
                                  std::sqrt(pp);
        CHECK(std::abs(static_cast<double>(static_cast<long double>(result.gradient[k]) - slope)) <=
              bound / static_cast<double>(p_scale) + 2e-38);
      }
      const double difference =
          metric_value<D, float>(RootMeanSquaredError{}, shape(3), wide_p, std::vector<T>(3));
      const double root = static_cast<double>(std::sqrt(pp / 3));
      CHECK(std::abs(difference - root) <= bound * root);
    }
}

}  // namespace testing
