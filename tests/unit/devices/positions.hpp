/// \file
/// Losses and metrics of outputs with several positions, such as pixels, on a device, compared with
/// the definitions in double: the mean over all positions of what a row of the last axis gives.
#pragma once

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "support/run_loss.hpp"
#include "support/run_metric.hpp"

namespace testing::positions {

using Row = std::vector<double>;
using Label = std::int32_t;
constexpr Label ignored = 255;

/// The loss of one row, and its derivatives.
struct RowLoss {
  double value = 0;
  Row slopes;
};

inline Row softmax(const Row& p) {
  const double most = *std::max_element(p.begin(), p.end());
  double sum = 0;
  Row e;
  for (const double v : p) sum += e.emplace_back(std::exp(v - most));
  for (double& v : e) v /= sum;
  return e;
}

/// Cross-entropy of softmax(p) against the distribution t.
inline RowLoss of_logits(const Row& p, const Row& t) {
  const Row q = softmax(p);
  double whole = 0;
  for (const double v : t) whole += v;
  RowLoss loss;
  for (std::size_t k = 0; k < p.size(); ++k) {
    loss.value -= t[k] == 0 ? 0 : t[k] * std::log(q[k]);
    loss.slopes.push_back(whole * q[k] - t[k]);
  }
  return loss;
}
/// Cross-entropy of p / sum(p), clipped; only the share of a single class is beyond the bounds.
inline RowLoss of_shares(const Row& p, const Row& t) {
  double sum = 0, whole = 0;
  for (const double v : p) sum += v;
  for (const double v : t) whole += v;
  RowLoss loss;
  for (std::size_t k = 0; k < p.size(); ++k) {
    loss.value -= t[k] * std::log(std::min(p[k] / sum, 1 - 1e-7));
    loss.slopes.push_back(whole / sum - t[k] / p[k]);
  }
  return loss;
}
inline RowLoss divergence(const Row& p, const Row& t) {
  RowLoss loss;
  for (std::size_t k = 0; k < p.size(); ++k) {
    loss.value += t[k] * std::log(t[k] / p[k]);
    loss.slopes.push_back(-t[k] / p[k]);
  }
  return loss;
}
inline RowLoss cosine(const Row& p, const Row& t) {
  double pp = 0, tt = 0, pt = 0;
  for (std::size_t k = 0; k < p.size(); ++k)
    pp += p[k] * p[k], tt += t[k] * t[k], pt += p[k] * t[k];
  const double c = pt / std::sqrt(pp * tt);
  RowLoss loss{-c, {}};
  for (std::size_t k = 0; k < p.size(); ++k)
    loss.slopes.push_back(c * p[k] / pp - t[k] / std::sqrt(pp * tt));
  return loss;
}
inline RowLoss squares(const Row& p, const Row& t) {
  const double n = static_cast<double>(p.size());
  RowLoss loss;
  for (std::size_t k = 0; k < p.size(); ++k) {
    loss.value += (p[k] - t[k]) * (p[k] - t[k]) / n;
    loss.slopes.push_back(2 * (p[k] - t[k]) / n);
  }
  return loss;
}
inline RowLoss binary(const Row& p, const Row& t) {
  const double n = static_cast<double>(p.size());
  RowLoss loss;
  for (std::size_t k = 0; k < p.size(); ++k) {
    const double q = 1 / (1 + std::exp(-p[k]));
    loss.value -= (t[k] * std::log(q) + (1 - t[k]) * std::log(1 - q)) / n;
    loss.slopes.push_back((q - t[k]) / n);
  }
  return loss;
}

/// Rows of random numbers; `shares` are positive, 0.1 to 0.9.
inline std::vector<Row> random_rows(std::size_t rows, std::size_t size, std::uint64_t key,
                                    bool shares) {
  const auto values = normal_values(rows * size, key);
  std::vector<Row> all(rows);
  for (std::size_t i = 0; i < rows * size; ++i)
    all[i / size].push_back(shares ? 0.1 + 0.8 / (1 + std::exp(-values[i])) : values[i]);
  return all;
}
/// Rounded to float first, so that the device gets the same numbers.
inline void round_rows(std::vector<Row>& rows) {
  for (Row& row : rows)
    for (double& v : row) v = static_cast<double>(static_cast<float>(v));
}
template <class T>
std::vector<T> flat(const std::vector<Row>& rows) {
  std::vector<T> values;
  for (const Row& row : rows)
    for (const double v : row) values.push_back(static_cast<T>(v));
  return values;
}

/// Random labels; some are ignored if `ignores`.
inline std::vector<Label> random_labels(std::size_t rows, int classes, bool ignores) {
  lockstep::Philox g(rows + 3);
  std::vector<Label> labels;
  for (std::size_t r = 0; r < rows; ++r)
    labels.push_back(ignores && g.below(3) == 0
                         ? ignored
                         : static_cast<Label>(g.below(static_cast<std::uint32_t>(classes))));
  return labels;
}
inline Row one_hot(Label label, std::size_t classes) {
  Row row(classes);
  row[static_cast<std::size_t>(label)] = 1;
  return row;
}

/// Sample weights of `count` examples of `rows` rows: none, one for each example, or for each row.
inline std::vector<std::vector<double>> kinds_of_weights(std::size_t count, std::size_t rows) {
  std::vector<double> of_examples, of_rows;
  for (std::size_t i = 0; i < count; ++i) of_examples.push_back(0.5 + static_cast<double>(i % 3));
  for (std::size_t i = 0; i < count * rows; ++i)
    of_rows.push_back(0.25 * static_cast<double>(i % 5));
  return {{}, of_examples, of_rows};
}
/// The weight of row r.
inline double weight_of(const std::vector<double>& weights, std::size_t r, std::size_t all) {
  return weights.empty() ? 1 : weights[r / (all / weights.size())];
}

inline const std::vector<lockstep::Shape>& shapes() {
  using lockstep::shape;
  static const std::vector<lockstep::Shape> all{shape(1, 1, 7), shape(3, 5, 7), shape(4, 1),
                                                shape(6, 40), shape(2, 1, 2, 3)};
  return all;
}

template <class D, class L, class Target>
void check_loss(const L& loss, lockstep::Shape out, std::size_t count, const std::vector<Row>& p,
                const std::vector<Target>& targets, const std::vector<RowLoss>& expected,
                double bound) {
  using T = typename D::real;
  const std::size_t rows = lockstep::positions_of(out).size();
  for (const auto& weights : kinds_of_weights(count, rows)) {
    INFO(L::name << " of " << count << " examples " << lockstep::to_string(out) << ", "
                 << weights.size() << " weights");
    const double scale = 0.125;
    double sum = 0;
    std::vector<double> gradient;
    for (std::size_t r = 0; r < expected.size(); ++r) {
      const double w = weight_of(weights, r, expected.size());
      sum += w * expected[r].value / static_cast<double>(rows);
      for (const double slope : expected[r].slopes)
        gradient.push_back(w * slope * scale / static_cast<double>(rows));
    }
    const auto result = run_loss<D>(loss.op(out), count, flat<T>(p), targets, scale, {},
                                    std::vector<T>(weights.begin(), weights.end()));
    CHECK(std::abs(result.sum - sum) <= bound * std::max(1.0, std::abs(sum)));
    REQUIRE(result.gradient.size() == gradient.size());
    double worst = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(result.gradient[i]) - gradient[i]));
    CHECK(worst <= bound);
  }
}

