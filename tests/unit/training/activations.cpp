/// \file
/// Activations as options of layers: the same model as with separate activation layers, under one
/// name.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;

namespace {

using Double = ls::Reference<double>;

struct Apart : ls::Sequential<ls::Input<8, 8, 2>, ls::Conv2D<3, 3>, ls::ReLU, ls::Flatten,
                              ls::Dense<5>, ls::Tanh, ls::Dense<4>, ls::Softmax> {};
struct Joined
    : ls::Sequential<ls::Input<8, 8, 2>, ls::Conv2D<3, 3, ls::relu>, ls::Flatten,
                     ls::Dense<5, ls::tanh, ls::glorot_uniform>, ls::Dense<4, ls::softmax>> {};

auto batches() {
  std::vector<float> x(6 * 8 * 8 * 2);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  return ls::tensors(std::move(x), ls::shape(8, 8, 2),
                     std::vector<std::int32_t>{0, 1, 2, 3, 0, 1}) |
         ls::batch(4);
}

template <class Net>
auto model_of() {
  return ls::Model{Net{}, ls::Seed{5}, ls::OneDevice<Double>{},
                   ls::SparseCategoricalCrossentropy{.from_logits = false},
                   ls::SGD{.learning_rate = 0.1}};
}

}  // namespace

TEST_CASE("an activation option computes what the activation layer does, under the layer's name") {
  auto apart = model_of<Apart>();
  auto joined = model_of<Joined>();
  apart.fit(batches(), {.epochs = 3, .progress = ls::ProgressStyle::none});
  joined.fit(batches(), {.epochs = 3, .progress = ls::ProgressStyle::none});
  CHECK(joined.weights("dense/kernel") == apart.weights("dense/kernel"));
  CHECK(joined.weights_sha256() == apart.weights_sha256());
  const auto a = joined.predict(batches());
  const auto b = apart.predict(batches());
  CHECK(std::equal(a.elements().begin(), a.elements().end(), b.elements().begin()));

  std::vector<std::string> names;
  for (const auto& p : ls::detail::parameters_of<Joined>()) names.push_back(p.name);
  CHECK(names == std::vector<std::string>{"conv2d/kernel", "conv2d/bias", "dense/kernel",
                                          "dense/bias", "dense_1/kernel", "dense_1/bias"});
  CHECK(Joined::parameter_count == Apart::parameter_count);
}

TEST_CASE("the summary shows a layer and its activation as one") {
  const std::string text = model_of<Joined>().summary();
  CHECK(text.find("dense_1 (Dense)") != std::string::npos);
  CHECK(text.find("Softmax") == std::string::npos);
  CHECK(text.find("Total params: 626") != std::string::npos);
}

TEST_CASE("the signature distinguishes models with different activations") {
  struct A : ls::Sequential<ls::Input<4>, ls::Dense<2, ls::relu>> {};
  struct B : ls::Sequential<ls::Input<4>, ls::Dense<2, ls::tanh>> {};
  CHECK(ls::detail::describe_layers<A>().find("dense's ReLU to (2)") != std::string::npos);
  CHECK(ls::detail::describe_layers<A>() != ls::detail::describe_layers<B>());
}
