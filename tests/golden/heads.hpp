/// \file
/// The runs of make_heads.py, which simulates a network with four outputs in NumPy: losses, weights,
/// masks and metrics by output.
#pragma once

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "golden/weighted.hpp"
#include "lockstep/heads.hpp"

namespace golden {

/// Four outputs in one row, and two inputs.
struct HeadsNet : ls::Sequential<ls::Input<5>, ls::Dense<6, ls::tanh>, ls::Dense<15>> {
  static constexpr std::array<ls::RowPart, 2> inputs{
      {{"pair", ls::shape(2), 0}, {"triple", ls::shape(3), 2}}};
  static constexpr std::array<ls::RowPart, 4> outputs{{{"kind", ls::shape(3), 0},
                                                       {"even", ls::shape(1), 3},
                                                       {"tags", ls::shape(3, 3), 4},
                                                       {"curve", ls::shape(2, 1), 13}}};
};

template <class S>
auto model_with_heads(const S& strategy, bool is_weighted) {
  // --8<-- [start:losses]
  ls::Losses losses{
      ls::Head<"curve", ls::MeanSquaredError>{.weight = 2, .masks = true},
      ls::Head<"kind", ls::SparseCategoricalCrossentropy>{.loss = {.from_logits = true}},
      ls::Head<"tags", ls::SparseCategoricalCrossentropy>{
          .loss = {.from_logits = true, .ignore_class = -1}, .weight = 0.5},
      ls::Head<"even", ls::BinaryCrossentropy>{.loss = {.from_logits = true}, .weight = 0.3}};
  // --8<-- [end:losses]
  if (is_weighted) std::get<1>(losses.heads).class_weight = {{2, 3}, {0, 0.25}};
  return ls::Model{HeadsNet{}, strategy, losses, ls::SGD{.learning_rate = 0.25},
                   // --8<-- [start:metrics]
                   ls::On<"kind", ls::Accuracy>{}, ls::On<"kind", ls::Weighted<ls::Accuracy>>{},
                   ls::On<"even", ls::BinaryAccuracy>{{.threshold = 0}},
                   ls::On<"tags", ls::Weighted<ls::Accuracy>>{{{.ignore_class = -1}}}};
  // --8<-- [end:metrics]
}

/// The columns [first, first + count) of rows of `width`, of the first `examples`.
inline std::vector<double> columns(const std::vector<double>& rows, std::size_t width,
                                   std::size_t first, std::size_t count, std::size_t examples) {
  std::vector<double> result;
  for (std::size_t i = 0; i < examples; ++i)
    for (std::size_t k = 0; k < count; ++k) result.push_back(rows[i * width + first + k]);
  return result;
}

/// The file's first `n` examples, in an order that is not the network's.
inline ls::NamedFields fields_of_heads(const GoldenFile& file, std::size_t n, bool is_weighted) {
  const auto part = [&](const char* name, std::size_t width, std::size_t first, std::size_t count) {
    return columns(file.values(name), width, first, count, n);
  };
  std::vector<ls::NamedField> all{
      ls::target("tags", testing::as<std::int32_t>(part("tags", 3, 0, 3)), ls::shape(3)),
      ls::feature("triple", part("x", 5, 2, 3), ls::shape(3)),
      ls::target("kind", testing::as<std::uint8_t>(part("kind", 1, 0, 1))),
      ls::feature("pair", part("x", 5, 0, 2), ls::shape(2)),
      ls::target("curve", part("curve", 2, 0, 2), ls::shape(2, 1)),
      ls::target("even", part("even", 1, 0, 1), ls::shape(1))};
  if (is_weighted) {
    all.push_back(ls::weight("curve", part("w", 7, 5, 2), ls::shape(2)));
    all.push_back(ls::weight("kind", part("w", 7, 0, 1)));
    all.push_back(ls::weight("tags", part("w", 7, 2, 3), ls::shape(3)));
    all.push_back(ls::weight("even", part("w", 7, 1, 1), ls::shape(1)));
  }
  return ls::NamedFields(std::move(all));
}

template <class M>
void set_initial_weights(M& model, const GoldenFile& file) {
  auto from = testing::as<typename M::T>(file.values("init"));
  std::size_t at = 0;
  for (const auto& p : model.parameters()) {
    model.set_weights(p.name, {from.data() + at, p.size()});
    at += p.size();
  }
}

template <class S>
Results run_of_heads(const GoldenFile& file, const S& strategy, bool is_weighted) {
  auto model = model_with_heads(strategy, is_weighted);
  set_initial_weights(model, file);
  const auto data = [&](std::size_t n) {
    return ls::weighted_examples(model, fields_of_heads(file, n, is_weighted)) | ls::batch(8);
  };
  const auto history = model.fit(data(21), {.epochs = 2, .progress = ls::ProgressStyle::none});
  Results results;
  for (const auto& name : history.names()) results[name] = history[name];
  for (const auto& p : model.parameters())
    for (const auto v : model.weights(p.name)) results["final"].push_back(static_cast<double>(v));
  for (const auto& [name, value] : model.evaluate(data(10))) results["evaluate/" + name] = {value};
  return results;
}

inline void is_simulated(const GoldenFile& file, const Results& results, bool is_weighted,
                         double allowed) {
  CHECK(results.size() == 1 + 2 * 9);
  for (const auto& [name, values] : results) {
    CAPTURE(name, is_weighted);
    CHECK(testing::relative_error(
              values, file.values((is_weighted ? "weighted/" : "plain/") + name)) < allowed);
  }
}

/// Both runs with a strategy. `allowed`: relative error.
template <class S>
void meets_heads(const S& strategy, double allowed) {
  const GoldenFile file("heads");
  for (const bool is_weighted : {false, true})
    is_simulated(file, run_of_heads(file, strategy, is_weighted), is_weighted, allowed);
}

}  // namespace golden