/// A loss with real targets; `target_shares`: targets and predictions are positive.
template <class D, class L>
void check_real_loss(const L& loss, bool shares, RowLoss (*row_loss)(const Row&, const Row&),
                     double bound) {
  using T = typename D::real;
  for (const lockstep::Shape& out : shapes())
    for (const std::size_t count : {0u, 1u, 3u}) {
      const std::size_t rows = count * lockstep::positions_of(out).size();
      const auto size = static_cast<std::size_t>(out.channels());
      auto p = random_rows(rows, size, 5, shares), t = random_rows(rows, size, 6, true);
      round_rows(p);
      round_rows(t);
      std::vector<RowLoss> expected;
      for (std::size_t r = 0; r < rows; ++r) expected.push_back(row_loss(p[r], t[r]));
      check_loss<D>(loss, out, count, p, flat<T>(t), expected, bound);
    }
}

/// Every loss on device D.
template <class D>
void losses_are_means_over_positions(double bound) {
  using namespace lockstep;
  check_real_loss<D>(CategoricalCrossentropy{.from_logits = true}, false, of_logits, bound);
  check_real_loss<D>(CategoricalCrossentropy{}, true, of_shares, bound);
  check_real_loss<D>(KLDivergence{}, true, divergence, bound);
  check_real_loss<D>(CosineSimilarity{}, false, cosine, bound);
  check_real_loss<D>(MeanSquaredError{}, false, squares, bound);
  check_real_loss<D>(BinaryCrossentropy{.from_logits = true}, false, binary, bound);
  for (const bool from_logits : {true, false})
    for (const bool ignores : {false, true})
      for (const Shape& out : shapes())
        for (const std::size_t count : {0u, 1u, 3u}) {
          const std::size_t rows = count * positions_of(out).size();
          const auto size = static_cast<std::size_t>(out.channels());
          auto p = random_rows(rows, size, 9, !from_logits);
          round_rows(p);
          // With one class p is 1, which is clipped; the loss is 0 and so is its slope.
          if (size == 1 && !from_logits) continue;
          const auto labels = random_labels(rows, out.channels(), ignores);
          std::vector<RowLoss> expected;
          for (std::size_t r = 0; r < rows; ++r)
            expected.push_back(labels[r] == ignored ? RowLoss{0, Row(size)}
                               : from_logits        ? of_logits(p[r], one_hot(labels[r], size))
                                                    : of_shares(p[r], one_hot(labels[r], size)));
          SparseCategoricalCrossentropy loss{.from_logits = from_logits};
          if (ignores) loss.ignore_class = ignored;
          check_loss<D>(loss, out, count, p, labels, expected, bound);
        }
}

