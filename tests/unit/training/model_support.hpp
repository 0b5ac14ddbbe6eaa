/// \file
/// Linear regression: a model so small that the tests compute its training by hand, in plain
/// doubles.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace line {

namespace ls = lockstep;
using Double = ls::OneDevice<ls::Reference<double>>;
using Float = ls::OneDevice<ls::Reference<float>>;

struct Net : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};
struct Penalised : ls::Sequential<ls::Input<1>, ls::Dense<1, ls::kernel_regularizer(ls::L2{0.25}),
                                                          ls::bias_regularizer(ls::L1{0.5})>> {};
/// Three classes of points in the plane.
struct Classes : ls::Sequential<ls::Input<2>, ls::Dense<8>, ls::ReLU, ls::Dense<3>> {};

inline std::vector<double> xs(std::size_t n = 10) {
  std::vector<double> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<double>(i) / 4 - 1;
  return x;
}
inline std::vector<double> ys(std::size_t n = 10) {
  std::vector<double> y(n);
  for (std::size_t i = 0; i < n; ++i) y[i] = 3 * xs(n)[i] + std::sin(static_cast<double>(i));
  return y;
}
inline auto points(std::size_t n = 10) {
  return ls::tensors(xs(n), ls::shape(1), ys(n), ls::shape(1));
}
inline auto classes(std::size_t n = 40) {
  std::vector<float> x;
  std::vector<std::int32_t> y;
  ls::Philox g(5);
  for (std::size_t i = 0; i < n; ++i) {
    const auto label = static_cast<std::int32_t>(i % 3);
    x.push_back(static_cast<float>(g.normal() + 3 * (label == 1)));
    x.push_back(static_cast<float>(g.normal() + 3 * (label == 2)));
    y.push_back(label);
  }
  return ls::tensors(x, ls::shape(2), y);
}

/// y = w x + b by hand: mean squared error, penalties l2 w^2 and l1 |b|, gradient descent.
struct ByHand {
  double w = 0.5, b = -0.25, l2 = 0, l1 = 0;
  double d_w = 0, d_b = 0;

  double penalty() const { return l2 * w * w + l1 * std::abs(b); }
  double squares(std::size_t first, std::size_t count) const {
    double sum = 0;
    for (std::size_t i = first; i < first + count; ++i) {
      const double e = w * xs()[i] + b - ys()[i];
      sum += e * e;
    }
    return sum;
  }
  /// The step's loss, before its update.
  double step(std::size_t first, std::size_t count, double rate) {
    const double n = static_cast<double>(count), loss = squares(first, count) / n + penalty();
    d_w = 2 * l2 * w;
    d_b = b > 0 ? l1 : b < 0 ? -l1 : 0;
    for (std::size_t i = first; i < first + count; ++i) {
      const double e = w * xs()[i] + b - ys()[i];
      d_w += 2 * e * xs()[i] / n;
      d_b += 2 * e / n;
    }
    w -= rate * d_w;
    b -= rate * d_b;
    return loss;
  }
};

/// A model with ByHand's initial weights.
template <class TheNet = Net>
auto model(ls::SGD optimizer = {.learning_rate = 0.1}) {
  ls::Model m{TheNet{}, Double{}, ls::MeanSquaredError{}, optimizer};
  m.set_weights("dense/kernel", std::vector{0.5});
  m.set_weights("dense/bias", std::vector{-0.25});
  return m;
}
inline auto classifier(std::uint64_t seed = 1) {
  return ls::Model{Classes{},
                   ls::Seed{seed},
                   Float{},
                   ls::SparseCategoricalCrossentropy{.from_logits = true},
                   ls::SGD{.learning_rate = 0.1, .momentum = 0.9},
                   ls::Accuracy{}};
}

inline bool near(double a, double b) {
  return std::abs(a - b) <= 1e-12 * std::max(1.0, std::abs(b));
}

/// Options that print nothing.
inline ls::FitOptions quiet(int epochs = 1) {
  return {.epochs = epochs, .progress = ls::ProgressStyle::none};
}

/// Records every hook, as "train_batch_end 0".
struct Recorder : ls::Callback {
  std::vector<std::string> hooks;
  void note(const char* hook) { hooks.emplace_back(hook); }
  template <class N>
  void note(const char* hook, N n) {
    hooks.push_back(hook + (" " + std::to_string(n)));
  }
  void on_train_begin(const ls::Logs&) override { note("train_begin"); }
  void on_train_end(const ls::Logs&) override { note("train_end"); }
  void on_test_begin(const ls::Logs&) override { note("test_begin"); }
  void on_test_end(const ls::Logs&) override { note("test_end"); }
  void on_predict_begin(const ls::Logs&) override { note("predict_begin"); }
  void on_predict_end(const ls::Logs&) override { note("predict_end"); }
  void on_epoch_begin(int e, const ls::Logs&) override { note("epoch_begin", e); }
  void on_epoch_end(int e, const ls::Logs&) override { note("epoch_end", e); }
  void on_train_batch_begin(std::size_t b, const ls::Logs&) override {
    note("train_batch_begin", b);
  }
  void on_train_batch_end(std::size_t b, const ls::Logs&) override { note("train_batch_end", b); }
  void on_test_batch_begin(std::size_t b, const ls::Logs&) override { note("test_batch_begin", b); }
  void on_test_batch_end(std::size_t b, const ls::Logs&) override { note("test_batch_end", b); }
  void on_predict_batch_begin(std::size_t b, const ls::Logs&) override {
    note("predict_batch_begin", b);
  }
  void on_predict_batch_end(std::size_t b, const ls::Logs&) override {
    note("predict_batch_end", b);
  }
};

/// Records the loss of each step.
struct StepLosses : ls::Callback {
  std::vector<double> losses;
  void on_train_batch_end(std::size_t, const ls::Logs& logs) override {
    losses.push_back(logs.step("loss"));
  }
};

}  // namespace line
