/// \file
/// Compares `fit` and `evaluate` with sample and class weights with Keras, on any strategy.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "golden/mirrored.hpp"

namespace golden {

/// The results of a run, by the names in the file: "history/loss", "final/dense/kernel", ...
using Results = std::map<std::string, std::vector<double>>;

struct FourClasses : ls::Sequential<ls::Input<3>, ls::Dense<6, ls::tanh>, ls::Dense<4>> {};

inline constexpr std::size_t weighted_batch = 8;
inline constexpr int weighted_epochs = 3;

/// One of the file's runs: `fit` with `train`, `validation` and `classes`, then `evaluate`.
template <class S, class Loss, class Train, class Validation, class Test>
Results weighted_run(const GoldenFile& file, const std::string& prefix, const S& strategy,
                     const Loss& loss, const Train& train, const Validation& validation,
                     const Test& test, const ls::ClassWeights& classes) {
  ls::Model model{FourClasses{},  strategy,
                  loss,           ls::SGD{.learning_rate = 0.25},
                  ls::Accuracy{}, ls::Weighted<ls::Accuracy>{}};
  using T = typename S::device::real;
  for (const auto& p : model.parameters())
    model.set_weights(p.name, testing::as<T>(file.values(prefix + "init/" + p.name)));
  const auto history = model.fit(
      train | ls::batch(weighted_batch), validation | ls::batch(weighted_batch),
      {.epochs = weighted_epochs, .class_weight = classes, .progress = ls::ProgressStyle::none});
  Results results;
  for (const auto& name : history.names()) {
    const auto values = history[name];
    results["history/" + name] = {values.begin(), values.end()};
  }
  for (const auto& p : model.parameters())
    results["final/" + p.name] = testing::as<double>(model.weights(p.name));
  for (const auto& [name, value] : model.evaluate(test | ls::batch(weighted_batch)))
    results["evaluate/" + name] = {value};
  return results;
}

inline const std::vector<std::string> weighted_prefixes{"samples/", "classes/", "categorical/"};

/// Repeats the run with this prefix.
template <class S>
Results weighted_run(const GoldenFile& file, const std::string& prefix, const S& strategy) {
  const auto examples = [&](const std::string& part) {
    return ls::tensors(file.values(part + "x"), ls::shape(3),
                       testing::as<std::int32_t>(file.values(part + "labels")));
  };
  const auto rows = [&](const std::string& part) {
    const auto labels = file.values(part + "labels");
    std::vector<double> onehot(labels.size() * 4);
    for (std::size_t i = 0; i < labels.size(); ++i)
      onehot[i * 4 + static_cast<std::size_t>(labels[i])] = 1;
    return ls::tensors(file.values(part + "x"), ls::shape(3), onehot, ls::shape(4));
  };
  const auto train = ls::sample_weights(file.values("weights"));
  const auto other = ls::sample_weights(file.values("val_weights"));
  const ls::ClassWeights classes{{0, 0.25}, {1, 3}, {3, 1.75}};
  const auto labelled = examples("val_");
  if (prefix == "samples/")
    return weighted_run(file, prefix, strategy, crossentropy, examples("") | train,
                        labelled | other, labelled | other, {});
  if (prefix == "classes/")
    return weighted_run(file, prefix, strategy, crossentropy, examples(""), labelled,
                        labelled | other, classes);
  const auto onehot = rows("val_");
  return weighted_run(file, prefix, strategy, ls::CategoricalCrossentropy{.from_logits = true},
                      rows(""), onehot, onehot | other, classes);
}

/// All runs of the file, by their prefixes.
template <class S>
std::map<std::string, Results> weighted_runs(const GoldenFile& file, const S& strategy) {
  std::map<std::string, Results> runs;
  for (const std::string& prefix : weighted_prefixes)
    runs[prefix] = weighted_run(file, prefix, strategy);
  return runs;
}

/// Checks that all values stored by Keras are matched, and that there are no others.
inline void are_as_keras(const std::map<std::string, Results>& runs, const GoldenFile& file,
                         double allowed) {
  for (const auto& [prefix, results] : runs) {
    CHECK(results.size() == 6 + 4 + 3);
    for (const auto& [name, values] : results) {
      CAPTURE(prefix, name);
      CHECK(testing::relative_error(values, file.values(prefix + name)) < allowed);
    }
  }
}

template <class D>
void meets_weighted() {
  const GoldenFile file("weighted");
  are_as_keras(weighted_runs(file, ls::OneDevice<D>{}), file, tolerance<D>);
}

/// Trains with one to eight replicas, some of which have no examples in the last batches.
template <class D>
void meets_weighted_mirrored() {
  const GoldenFile file("weighted");
  const auto one = weighted_runs(file, ls::OneDevice<D>{.on = single<D>()});
  for (std::size_t n = 1; n <= 8; ++n) {
    CAPTURE(n);
    const auto many = weighted_runs(file, ls::Mirrored<D>{.replicas = n, .on = single<D>()});
    are_as_keras(many, file, tolerance<D>);
    for (const auto& [prefix, results] : one)
      for (const auto& [name, values] : results) {
        CAPTURE(prefix, name);
        CHECK(testing::relative_error(many.at(prefix).at(name), values) <= distance<D>.final_adam);
      }
  }
}

}  // namespace golden
