/// \file
#include "lockstep/devices/cuda/ops/tied_dense.hpp"

#include <catch2/catch_test_macros.hpp>

#include "lockstep/lockstep.hpp"
#include "unit/devices/cuda/compare.hpp"

namespace ls = lockstep;

namespace {

struct Words : ls::Sequential<ls::Input<3>, ls::Shared<"tokens", ls::Embedding<6, 4>>,
                              ls::Dense<4, ls::tanh>, ls::TiedDense<"tokens">> {};

testing::Numbers numbers_of(const ls::TiedDenseOp& op, std::size_t count) {
  return testing::numbers(op, op.vectors() * static_cast<std::size_t>(op.columns), op.weights(),
                          count);
}

/// The weights after two steps, and the predictions.
template <class D>
std::vector<double> trained() {
  ls::Model model{Words{}, ls::OneDevice<D>{},
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::SGD{.learning_rate = 0.5}, ls::Accuracy{}};
  using T = typename D::real;
  const auto data = ls::tensors(std::vector<T>{0, 5, 2, 2, 1, 3}, ls::shape(3),
                                std::vector<std::int32_t>{1, 2, 3, 0, 5, 4}, ls::shape(3)) |
                    ls::batch(2);
  model.fit(data, {.epochs = 2, .progress = ls::ProgressStyle::none});
  std::vector<double> all;
  const auto add = [&](const auto& values) { all.insert(all.end(), values.begin(), values.end()); };
  for (const auto& p : model.parameters()) add(model.weights(p.name));
  const auto predicted = model.predict(data);
  add(predicted.elements());
  return all;
}

}  // namespace

TEST_CASE("products with a transposed matrix agree with the reference") {
  ls::Philox g(21);
  for (int i = 0; i < testing::generated_shapes; ++i) {
    const ls::TiedDenseOp op{testing::between(g, 1, 90), testing::between(g, 1, 70),
                             testing::leading_axes(g)};
    const auto count = static_cast<std::size_t>(testing::between(g, 0, 20));
    INFO("matrix " << op.rows << " x " << op.columns << ", vectors " << op.vectors()
                   << ", examples " << count);
    testing::check_against_reference(op, count, numbers_of(op, count));
  }
}

TEST_CASE("products with a transposed matrix in mixed precision agree with the reference") {
  const ls::TiedDenseOp op{50, 24, ls::shape(5)};
  testing::check_in_bfloat16(op, 4, numbers_of(op, 4), op.weights());
  testing::check_in_float16(op, 4, numbers_of(op, 4));
}

TEST_CASE("a tied table trains on a GPU as on the reference") {
  testing::TestGpu gpu;
  CHECK(testing::relative_error(trained<ls::Cuda>(), trained<ls::Reference<double>>()) < 1e-5);
}
