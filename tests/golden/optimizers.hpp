/// \file
/// Compares optimizers with Keras: the weights after each of twelve steps, on any device, with one
/// replica and with several.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/reshaping/flatten.hpp"
#include "lockstep/losses/mean_squared_error.hpp"
#include "lockstep/model/sequential.hpp"
#include "lockstep/optimizers/optimizers.hpp"
#include "lockstep/strategies/mirrored.hpp"
#include "lockstep/training/model.hpp"
#include "support/run_kernel.hpp"

namespace golden {

namespace ls = lockstep;

/// A model with nine weights whose loss is the prediction, so that the gradient is the input.
struct Weights : ls::Sequential<ls::Input<9>, ls::Dense<1, ls::no_bias>> {};
struct PredictionOp {
  using target_type = float;
  std::size_t size() const { return 1; }
  std::size_t target_size() const { return 1; }
  template <class T>
  double example(const T* p, const T*, T* g, double scale) const {
    if (g != nullptr) g[0] = static_cast<T>(scale);
    return static_cast<double>(p[0]);
  }
};
struct Prediction {
  using target_type = float;
  static constexpr std::string_view name = "prediction";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr ls::Shape target_shape(ls::Shape out) { return out; }
  PredictionOp op(ls::Shape) const { return {}; }
};

/// How a step is divided, and its number of examples.
struct Sharing {
  std::size_t replicas, virtual_shards, examples;
};

/// Includes replicas and slices without examples.
inline const std::vector<Sharing> all_sharings{
    {1, 0, 1}, {2, 0, 1}, {3, 0, 2}, {2, 0, 4}, {2, 4, 2}};

/// Row `i` of a table with n columns.
inline std::vector<double> row(const std::vector<double>& table, std::size_t i, std::size_t n) {
  const auto first = table.begin() + static_cast<std::ptrdiff_t>(i * n);
  return {first, first + static_cast<std::ptrdiff_t>(n)};
}

template <class D, class O>
void meets_optimizer(const std::string& name, const O& optimizer,
                     const std::vector<Sharing>& sharings, double least_tolerance = 0) {
  DYNAMIC_SECTION(name) {
    using T = typename D::real;
    const GoldenFile file("optimizers");
    const auto w0 = testing::as<T>(file.values("w0"));
    const auto gradients = file.values("g"), expected = file.values(name);
    REQUIRE(gradients.size() == 12 * w0.size());
    // The mean of equal gradients is that gradient, exactly so in float for these counts.
    for (const Sharing& s : sharings) {
      CAPTURE(s.replicas, s.virtual_shards, s.examples);
      ls::Model model{Weights{},
                      ls::Mirrored<D>{.replicas = s.replicas, .virtual_shards = s.virtual_shards},
                      Prediction{}, optimizer};
      model.set_weights("dense/kernel", w0);
      for (std::size_t step = 0; step < 12; ++step) {
        CAPTURE(step);
        std::vector<T> batch;
        for (std::size_t i = 0; i < s.examples; ++i)
          for (const double g : row(gradients, step, w0.size())) batch.push_back(static_cast<T>(g));
        model.train_on_batch(batch, std::vector<T>(s.examples));
        CHECK(
            testing::relative_error(model.weights("dense/kernel"), row(expected, step, w0.size())) <
            std::max(tolerance<D>, least_tolerance));
      }
    }
  }
}

template <class D>
void meets_optimizers(const std::vector<Sharing>& sharings = all_sharings) {
  const auto meets = [&](const std::string& name, const auto& optimizer) {
    meets_optimizer<D>(name, optimizer, sharings);
  };
  using ls::SGD, ls::Adam, ls::RMSprop;
  // 0.1f, 0.9f: Keras on TensorFlow, which recorded the data, rounds these options to float32, also
  // in float64, and Nadam's 0.96. Keras on JAX and PyTorch does not.
  meets("sgd", SGD{.learning_rate = 0.01});
  meets("sgd_momentum", SGD{.learning_rate = 0.01, .momentum = 0.9f});
  meets("sgd_nesterov", SGD{.learning_rate = 0.01, .momentum = 0.9f, .nesterov = true});
  meets("sgd_weight_decay", SGD{.learning_rate = 0.01, .weight_decay = 0.1f});
  meets("sgd_accumulate3",
        SGD{.learning_rate = 0.01, .momentum = 0.9f, .with = {.gradient_accumulation_steps = 3}});
  meets("clipnorm", SGD{.learning_rate = 0.01, .with = {.clipnorm = 1}});
  meets("global_clipnorm", SGD{.learning_rate = 0.01, .with = {.global_clipnorm = 1}});
  meets("clipvalue", SGD{.learning_rate = 0.01, .with = {.clipvalue = 0.5}});
  meets("adam", Adam{.learning_rate = 0.01});
  meets("adam_amsgrad", Adam{.learning_rate = 0.01, .amsgrad = true});
  meets("adam_ema", Adam{.learning_rate = 0.01, .with = {.use_ema = true, .ema_momentum = 0.9}});
  meets("adamw", ls::AdamW{.learning_rate = 0.01});
  meets("rmsprop", RMSprop{.learning_rate = 0.01});
  meets("rmsprop_momentum", RMSprop{.learning_rate = 0.01, .momentum = 0.9});
  meets("rmsprop_centered", RMSprop{.learning_rate = 0.01, .centered = true});
  meets("adagrad", ls::Adagrad{.learning_rate = 0.01});
  meets("adadelta", ls::Adadelta{.learning_rate = 0.1});
  meets("adamax", ls::Adamax{.learning_rate = 0.01});
  meets_optimizer<D>("nadam", ls::Nadam{.learning_rate = 0.01}, sharings, 1e-7);
  meets("lion", ls::Lion{.learning_rate = 0.01});
  meets("lamb", ls::Lamb{.learning_rate = 0.01});
  meets("ftrl", ls::Ftrl{.learning_rate = 0.01, .initial_accumulator_value = 0.1f});
}

/// A kernel of a convolution, a tall, a wide and a square matrix, and a vector.
struct Matrices
    : ls::Sequential<ls::Input<3, 3, 3>, ls::Conv2D<4, 2, ls::no_bias>, ls::Flatten, ls::Dense<3>,
                     ls::Dense<7, ls::no_bias>, ls::Dense<7, ls::no_bias>> {};
inline const std::vector<std::string> matrices{"conv2d/kernel", "dense/kernel", "dense/bias",
                                               "dense_1/kernel", "dense_2/kernel"};

/// Six updates by the gradients of the file. `slots`: elements of the optimizer's buffers.
template <class D, class O>
void meets_matrix_optimizer(const std::string& name, std::size_t slots, const O& optimizer) {
  using T = typename D::real;
  CAPTURE(name);
  const GoldenFile file("matrix_optimizers");
  ls::Model model{Matrices{}, ls::Mirrored<D>{.replicas = 2}, ls::MeanSquaredError{}, optimizer};
  CHECK(model.memory().optimizer == slots * sizeof(T));
  for (const std::string& p : matrices) model.set_weights(p, testing::as<T>(file.values("w/" + p)));
  const std::vector<T> x(27), y(7);
  const auto batch = model.batch(x, y);
  for (std::size_t step = 0; step < 6; ++step) {
    CAPTURE(step);
    auto gradients = model.gradients_of(batch);
    const auto of_step = [&](const std::string& tensor, const std::string& p) {
      return row(file.values(tensor + "/" + p), step, gradients[p].size());
    };
    for (const std::string& p : matrices) {
      const auto values = testing::as<T>(of_step("g", p));
      std::copy(values.begin(), values.end(), gradients[p].begin());
    }
    model.apply(gradients);
    for (const std::string& p : matrices) {
      CAPTURE(p);
      CHECK(testing::relative_error(model.weights(p), of_step(name, p)) < tolerance<D>);
    }
  }
}

template <class D>
void meets_muon() {
  using ls::Muon;
  const auto meets = meets_matrix_optimizer<D, Muon>;
  // 169 weights, of which the convolution's 48 and the vector's 3 have a second slot.
  meets("muon", 169 + 51, Muon{.learning_rate = 0.01});
  meets("muon_options", 169 + 51 + 21,
        Muon{.learning_rate = 0.01,
             .momentum = 0.8,
             .nesterov = false,
             .weight_decay = 0.1,
             .exclude_layers = {"dense_1"},
             .scale = ls::MuonScale::none,
             .iteration = ls::NewtonSchulz{.a = 1.875, .b = -1.25, .c = 0.375, .steps = 7},
             .adam_weight_decay = 0.2,
             .adam_lr_ratio = 0.5});
  meets("muon_pytorch", 169 + 51,
        Muon{.learning_rate = 0.01, .weight_decay = 0.1, .variant = ls::MuonVariant::pytorch});
  meets("muon_jordan", 169 + 3,
        Muon{.learning_rate = 0.02, .weight_decay = 0, .variant = ls::MuonVariant::jordan});
}

template <class D>
void meets_adafactor() {
  using ls::Adafactor;
  const auto meets = meets_matrix_optimizer<D, Adafactor>;
  constexpr std::size_t factors = 2 * 2 * (3 + 4) + (16 + 3) + 3 + (3 + 7) + (7 + 7);
  meets("adafactor", factors, Adafactor{.learning_rate = 0.5});
  meets("adafactor_options", factors,
        Adafactor{.learning_rate = 0.01,
                  .beta_2_decay = -0.5,
                  .epsilon_1 = 1e-3,
                  .epsilon_2 = 0.1,
                  .clip_threshold = 0.5,
                  .weight_decay = 0.1});
}

}  // namespace golden