/// A row with an ignored label has a zero gradient whatever its predictions are; all others show a
/// NaN.
template <class D>
void ignored_rows_hide_nan() {
  using namespace lockstep;
  using T = typename D::real;
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  for (const int classes : {3, 20}) {
    const auto size = static_cast<std::size_t>(classes);
    std::vector<T> p(2 * size, nan);
    const auto op = SparseCategoricalCrossentropy{.from_logits = true, .ignore_class = -1}.op(
        shape(2, classes));
    const auto hidden = run_loss<D>(op, 1, p, {-1, -1}, 1);
    CHECK(hidden.sum == 0);
    CHECK(hidden.gradient == std::vector<T>(2 * size, T(0)));
    std::fill_n(p.begin(), size, T(0));
    CHECK(std::isnan(run_loss<D>(op, 1, p, {-1, 1}, 1).sum));
    const auto half = run_loss<D>(op, 1, p, {1, -1}, 1);
    CHECK(std::abs(half.sum - std::log(static_cast<double>(classes)) / 2) < 1e-6);
    CHECK(std::count(half.gradient.begin(), half.gradient.end(), T(0)) ==
          static_cast<std::ptrdiff_t>(size));
  }
}

template <class D, class Target, class M>
void check_state(const M& metric, lockstep::Shape out, const std::vector<Row>& p,
                 const std::vector<lockstep::target_as<Target, typename D::real>>& targets,
                 const std::vector<double>& weights, const std::vector<double>& expected,
                 double bound) {
  using T = typename D::real;
  INFO(M::name << " of outputs " << lockstep::to_string(out) << ", " << weights.size()
               << " weights");
  const auto state = run_metric<D, Target>(metric, out, flat<T>(p), targets, 2,
                                           std::vector<T>(weights.begin(), weights.end()));
  REQUIRE(state.size() == expected.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    INFO("element " << i);
    CHECK(std::abs(state[i] - expected[i]) <= bound * std::max(1.0, std::abs(expected[i])));
  }
}

