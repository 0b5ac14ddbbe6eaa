/// \file
/// Whole training runs against Keras, through `fit`, on any device.
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

/// Allowed errors: see README.md.
struct Limits {
  double loss, gradient, final, change;
};
/// Of runs stored in float64.
template <class D>
inline constexpr Limits exact_limits{tolerance<D>, tolerance<D>, tolerance<D>, 1e-2};
/// Of runs whose gradients and weights are stored in float32.
template <class D>
inline constexpr Limits rounded_limits = sizeof(typename D::real) == sizeof(double)
                                             ? Limits{1e-10, 1e-7, 1e-7, 1e-2}
                                             : Limits{1e-5, 1e-5, 1e-5, 1e-2};

/// Trains from the run's `init/` over one pass of `data`: the losses and accuracies of all steps,
/// the first step's gradients and the last weights are Keras'.
template <class Net, class D, class Loss, class O, class Data, class... Metrics>
void meets_run(const GoldenFile& file, const std::string& prefix, const Data& data,
               const Loss& loss, const O& optimizer, const Limits& limits, Metrics... metrics) {
  CAPTURE(prefix);
  using T = typename D::real;
  using M = ls::Model<Net, ls::OneDevice<D>, Loss, O, Metrics...>;
  M model{Net{}, {}, loss, optimizer, metrics...};
  for (const auto& p : M::parameters())
    model.set_weights(p.name, testing::as<T>(file.values(prefix + "init/" + p.name)));

  std::map<std::string, std::vector<T>> gradients;
  std::vector<double> losses, accuracies;
  model.fit(data,
            {.callbacks = {ls::LambdaCallback{.on_train_batch_end =
                                                  [&](std::size_t batch, const ls::Logs& logs) {
                                                    losses.push_back(logs.step("loss"));
                                                    if (logs.contains("accuracy"))
                                                      accuracies.push_back(logs.step("accuracy"));
                                                    if (batch == 0)
                                                      for (const auto& p : M::parameters())
                                                        gradients[p.name] = model.gradients(p.name);
                                                  }}},
             .progress = ls::ProgressStyle::none});

  const auto expected = file.values(prefix + "loss");
  REQUIRE(losses.size() == expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    CAPTURE(i, losses[i], expected[i]);
    CHECK(std::abs(losses[i] - expected[i]) <= limits.loss * std::abs(expected[i]));
  }
  if (!accuracies.empty())
    CHECK(testing::relative_error(accuracies, file.values(prefix + "accuracy")) < 1e-12);
  for (const auto& p : M::parameters()) {
    CAPTURE(p.name);
    const auto init = file.values(prefix + "init/" + p.name);
    auto final = file.values(prefix + "final/" + p.name);
    auto ours = testing::as<double>(model.weights(p.name));
    CHECK(testing::relative_error(gradients.at(p.name), file.values(prefix + "grad/" + p.name)) <
          limits.gradient);
    CHECK(testing::relative_error(ours, final) < limits.final);
    for (std::size_t i = 0; i < init.size(); ++i) {
      ours[i] -= init[i];
      final[i] -= init[i];
    }
    CHECK(testing::relative_error(ours, final) < limits.change);
  }
}

struct Line : ls::Sequential<ls::Input<1>, ls::Dense<1, ls::kernel_regularizer(ls::L2{1e-4})>> {};

template <class D>
void meets_linear_regression() {
  const auto ones = ls::tensors(std::vector<float>(200, 1), ls::shape(1),
                                std::vector<float>(200, 1), ls::shape(1));
  meets_run<Line, D>(GoldenFile("linear_regression"), "", ones | ls::batch(10),
                     ls::MeanSquaredError{}, ls::SGD{}, exact_limits<D>);
}

template <int Rows, int Filters, int Units>
struct Cnn
    : ls::Sequential<ls::Input<Rows, Rows, 1>, ls::Conv2D<Filters, 3>, ls::ReLU, ls::MaxPooling2D<>,
                     ls::Flatten, ls::Dense<Units>, ls::ReLU, ls::Dense<10>> {};
struct SmallCnn : Cnn<12, 4, 8> {};
struct MnistCnn : Cnn<28, 32, 64> {};

inline constexpr ls::SparseCategoricalCrossentropy crossentropy{.from_logits = true};

template <class D>
void meets_small_cnn() {
  const GoldenFile file("mnist_cnn_small");
  const auto data =
      ls::tensors(testing::as<std::uint8_t>(file.values("images")), file.example_shape("images"),
                  testing::as<std::int32_t>(file.values("labels"))) |
      ls::rescale(1.0 / 255);
  const auto run = [&](const std::string& prefix, std::size_t batch, const auto& optimizer) {
    meets_run<SmallCnn, D>(file, prefix, data | ls::batch(batch), crossentropy, optimizer,
                           exact_limits<D>, ls::Accuracy{});
  };
  run("sgd/", 16, ls::SGD{.learning_rate = 0.01});
  run("adam/", 16, ls::Adam{.learning_rate = 0.001});
  run("uneven/", 13, ls::SGD{.learning_rate = 0.01});
}

/// The tutorials' CNN on real MNIST: 20 or 6 steps.
template <class D>
void meets_mnist_cnn() {
  const char* const folder = std::getenv("LOCKSTEP_GOLDEN_FULL");
  const char* const mnist = std::getenv("LOCKSTEP_MNIST");
  if (folder == nullptr || mnist == nullptr)
    SKIP(
        "set LOCKSTEP_GOLDEN_FULL to the folder of mnist_cnn_*.safetensors and LOCKSTEP_MNIST to "
        "the folder of MNIST");
  const auto images = ls::datasets::mnist(mnist).train() | ls::rescale(1.0 / 255);
  const auto run = [&](const std::string& name, std::size_t batch, std::size_t steps,
                       const auto& optimizer) {
    meets_run<MnistCnn, D>(GoldenFile(name, folder), "",
                           images | ls::take(batch * steps) | ls::batch(batch), crossentropy,
                           optimizer, rounded_limits<D>, ls::Accuracy{});
  };
  run("mnist_cnn_sgd", 64, 20, ls::SGD{.learning_rate = 0.01});
  run("mnist_cnn_adam", 64, 20, ls::Adam{.learning_rate = 0.001});
  run("mnist_cnn_uneven", 61, 6, ls::SGD{.learning_rate = 0.01});
}

}  // namespace golden
