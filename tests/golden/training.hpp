/// \file
/// Compares whole training runs with Keras, through `fit`, on any device.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "lockstep/lockstep.hpp"
#include "support/run_kernel.hpp"

namespace golden {

namespace ls = lockstep;

/// Tolerances; see README.md.
struct Limits {
  double loss, gradient, final, change;
};
/// Tolerances for runs stored in float64.
template <class D>
inline constexpr Limits exact_limits{tolerance<D>, tolerance<D>, tolerance<D>, 1e-2};
/// Tolerances for runs whose gradients and weights are stored in float32.
template <class D>
inline constexpr Limits rounded_limits =
    sizeof(typename D::real) == sizeof(double) ? Limits{1e-10, 1e-7, 1e-7, 1e-2}
                                               : Limits{1e-5, 1e-5, 1e-5, 1e-2};

/// The results of a run.
struct Trained {
  std::vector<double> losses, accuracies;
  std::map<std::string, std::vector<double>> init, gradients, final;
};

/// Trains one epoch of `data` from the run's `init/`; the gradients are those of the first step.
template <class Net, class S, class Loss, class O, class Data, class... Metrics>
Trained trained(const GoldenFile& file, const std::string& prefix, const S& strategy,
                const Data& data, const Loss& loss, const O& optimizer, Metrics... metrics) {
  using M = ls::Model<Net, S, Loss, O, Metrics...>;
  using T = typename M::T;
  M model{Net{}, strategy, loss, optimizer, metrics...};
  Trained run;
  for (const auto& p : M::parameters()) {
    run.init[p.name] = file.values(prefix + "init/" + p.name);
    model.set_weights(p.name, testing::as<T>(run.init[p.name]));
  }
  const auto note = [&](std::size_t batch, const ls::Logs& logs) {
    run.losses.push_back(logs.step("loss"));
    if (logs.contains("accuracy")) run.accuracies.push_back(logs.step("accuracy"));
    if (batch > 0) return;
    for (const auto& p : M::parameters())
      if (p.trainable) run.gradients[p.name] = testing::as<double>(model.gradients(p.name));
  };
  model.fit(data, {.callbacks = {ls::LambdaCallback{.on_train_batch_end = note}},
                   .progress = ls::ProgressStyle::none});
  for (const auto& p : M::parameters())
    run.final[p.name] = testing::as<double>(model.weights(p.name));
  return run;
}

/// Compares the losses and accuracies of all steps, the first step's gradients and the final
/// weights with Keras'.
inline void is_as_keras(const Trained& run, const GoldenFile& file, const std::string& prefix,
                        const Limits& limits) {
  const auto expected = file.values(prefix + "loss");
  REQUIRE(run.losses.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i, run.losses[i], expected[i]);
    CHECK(std::abs(run.losses[i] - expected[i]) <= limits.loss * std::abs(expected[i]));
  }
  if (!run.accuracies.empty())
    CHECK(testing::relative_error(run.accuracies, file.values(prefix + "accuracy")) < 1e-12);
  for (const auto& [name, init] : run.init) {
    CAPTURE(name);
    auto final = file.values(prefix + "final/" + name);
    auto ours = run.final.at(name);
    CHECK(testing::relative_error(run.gradients.at(name), file.values(prefix + "grad/" + name)) <
          limits.gradient);
    CHECK(testing::relative_error(ours, final) < limits.final);
    for (std::size_t i = 0; i < init.size(); ++i) {
      ours[i] -= init[i];
      final[i] -= init[i];
    }
    CHECK(testing::relative_error(ours, final) < limits.change);
  }
}

/// A run of Keras for a device to repeat. The functions below pass each run to
/// check(file, prefix, train, limits, is_adam), where train(strategy) returns a Trained.
template <class D>
struct OneDeviceCheck {
  template <class Train>
  void operator()(const GoldenFile& file, const std::string& prefix, const Train& train,
                  const Limits& limits, bool) const {
    CAPTURE(prefix);
    is_as_keras(train(ls::OneDevice<D>{}), file, prefix, limits);
  }
};

