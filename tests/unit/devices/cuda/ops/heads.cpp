/// \file
#include "lockstep/devices/cuda/ops/heads.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "golden/heads.hpp"
#include "lockstep/lockstep.hpp"
#include "unit/devices/cuda/compare.hpp"

namespace {

namespace heads {

namespace ls = lockstep;

/// A head for each kind of kernel: rows, elements, labels of steps.
template <class S>
auto model_of(const S& strategy) {
  return ls::Model{
      golden::HeadsNet{},
      ls::Seed{5},
      strategy,
      ls::Losses{
          ls::Head<"kind", ls::CategoricalCrossentropy>{
              .loss = {.from_logits = true}, .masks = true, .class_weight = {{1, 3}, {2, 0.5}}},
          ls::Head<"even", ls::Huber>{.weight = 0.5, .class_weight = {{1, 2}}},
          ls::Head<"tags", ls::SparseCategoricalCrossentropy>{
              .loss = {.from_logits = true, .ignore_class = -1}, .masks = true},
          ls::Head<"curve", ls::CosineSimilarity>{.weight = -2}},
      ls::Adam{.learning_rate = 0.05},
      ls::On<"kind", ls::Weighted<ls::Accuracy>>{},
      ls::On<"kind", ls::MeanOf<ls::CategoricalCrossentropy>>{{.loss = {.from_logits = true}}},
      ls::On<"even", ls::AUC<>>{{.from_logits = true}},
      ls::On<"even", ls::Weighted<ls::MeanOf<ls::MeanSquaredError>>>{},
      ls::On<"tags", ls::Weighted<ls::TopKCategoricalAccuracy>>{{{.k = 2, .ignore_class = -1}}}};
}

/// Rows of HeadsNet: 5 numbers; targets 3 + 1 + 3 + 2; weights 1 + 1 + 3 + 2.
template <class T>
auto data_of(bool has_nan) {
  constexpr std::size_t examples = 12;
  ls::Philox g(9);
  std::vector<T> x, y, w;
  for (std::size_t n = 0; n < examples; ++n) {
    for (int k = 0; k < 5; ++k) x.push_back(static_cast<T>(static_cast<float>(g.normal())));
    const auto kind = g.below(3);
    for (std::uint32_t k = 0; k < 3; ++k) y.push_back(k == kind ? T(1) : T(0));
    y.push_back(T(g.below(2)));
    for (int k = 0; k < 3; ++k) y.push_back(T(static_cast<int>(g.below(4)) - 1));
    for (int k = 0; k < 2; ++k) y.push_back(static_cast<T>(static_cast<float>(g.normal())));
    for (int k = 0; k < 7; ++k) w.push_back(T(g.below(3)) / 2);
    if (has_nan && w[7 * n] == 0) y[9 * n] = std::numeric_limits<T>::quiet_NaN();
  }
  return ls::tensors(x, ls::shape(5), y, ls::shape(9)) | ls::sample_weights(w, ls::shape(7)) |
         ls::batch(5);
}

template <class S>
golden::Results trained(const S& strategy, bool has_nan = false) {
  auto model = model_of(strategy);
  using T = typename decltype(model)::T;
  const auto data = data_of<T>(has_nan);
  golden::Results results;
  const auto history = model.fit(data, {.epochs = 3, .progress = ls::ProgressStyle::none});
  for (const auto& name : history.names()) results[name] = history[name];
  for (const auto& [name, value] : model.evaluate(data)) results["evaluate/" + name] = {value};
  for (const auto& p : model.parameters())
    for (const auto v : model.weights(p.name)) results["final"].push_back(static_cast<double>(v));
  return results;
}

}  // namespace heads
}  // namespace

TEST_CASE("losses and metrics of several outputs on a GPU agree with the reference") {
  testing::TestGpu gpu;
  const auto expected = heads::trained(lockstep::OneDevice<lockstep::Reference<double>>{});
  const auto check = [&](const golden::Results& found, const golden::Results& of_reference) {
    CHECK(found.size() == of_reference.size());
    for (const auto& [name, values] : of_reference) {
      CAPTURE(name, found.at(name), values);
      CHECK(testing::relative_error(found.at(name), values) < 2e-5);
    }
  };
  check(heads::trained(lockstep::OneDevice<lockstep::Cuda>{}), expected);
  check(heads::trained(lockstep::Mirrored<lockstep::Cuda>{{"/gpu:0", "/gpu:0"}}), expected);
  // The masked targets of `kind` may be NaN.
  const auto with_nan = heads::trained(lockstep::OneDevice<lockstep::Cuda>{}, true);
  CHECK(with_nan.at("loss") == heads::trained(lockstep::OneDevice<lockstep::Cuda>{}).at("loss"));
}