/// Every metric on device D: its state is the sum of what each row adds, times the row's weight.
template <class D>
void metrics_count_positions(double bound) {
  using namespace lockstep;
  using T = typename D::real;
  const auto largest = [](const Row& v) {
    return static_cast<std::size_t>(std::max_element(v.begin(), v.end()) - v.begin());
  };
  for (const Shape& out : {shape(3, 5, 7), shape(1, 1, 7), shape(6, 7)})
    for (const bool ignores : {false, true}) {
      const std::size_t count = 3, rows = count * positions_of(out).size();
      auto p = random_rows(rows, 7, 21, false), t = random_rows(rows, 7, 22, true);
      round_rows(p);
      round_rows(t);
      const auto labels = random_labels(rows, 7, ignores);
      const std::optional<int> skip = ignores ? std::optional<int>(ignored) : std::nullopt;
      for (const auto& weights : kinds_of_weights(count, rows / count)) {
        std::vector<double> right(2), top(2), matrix(49), near(2), same(2), binary_right(2),
            counts(4), root(2);
        for (std::size_t r = 0; r < rows; ++r) {
          const double w = weight_of(weights, r, rows);
          const std::size_t chosen = largest(p[r]);
          near[0] += w * (chosen == largest(t[r]) ? 1 : 0);
          near[1] += w;
          same[0] -= w * cosine(p[r], t[r]).value;
          same[1] += w;
          for (std::size_t k = 0; k < 7; ++k) {
            root[0] += w * (p[r][k] - t[r][k]) * (p[r][k] - t[r][k]);
            const bool yes = p[r][k] > 0.5, is = k == largest(t[r]);
            binary_right[0] += w * (yes == is ? 1 : 0);
            counts[0] += w * (yes && is ? 1 : 0);
            counts[1] += w * (yes && !is ? 1 : 0);
            counts[2] += w * (!yes && is ? 1 : 0);
          }
          root[1] += 7 * w;
          binary_right[1] += 7 * w;
          counts[3] += 7 * w;
          if (labels[r] == ignored) continue;
          const auto label = static_cast<std::size_t>(labels[r]);
          std::size_t larger = 0;
          for (const double v : p[r]) larger += v > p[r][label] ? 1u : 0u;
          right[0] += w * (chosen == label ? 1 : 0);
          right[1] += w;
          top[0] += w * (larger < 2 ? 1 : 0);
          top[1] += w;
          matrix[label * 7 + chosen] += w;
        }
        check_state<D, Label>(Accuracy{.ignore_class = skip}, out, p, labels, weights, right,
                              bound);
        check_state<D, Label>(TopKCategoricalAccuracy{.k = 2, .ignore_class = skip}, out, p, labels,
                              weights, top, bound);
        check_state<D, Label>(ConfusionMatrix<7>{.ignore_class = skip}, out, p, labels, weights,
                              matrix, bound);
        if (ignores) continue;
        const auto real = flat<T>(t);
        std::vector<T> hot;
        for (const Row& row : t)
          for (std::size_t k = 0; k < 7; ++k) hot.push_back(k == largest(row) ? T(1) : T(0));
        check_state<D, float>(Accuracy{}, out, p, real, weights, near, bound);
        check_state<D, float>(MeanCosineSimilarity{}, out, p, real, weights, same, bound);
        check_state<D, float>(RootMeanSquaredError{}, out, p, real, weights, root, bound);
        check_state<D, float>(BinaryAccuracy{}, out, p, hot, weights, binary_right, bound);
        check_state<D, float>(Precision{}, out, p, hot, weights, counts, bound);
      }
    }
}