struct Line : ls::Sequential<ls::Input<1>, ls::Dense<1, ls::kernel_regularizer(ls::L2{1e-4})>> {};

template <class D, class Check = OneDeviceCheck<D>>
void meets_linear_regression(const Check& check = {}) {
  const GoldenFile file("linear_regression");
  const auto ones = ls::tensors(std::vector<float>(200, 1), ls::shape(1),
                                std::vector<float>(200, 1), ls::shape(1));
  check(
      file, "",
      [&](const auto& strategy) {
        return trained<Line>(file, "", strategy, ones | ls::batch(10), ls::MeanSquaredError{},
                             ls::SGD{});
      },
      exact_limits<D>, false);
}

template <int Rows, int Filters, int Units>
struct Cnn
    : ls::Sequential<ls::Input<Rows, Rows, 1>, ls::Conv2D<Filters, 3>, ls::ReLU, ls::MaxPooling2D<>,
                     ls::Flatten, ls::Dense<Units>, ls::ReLU, ls::Dense<10>> {};
struct SmallCnn : Cnn<12, 4, 8> {};
struct MnistCnn : Cnn<28, 32, 64> {};

inline constexpr ls::SparseCategoricalCrossentropy crossentropy{.from_logits = true};

template <class D, class Check = OneDeviceCheck<D>>
void meets_small_cnn(const Check& check = {}) {
  const GoldenFile file("mnist_cnn_small");
  const auto data =
      ls::tensors(testing::as<std::uint8_t>(file.values("images")), file.example_shape("images"),
                  testing::as<std::int32_t>(file.values("labels"))) |
      ls::rescale(1.0 / 255);
  const auto run = [&](const std::string& prefix, std::size_t batch, const auto& optimizer) {
    check(
        file, prefix,
        [&](const auto& strategy) {
          return trained<SmallCnn>(file, prefix, strategy, data | ls::batch(batch), crossentropy,
                                   optimizer, ls::Accuracy{});
        },
        exact_limits<D>, prefix == "adam/");
  };
  run("sgd/", 16, ls::SGD{.learning_rate = 0.01});
  run("adam/", 16, ls::Adam{.learning_rate = 0.001});
  run("uneven/", 13, ls::SGD{.learning_rate = 0.01});
}

/// The tutorials' CNN on real MNIST: 20 or 6 steps.
template <class D, class Check = OneDeviceCheck<D>>
void meets_mnist_cnn(const Check& check = {}) {
  const char* const folder = std::getenv("LOCKSTEP_GOLDEN_FULL");
  const char* const mnist = std::getenv("LOCKSTEP_MNIST");
  if (folder == nullptr || mnist == nullptr)
    SKIP(
        "set LOCKSTEP_GOLDEN_FULL to the folder of mnist_cnn_*.safetensors and LOCKSTEP_MNIST to "
        "the folder of MNIST");
  const auto images = ls::datasets::mnist(mnist).train() | ls::rescale(1.0 / 255);
  const auto run = [&](const std::string& name, std::size_t batch, std::size_t steps,
                       const auto& optimizer) {
    const GoldenFile file(name, folder);
    CAPTURE(name);
    check(
        file, "",
        [&](const auto& strategy) {
          return trained<MnistCnn>(file, "", strategy,
                                   images | ls::take(batch * steps) | ls::batch(batch),
                                   crossentropy, optimizer, ls::Accuracy{});
        },
        rounded_limits<D>, name == "mnist_cnn_adam");
  };
  run("mnist_cnn_sgd", 64, 20, ls::SGD{.learning_rate = 0.01});
  run("mnist_cnn_adam", 64, 20, ls::Adam{.learning_rate = 0.001});
  run("mnist_cnn_uneven", 61, 6, ls::SGD{.learning_rate = 0.01});
}

}  // namespace golden
