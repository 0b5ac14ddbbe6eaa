/// \file
/// Models on CpuBFloat16: fit, evaluate, predict and weights files.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/cpu.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "support/bfloat16.hpp"
#include "unit/model/toy_device.hpp"

namespace ls = lockstep;

namespace {

using Half = ls::CpuBFloat16;

struct Block : ls::Sequential<ls::Conv2D<8, 3, ls::same>, ls::BatchNormalization<ls::synchronized>,
                              ls::ReLU, ls::Conv2D<8, 3, ls::same>> {};
struct Net : ls::Sequential<ls::Input<28, 28, 1>, ls::Conv2D<8, 3>, ls::ReLU, ls::MaxPooling2D<>,
                            ls::Residual<Block>, ls::ReLU, ls::Flatten, ls::Dense<10>> {};

auto digits(std::uint64_t count) {
  return ls::datasets::digits().train() | ls::take(count) | ls::rescale(1.0 / 255);
}
template <class S>
auto model(const S& strategy, std::uint64_t seed = 5) {
  return ls::Model{Net{},
                   ls::Seed{seed},
                   strategy,
                   ls::SparseCategoricalCrossentropy{.from_logits = true},
                   ls::SGD{.learning_rate = 0.02, .momentum = 0.9},
                   ls::Accuracy{}};
}
template <class M>
std::vector<double> losses(M& m, std::size_t batch) {
  std::vector<double> result;
  const auto note = [&](std::size_t, const ls::Logs& logs) { result.push_back(logs.step("loss")); };
  m.fit(digits(320) | ls::batch(batch),
        {.epochs = 3,
         .verify_every = 5,
         .callbacks = {ls::LambdaCallback{.on_train_batch_end = note}},
         .progress = ls::ProgressStyle::none});
  return result;
}

}  // namespace

TEST_CASE("replicas in bfloat16 train like one, even with uneven shares, and close to float32") {
  testing::need_bfloat16();
  auto plain = model(ls::OneDevice<ls::Cpu>{{.threads = 1}});
  auto one = model(ls::OneDevice<Half>{{.threads = 1}});
  const auto reference = losses(plain, 61), expected = losses(one, 61);
  REQUIRE(reference.back() < 0.7 * reference.front());
  const auto near = [](const std::vector<double>& a, const std::vector<double>& b, double limit) {
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      CAPTURE(i, a[i], b[i]);
      CHECK(std::abs(a[i] - b[i]) < limit * b.front());
    }
  };
  near(expected, reference, 5e-2);
  for (const std::size_t replicas : {2u, 3u}) {
    auto many = model(ls::Mirrored<Half>{.replicas = replicas, .on = {.threads = 1}});
    near(losses(many, 61), expected, 5e-2);
  }
}

TEST_CASE("predictions of a model in bfloat16 agree with its evaluation") {
  testing::need_bfloat16();
  auto m = model(ls::OneDevice<Half>{});
  losses(m, 32);
  const auto data = digits(70) | ls::batch(32);
  const auto predicted = m.predict(data);
  REQUIRE(predicted.count() == 70);
  for (const float v : predicted.elements()) REQUIRE(v == float(ls::bfloat16(v)));
  auto plain = model(ls::OneDevice<ls::Cpu>{});
  for (const auto& p : decltype(plain)::parameters()) plain.set_weights(p.name, m.weights(p.name));
  const auto exact = plain.predict(data);
  double difference = 0, all = 0;
  for (std::size_t i = 0; i < exact.elements().size(); ++i) {
    const double d = static_cast<double>(predicted.elements()[i] - exact.elements()[i]);
    difference += d * d;
    all += std::pow(static_cast<double>(exact.elements()[i]), 2);
  }
  CHECK(std::sqrt(difference / all) < 2e-2);
  const auto a = m.evaluate(data, {.progress = ls::ProgressStyle::none}),
             b = plain.evaluate(data, {.progress = ls::ProgressStyle::none});
  CHECK(std::abs(a["loss"] - b["loss"]) < 2e-2 * (1 + b["loss"]));
}

TEST_CASE("weights stay in float32: a file restores them bit for bit on either device") {
  testing::need_bfloat16();
  const auto file = std::filesystem::temp_directory_path() / "lockstep_bfloat16.safetensors";
  auto m = model(ls::OneDevice<Half>{}), again = model(ls::OneDevice<Half>{}, 6);
  auto plain = model(ls::OneDevice<ls::Cpu>{}, 7);
  losses(m, 64);
  const auto kernel = m.weights("dense/kernel");
  CHECK(std::any_of(kernel.begin(), kernel.end(),
                    [](float w) { return w != float(ls::bfloat16(w)); }));
  m.save_weights(file);
  again.load_weights(file);
  plain.load_weights(file);
  std::filesystem::remove(file);
  CHECK(again.weights_sha256() == m.weights_sha256());
  CHECK(plain.weights_sha256() == m.weights_sha256());
}

TEST_CASE("activations in bfloat16 take half the memory") {
  constexpr auto& half = ls::detail::PlanOf<Net, Half>::plan;
  constexpr auto& whole = ls::detail::PlanOf<Net, ls::Reference<float>>::plan;
  CHECK(half.arena <= whole.arena * 55 / 100);
}

TEST_CASE("an embedding that reads the batch gets unrounded indices") {
  testing::need_bfloat16();
  struct Words : ls::Sequential<ls::Input<2>, ls::Embedding<2000, 3>, ls::Flatten, ls::Dense<1>> {};
  ls::Model m{Words{}, ls::OneDevice<Half>{}, ls::MeanSquaredError{}, ls::SGD{}};
  std::vector<float> table(6000);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i / 3 % 100);
  m.set_weights("embedding/embeddings", table);
  m.set_weights("dense/kernel", std::vector<float>{1, 0, 0, 0, 0, 0});
  m.set_weights("dense/bias", std::vector<float>{0});
  const auto y = m.predict(ls::tensors(std::vector<float>{1999, 0, 257, 1, 1025, 2}, ls::shape(2),
                                       std::vector<float>(3), ls::shape(1)) |
                           ls::batch(3));
  CHECK(std::vector<float>(y.elements().begin(), y.elements().end()) ==
        std::vector<float>{99, 57, 25});
}

TEST_CASE("an embedding reads its part of a row without rounding") {
  testing::need_bfloat16();
  struct Row : ls::Graph<ls::In<"number", 2>, ls::In<"words", ls::Integers<2>>,
                         ls::Let<"a", ls::From<"words">, ls::Embedding<1500, 4>, ls::Flatten>,
                         ls::Out<"y", ls::From<"a", "number">, ls::Concatenate>> {};
  toy::Machine<Row, Half> machine(2, 1, {.threads = 1});
  const auto scope = machine.context.scope();
  for (std::size_t i = 0; i < machine.weights.size(); ++i)
    machine.weights[i] = static_cast<float>(i / 4 % 256);  // exact in bfloat16
  machine.engine.weights().upload(machine.weights.data());
  machine.x = {0.5f, 1, 1001, 1003, 2, 4, 257, 1499};  // not representable in 8 bits
  CHECK(machine.forward() == std::vector<float>{233, 233, 233, 233, 235, 235, 235, 235, 0.5f, 1,
                                                1,   1,   1,   1,   219, 219, 219, 219, 2,    4});
  machine.c = std::vector<float>(20, 1);
  const auto gradients = machine.gradients();
  for (const std::size_t row : {1001u, 1003u, 257u, 1499u}) CHECK(gradients[row * 4] == 1);
  CHECK(std::count(gradients.begin(), gradients.end(), 1.0f) == 16);
}