/// One output at each position: binary accuracy, AUC, and the mean of a loss.
template <class D>
void binary_metrics_count_positions(double bound) {
  using namespace lockstep;
  using T = typename D::real;
  const Shape out = shape(4, 3, 1);
  const std::size_t count = 5, rows = 12;
  auto p = random_rows(count * rows, 1, 31, true);
  round_rows(p);
  std::vector<Label> labels = random_labels(count * rows, 2, false);
  std::vector<T> real(labels.begin(), labels.end());
  for (const auto& weights : kinds_of_weights(count, rows)) {
    std::vector<double> right(2), area(8), mean(2);
    for (std::size_t r = 0; r < count * rows; ++r) {
      const double w = weight_of(weights, r, count * rows), v = p[r][0];
      right[0] += w * ((v > 0.5) == (labels[r] == 1) ? 1 : 0);
      right[1] += w;
      // Thresholds are 0, 1/4, 1/2, 3/4, 1.
      const std::size_t bucket = v > 0.75 ? 3 : v > 0.5 ? 2 : v > 0.25 ? 1 : 0;
      area[bucket + (labels[r] == 1 ? 0u : 4u)] += w;
      const double e = v - labels[r];
      mean[0] += w * e * e;
      mean[1] += w;
    }
    // Weights of rows add up rows, others means of examples.
    const double parts = weights.size() == count * rows ? 1 : static_cast<double>(rows);
    for (double& v : mean) v /= parts;
    check_state<D, Label>(Accuracy{}, out, p, labels, weights, right, bound);
    check_state<D, Label>(BinaryAccuracy{}, out, p, labels, weights, right, bound);
    check_state<D, float>(Accuracy{}, out, p, real, weights, right, bound);
    check_state<D, Label>(AUC<5>{}, out, p, labels, weights, area, bound);
    check_state<D, float>(AUC<5>{}, out, p, real, weights, area, bound);
    check_state<D, float>(MeanOf<MeanSquaredError>{}, out, p, real, weights, mean, bound);
  }
}

/// MeanOf a loss that ignores a class is the mean over the other labels.
template <class D>
void means_ignore_a_class(double bound) {
  using namespace lockstep;
  using T = typename D::real;
  const Shape out = shape(5, 4);
  auto p = random_rows(15, 4, 41, false);
  round_rows(p);
  const auto labels = random_labels(15, 4, true);
  const MeanOf<SparseCategoricalCrossentropy> metric{
      {.from_logits = true, .ignore_class = ignored}};
  for (const auto& weights : kinds_of_weights(3, 5)) {
    double sum = 0, all = 0;
    for (std::size_t r = 0; r < 15; ++r) {
      if (labels[r] == ignored) continue;
      const double w = weight_of(weights, r, 15);
      sum += w * of_logits(p[r], one_hot(labels[r], 4)).value;
      all += w;
    }
    const double value = metric_value<D, Label>(metric, out, flat<T>(p), labels,
                                                std::vector<T>(weights.begin(), weights.end()));
    CHECK(std::abs(value - sum / all) <= bound);
  }
  const MeanOf<SparseCategoricalCrossentropy> none{{.from_logits = true, .ignore_class = 0}};
  CHECK(metric_value<D, Label>(none, out, flat<T>(p), std::vector<Label>(15)) == 0);
}

struct PixelNet : lockstep::Sequential<lockstep::Input<4, 3, 2>,
                                       lockstep::Conv2D<5, 3, lockstep::same, lockstep::relu>,
                                       lockstep::Conv2D<3, 1>> {};

/// Loss of each epoch and of an evaluation of a small network, with ignored labels, sample weights and
/// class weights.
template <class D>
std::vector<double> training() {
  using namespace lockstep;
  using T = typename D::real;
  constexpr std::size_t count = 19;
  const auto values = normal_values(count * 24, 51);
  const std::vector<T> x(values.begin(), values.end());
  std::vector<double> w(count);
  for (std::size_t i = 0; i < count; ++i) w[i] = 0.5 + static_cast<double>(i % 3);
  const auto data = tensors(x, shape(4, 3, 2), random_labels(count * 12, 3, true), shape(4, 3));
  Model model{PixelNet{}, OneDevice<D>{},
              SparseCategoricalCrossentropy{.from_logits = true, .ignore_class = ignored},
              SGD{.learning_rate = 0.1f}, Weighted<Accuracy>{{.ignore_class = ignored}}};
  const auto history = model.fit(
      data | sample_weights(w) | shuffle(count) | batch(8),
      {.epochs = 3, .class_weight = {{1, 2.0}, {2, 0.5}}, .progress = ProgressStyle::none});
  std::vector<double> found = history["loss"];
  found.push_back(history["accuracy"].back());
  found.push_back(model.evaluate(data | batch(7))["loss"]);
  return found;
}

/// Device D trains as Reference<double>.
template <class D>
void trains_as_the_reference(double bound) {
  const auto found = training<D>(), expected = training<lockstep::Reference<double>>();
  REQUIRE(found.size() == 5);
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO("number " << i);
    CHECK(std::abs(found[i] - expected[i]) <= bound);
  }
}

}  // namespace testing::positions
