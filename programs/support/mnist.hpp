/// \file
/// The shared part of the MNIST programs: the data, and optimizer and precision of a unit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/lockstep.hpp>
#include <lockstep/training/report/profile.hpp>

#include "support/build.hpp"
#include "support/predictions.hpp"
#include "support/units.hpp"

// The build compiles mnist.cpp once for each strategy, optimizer and precision.
#ifndef LOCKSTEP_OPTIMIZER
#define LOCKSTEP_OPTIMIZER sgd
#endif

namespace support {

/// The options of the unit that includes this file; not inline, since each unit has different ones.
constexpr const char* unit_options = "--optimizer " LOCKSTEP_TEXT(
    LOCKSTEP_OPTIMIZER) " --precision " LOCKSTEP_TEXT(LOCKSTEP_PRECISION) LOCKSTEP_POLICY_OPTION;

/// The values of --optimizer.
enum class Optimizer { sgd, momentum, adam };

/// The one of the unit that includes this file.
constexpr Optimizer unit_optimizer = Optimizer::LOCKSTEP_OPTIMIZER;

/// The optimizer with the options' learning rate.
template <Optimizer kind>
auto optimizer(const Options& o) {
  if constexpr (kind == Optimizer::adam)
    return lockstep::Adam{.learning_rate = o.learning_rate};
  else if constexpr (kind == Optimizer::momentum)
    return lockstep::SGD{.learning_rate = o.learning_rate, .momentum = 0.9};
  else
    return lockstep::SGD{.learning_rate = o.learning_rate};
}

/// Checks the images' shape and number before training; `part` is "train" or "t10k".
/// \throws lockstep::DataError naming the folder and the file.
inline void check_images(const Options& o, const std::string& part,
                         const lockstep::datasets::Images& images) {
  const std::string file = part + "-images-idx3-ubyte";
  const lockstep::Shape model = lockstep::shape(28, 28, 1);
  if (images.shape() != model)
    throw lockstep::DataError(
        o.data.value_or(""),
        "the images of {} have shape {}, but the model expects {}; pass --data a folder with 28x28 "
        "images",
        file, to_string(images.shape()), to_string(model));
  if (images.size() == std::uint64_t{0})
    throw lockstep::DataError(o.data.value_or(""),
                              "{} has no images; pass --data a folder with some", file);
}

/// The pipeline of the test images.
inline auto test_batches(const lockstep::datasets::Images& images, std::size_t batch) {
  return images | lockstep::rescale(1.0 / 255) | lockstep::batch(batch);
}

template <class Model>
constexpr bool model_has_workers = false;
template <class Net, class Strategy, class... Rest>
constexpr bool model_has_workers<lockstep::Model<Net, Strategy, Rest...>> = has_workers<Strategy>;

/// Prints the test accuracy, and the first --show test images with their predictions.
template <class Model>
void show_predictions(Model& model, const Options& o, const lockstep::datasets::Images& test,
                      double accuracy) {
  const std::size_t count = std::min<std::size_t>(o.show, *test.size());
  const auto x = test.features().first(count * test.shape().size());
  const auto y = test.targets().first(count);
  const lockstep::datasets::Images shown({x.begin(), x.end()}, test.shape(),  //
                                         {y.begin(), y.end()}, test.target_shape());
  const auto logits = model.predict(test_batches(shown, count));
  std::vector<ShownDigit> digits;
  for (std::size_t i = 0; i < count; ++i)
    digits.push_back({.pixels = x.subspan(i * test.shape().size(), test.shape().size()),
                      .logits = logits.row(i),
                      .label = y[i]});
  print_predictions(o, accuracy, digits);
}

/// Builds the tutorial's pipeline on the options' data, and trains.
template <class Model>
void train_on_mnist(Model& model, Job& job) {
  namespace ls = lockstep;
  job.describe(model);
  const Options& o = job.options();
  const auto source = o.data ? ls::datasets::mnist(*o.data) : ls::datasets::digits();
  if (!o.data) job.note_drawn(model.is_chief(), source.name(), "a folder with real images");
  const std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  const auto files = source.train();
  check_images(o, "train", files);
  const auto images =
      files | ls::skip(o.skip) | ls::take(o.take.value_or(all)) | ls::rescale(1.0 / 255);
  if (images.size() == std::uint64_t{0})
    throw ls::Error("--skip {} leaves no training image; skip fewer", o.skip);
  const auto train = images | ls::cache | ls::shuffle(o.shuffle ? 10'000 : 1) |
                     (o.steps_per_epoch ? ls::repeat : ls::repeat(1)) | ls::batch(o.batch);
  std::optional<ls::datasets::Images> test;
  std::optional<decltype(test_batches(files, o.batch))> validation;
  if (o.validate) {
    test = source.test();
    check_images(o, "t10k", *test);
    validation = test_batches(*test, o.batch);
  }
  job.train(model, train, validation ? &*validation : nullptr, [&](const ls::History& history) {
    if constexpr (!model_has_workers<Model>)
      if (o.show > 0) show_predictions(model, o, *test, history["val_accuracy"].back());
  });
}

}  // namespace support
