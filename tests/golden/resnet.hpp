/// \file
/// Compares the CIFAR-10 tutorial's ResNet-56 with Keras: four steps of 16 images, synchronized
/// normalization, on any device and strategy.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "golden/training.hpp"
#include "unit/layers/resnet.hpp"

namespace golden {

struct ResNet56 : resnet::ResNet<9> {};

/// Tolerances; see README.md.
struct ResNetLimits {
  double loss, all_gradients, final, final_bias;
};
template <class D>
inline constexpr ResNetLimits resnet_limits =
    sizeof(typename D::real) == sizeof(double) ? ResNetLimits{1e-9, 1e-6, 1e-6, 1e-8}
                                               : ResNetLimits{1e-5, 5e-3, 1e-5, 1e-6};

inline double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}
inline bool ends_with(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

/// The images of the file, standardized as by tf.image.per_image_standardization.
inline std::vector<double> standardized(const GoldenFile& file) {
  std::vector<double> x = file.values("pixels");
  constexpr std::size_t size = 32 * 32 * 3;
  for (auto image = x.begin(); image != x.end(); image += size) {
    double mean = 0, squares = 0;
    std::for_each(image, image + size, [&](double v) { mean += v / size; });
    std::for_each(image, image + size, [&](double& v) {
      v -= mean;
      squares += v * v;
    });
    const double deviation = std::max(std::sqrt(squares / size), 1 / std::sqrt(double(size)));
    std::for_each(image, image + size, [&](double& v) { v /= deviation; });
  }
  return x;
}

/// Compares losses, accuracies, the first gradients and the final parameters with Keras'.
inline void is_keras_resnet(const Trained& run, const GoldenFile& file,
                            const ResNetLimits& limits) {
  const auto expected = file.values("loss");
  REQUIRE(run.losses.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i, run.losses[i], expected[i]);
    CHECK(std::abs(run.losses[i] - expected[i]) <= limits.loss * std::abs(expected[i]));
  }
  CHECK(run.accuracies == file.values("accuracy"));

  double difference = 0, all = 0, largest = 0;
  for (const auto& [name, ours] : run.gradients)
    largest = std::max(largest, norm(file.values("grad/" + name)));
  for (const auto& [name, ours] : run.gradients) {
    CAPTURE(name);
    const auto theirs = file.values("grad/" + name);
    REQUIRE(ours.size() == theirs.size());
    // Normalization cancels a preceding bias, so both gradients are rounding error.
    if (name.compare(0, 6, "conv2d") == 0 && ends_with(name, "/bias")) {
      CHECK(norm(ours) < 1e-5 * largest);
      continue;
    }
    for (std::size_t i = 0; i < ours.size(); ++i)
      difference += (ours[i] - theirs[i]) * (ours[i] - theirs[i]);
    all += norm(theirs) * norm(theirs);
    CHECK(std::abs(norm(ours) / norm(theirs) - 1) < 2 * limits.all_gradients);
    if (limits.all_gradients < 1e-5)
      CHECK(testing::relative_error(ours, theirs) < limits.all_gradients);
  }
  CHECK(std::sqrt(difference / all) < limits.all_gradients);

  CHECK(run.final.size() == 350);
  for (const auto& [name, ours] : run.final) {
    CAPTURE(name);
    const auto theirs = file.values("final/" + name);
    if (!ends_with(name, "/bias") && !ends_with(name, "/beta")) {
      CHECK(testing::relative_error(ours, theirs) < limits.final);
      continue;
    }
    double worst = 0;
    for (std::size_t i = 0; i < ours.size(); ++i)
      worst = std::max(worst, std::abs(ours[i] - theirs[i]));
    CHECK(worst < limits.final_bias);
  }
}

/// Calls check(file, train, limits), which trains with some strategies and calls is_keras_resnet.
/// `steps`: how many of the file's four steps.
template <class D, class Check>
void meets_resnet56(const Check& check, std::size_t steps = 4) {
  const char* const folder = std::getenv("LOCKSTEP_GOLDEN_FULL");
  if (folder == nullptr) SKIP("set LOCKSTEP_GOLDEN_FULL to the folder of resnet56.safetensors");
  const GoldenFile file("resnet56", folder);
  const auto data =
      ls::tensors(testing::as<typename D::real>(standardized(file)), ls::shape(32, 32, 3),
                  testing::as<std::int32_t>(file.values("labels")));
  check(
      file,
      [&](const auto& strategy) {
        return trained<ResNet56>(file, "", strategy, data | ls::take(16 * steps) | ls::batch(16),
                                 crossentropy, ls::SGD{.learning_rate = 0.0001, .momentum = 0.9f},
                                 ls::Accuracy{});
      },
      resnet_limits<D>);
}

/// Trains with one strategy.
template <class D, class S>
void trains_resnet56(const S& strategy) {
  meets_resnet56<D>([&](const GoldenFile& file, const auto& train, const ResNetLimits& limits) {
    is_keras_resnet(train(strategy), file, limits);
  });
}

}  // namespace golden
