/// \file
/// The first steps of each optimizer, computed by hand, its slots and its errors. tests/golden
/// compares twelve steps of each with Keras.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/optimizers/optimizers.hpp"
#include "lockstep/reference.hpp"
#include "support/run_optimizer.hpp"

namespace ls = lockstep;

namespace {

using Double = ls::Reference<double>;
constexpr double none = std::numeric_limits<double>::quiet_NaN();

bool near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(1.0, std::abs(b)); }

template <class O>
bool refused(const O& optimizer, const std::string& word) {
  try {
    optimizer.check();
  } catch (const ls::UsageError& error) {
    const std::string text = error.what();
    return text.find(O::name) == 0 && text.find(word) != std::string::npos;
  }
  return false;
}

template <class O>
std::vector<std::string> slots_of(const O& optimizer) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < optimizer.slot_count(); ++i)
    names.emplace_back(optimizer.slot_name(i));
  return names;
}
using Names = std::vector<std::string>;

static_assert(ls::Optimizer<ls::AdamW> && ls::Optimizer<ls::Adamax> && ls::Optimizer<ls::Nadam> &&
              ls::Optimizer<ls::RMSprop> && ls::Optimizer<ls::Adagrad> &&
              ls::Optimizer<ls::Adadelta> && ls::Optimizer<ls::Lion> && ls::Optimizer<ls::Lamb> &&
              ls::Optimizer<ls::Ftrl>);
static_assert(ls::ElementwiseUpdate<ls::AdamaxOp> && ls::ElementwiseUpdate<ls::NadamOp> &&
              ls::ElementwiseUpdate<ls::RMSpropOp> && ls::ElementwiseUpdate<ls::AdagradOp> &&
              ls::ElementwiseUpdate<ls::AdadeltaOp> && ls::ElementwiseUpdate<ls::LionOp> &&
              ls::ElementwiseUpdate<ls::FtrlOp>);

}  // namespace

TEST_CASE("AdamW is Adam with a weight decay of 0.004 by default") {
  CHECK(ls::AdamW{}.weight_decay == 0.004);
  CHECK(ls::AdamW{}.op(0.1, 3) == ls::Adam{}.op(0.1, 3));
  CHECK(slots_of(ls::AdamW{.amsgrad = true}) == Names{"momentum", "velocity", "velocity_hat"});
  CHECK(refused(ls::AdamW{.beta_1 = 1}, "beta"));
}

TEST_CASE("RMSprop divides by the root of the mean square plus epsilon") {
  testing::OptimizerRun<Double, ls::RMSprop> run({.learning_rate = 1, .rho = 0.75, .epsilon = 3},
                                                 {0});
  run.apply({2});  // v = 1
  CHECK(near(run.weights()[0], -1));
  run.apply({2});  // v = 0.75 + 1
  CHECK(near(run.slot(0)[0], 1.75));
  CHECK(near(run.weights()[0], -1 - 2 / std::sqrt(4.75)));
}

TEST_CASE("RMSprop has slots for momentum, centering, or both") {
  testing::OptimizerRun<Double, ls::RMSprop> centred(
      {.learning_rate = 1, .rho = 0.75, .epsilon = 1, .centered = true}, {0});
  centred.apply({4});  // v = 4, mean = 1
  CHECK(near(centred.weights()[0], -4 / std::sqrt(4.0 - 1 + 1)));
  testing::OptimizerRun<Double, ls::RMSprop> momentum(
      {.learning_rate = 1, .rho = 0.75, .momentum = 0.5, .epsilon = 5}, {0});
  momentum.apply({4});  // v = 4, m = 4 / 3
  momentum.apply({0});  // m = 2 / 3
  CHECK(near(momentum.weights()[0], -2));
  testing::OptimizerRun<Double, ls::RMSprop> both(
      {.learning_rate = 1, .rho = 0.75, .momentum = 0.5, .epsilon = 1, .centered = true}, {0});
  both.apply({4});
  both.apply({0});
  CHECK(near(both.weights()[0], -3));
  CHECK(near(both.slot(2)[0], 0.75));

  CHECK(slots_of(ls::RMSprop{}) == Names{"velocity"});
  CHECK(slots_of(ls::RMSprop{.centered = true}) == Names{"velocity", "average_gradient"});
  CHECK(slots_of(ls::RMSprop{.momentum = 0.9}) == Names{"velocity", "momentum"});
  CHECK(slots_of(ls::RMSprop{.momentum = 0.9, .centered = true}) ==
        Names{"velocity", "momentum", "average_gradient"});
  CHECK(refused(ls::RMSprop{.rho = 1}, "rho"));
  CHECK(refused(ls::RMSprop{.momentum = -1}, "momentum"));
  CHECK(refused(ls::RMSprop{.epsilon = 0}, "epsilon"));
}

TEST_CASE("Adagrad divides by the root of the sum of all squares") {
  testing::OptimizerRun<Double, ls::Adagrad> run(
      {.learning_rate = 1, .initial_accumulator_value = 7, .epsilon = 1}, {0});
  run.apply({1});  // 7 + 1
  CHECK(near(run.weights()[0], -1.0 / 3));
  run.apply({4});  // 8 + 16
  CHECK(near(run.weights()[0], -1.0 / 3 - 4.0 / 5));
  CHECK(slots_of(ls::Adagrad{}) == Names{"accumulator"});
  CHECK(refused(ls::Adagrad{.initial_accumulator_value = -1}, "initial_accumulator_value"));
  CHECK(refused(ls::Adagrad{.epsilon = none}, "epsilon"));
}

TEST_CASE("Adadelta's step is scaled by its recent steps") {
  testing::OptimizerRun<Double, ls::Adadelta> run({.learning_rate = 0.5, .rho = 0.75, .epsilon = 3},
                                                  {0});
  run.apply({2});  // a = 1, d = sqrt(3) * 2 / 2
  CHECK(near(run.weights()[0], -0.5 * std::sqrt(3)));
  CHECK(near(run.slot(1)[0], 0.75));
  CHECK(slots_of(ls::Adadelta{}) == Names{"accumulated_grad", "accumulated_delta_var"});
  CHECK(refused(ls::Adadelta{.rho = 1}, "rho"));
  CHECK(refused(ls::Adadelta{.epsilon = 0}, "epsilon"));
}

TEST_CASE("Adamax divides by the decaying maximum of the gradients") {
  testing::OptimizerRun<Double, ls::Adamax> run(
      {.learning_rate = 1, .beta_1 = 0.5, .beta_2 = 0.5, .epsilon = 1}, {0});
  run.apply({-3});  // m = -1.5, u = 3, rate 1 / 0.5
  CHECK(near(run.weights()[0], 0.75));
  run.apply({1});  // u = 1.5
  CHECK(run.slot(1)[0] == 1.5);
  CHECK(slots_of(ls::Adamax{}) == Names{"momentum", "norm"});
  CHECK(refused(ls::Adamax{.beta_2 = 1}, "beta"));
}

TEST_CASE("Nadam's product of momenta equals its closed form") {
  const ls::Nadam nadam{.beta_1 = 0.8};
  double product = 1;
  for (std::uint64_t t = 1; t <= 1500; ++t) {
    product *= 0.8 * (1 - 0.5 * std::pow(0.96, static_cast<double>(t)));
    if (t % 100 != 1) continue;
    // of_g = (1 - u(t)) / (1 - U(t)) for a rate of 1
    const double u = 0.8 * (1 - 0.5 * std::pow(0.96, static_cast<double>(t)));
    CHECK(near(nadam.op(1, t).of_g, (1 - u) / (1 - product)));
  }
  CHECK(slots_of(nadam) == Names{"momentum", "velocity"});
  CHECK(refused(ls::Nadam{.epsilon = 0}, "epsilon"));
}

TEST_CASE("Lion's steps have equal size, and are 0 where the direction is 0") {
  testing::OptimizerRun<Double, ls::Lion> run(
      {.learning_rate = 0.25, .beta_1 = 0.5, .beta_2 = 0.75}, {0, 0, 0, 0});
  run.apply({100, -1e-3, 0, none});
  CHECK(run.weights()[0] == -0.25);
  CHECK(run.weights()[1] == 0.25);
  CHECK(run.weights()[2] == 0);
  CHECK(std::isnan(run.weights()[3]));
  run.apply({-24, 0, 0, 0});  // m = 25; 12.5 - 12 > 0
  CHECK(run.weights()[0] == -0.5);
  CHECK(slots_of(ls::Lion{}) == Names{"momentum"});
  CHECK(refused(ls::Lion{.beta_1 = none}, "beta"));
}

TEST_CASE("Lamb's first step has the norm of the weights times the rate") {
  testing::OptimizerRun<Double, ls::Lamb> run({.learning_rate = 0.5, .epsilon = 1e-12}, {3, -4});
  run.apply({7, 7});  // the direction is (1, 1): 5 / sqrt(2) each
  CHECK(near(run.weights()[0], 3 - 0.5 * 5 / std::sqrt(2)));
  CHECK(near(run.weights()[1], -4 - 0.5 * 5 / std::sqrt(2)));
  testing::OptimizerRun<Double, ls::Lamb> zeros({.learning_rate = 0.5, .epsilon = 1e-12}, {0, 0});
  zeros.apply({7, -7});
  CHECK(near(zeros.weights()[0], -0.5));
  testing::OptimizerRun<Double, ls::Lamb> flat({.learning_rate = 0.5}, {3, 4});
  flat.apply({0, 0});
  CHECK(flat.weights() == std::vector<double>{3, 4});
  CHECK(refused(ls::Lamb{.beta_1 = 1}, "beta"));
}

TEST_CASE("Muon updates matrices, and AdamW the other parameters") {
  const auto second_slot = [](const ls::Muon& muon, const char* name, ls::Shape shape) {
    const ls::ParameterRule rule = muon.rule_of(name, shape);
    CHECK(rule.slot[0] == shape.size());
    CHECK(rule.weight_decay == (rule.slot[1] == 0 ? 0.5 : 0.25));
    return rule.slot[1];
  };
  const ls::Muon muon{.weight_decay = 0.5, .exclude_layers = {"logits"}, .adam_weight_decay = 0.25};
  ls::Muon all = muon;
  all.exclude_embeddings = false;
  all.variant = ls::MuonVariant::jordan;
  const ls::Shape matrix = ls::shape(4, 6), convolution = ls::shape(3, 3, 4, 6);
  CHECK(second_slot(muon, "dense/kernel", matrix) == 0);
  CHECK(second_slot(muon, "dense/bias", ls::shape(6)) == 6);
  CHECK(second_slot(muon, "logits/kernel", matrix) == 24);
  CHECK(second_slot(muon, "Embedding_1/table", matrix) == 24);
  CHECK(second_slot(all, "Embedding_1/table", matrix) == 0);
  CHECK(second_slot(muon, "conv2d/kernel", convolution) == 216);
  CHECK(second_slot(all, "conv2d/kernel", convolution) == 0);
  CHECK(second_slot(all, "conv2d/depthwise_kernel", convolution) == 216);
  const ls::Shape heads = ls::shape(4, 2, 3);
  CHECK(second_slot(muon, "multi_head_attention/query/kernel", heads) == 24);
  CHECK(second_slot(all, "multi_head_attention/query/kernel", heads) == 0);
  CHECK(all.rule_of("multi_head_attention/query/kernel", heads).shape == matrix);
  CHECK(all.rule_of("conv1d/kernel", heads).shape.rank == 0);
  CHECK(slots_of(muon) == Names{"momentum", "velocity"});
  CHECK(muon.op(1, 1).step_size(4, 25) == 0.2 * 5);
  CHECK(all.op(1, 1).step_size(4, 36) == 3);
  CHECK(all.op(1, 1).step_size(36, 4) == 1);
  CHECK_NOTHROW(
      ls::Muon{.weight_decay = 0, .with = {.exclude_from_weight_decay = {"bias"}}}.check());
  CHECK(refused(ls::Muon{.momentum = 1}, "momentum"));
  CHECK(refused(ls::Muon{.rms_rate = 0}, "rms_rate"));
  CHECK(refused(ls::Muon{.adam_beta_1 = 1}, "beta"));
  CHECK(refused(ls::Muon{.adam_weight_decay = -1}, "adam_weight_decay"));
  CHECK(refused(ls::Muon{.adam_lr_ratio = none}, "adam_lr_ratio"));
  CHECK_THROWS_AS(ls::Muon{.iteration = ls::NewtonSchulz{.steps = 17}}, ls::UsageError);
}

TEST_CASE("the iteration of Muon may have other coefficients in each step") {
  struct Policy {
    std::uint64_t steps = 2;
    ls::QuinticStep operator()(std::uint64_t i) const { return {static_cast<double>(i), 1, 0}; }
  };
  const ls::MuonIteration iteration = Policy{};
  REQUIRE(iteration.steps().size() == 2);
  CHECK(iteration.steps()[1] == ls::QuinticStep{1, 1, 0});
  CHECK_THROWS_AS(ls::MuonIteration(Policy{.steps = 0}), ls::UsageError);
}

TEST_CASE("Adafactor keeps a number for each row and column of a matrix") {
  const ls::Adafactor adafactor{.learning_rate = 1};
  CHECK(adafactor.rule_of("w", ls::shape(7)).slot[0] == 7);
  CHECK(adafactor.rule_of("w", ls::shape(7)).slot[1] == 0);
  CHECK(adafactor.rule_of("w", ls::shape(2, 4, 6)).slot[0] == 2 * 4);
  CHECK(adafactor.rule_of("w", ls::shape(2, 4, 6)).slot[1] == 2 * 6);
  CHECK(adafactor.op(1, 1).rate == 1);
  CHECK(adafactor.op(1, 4).rate == 0.5);
  CHECK(slots_of(adafactor) == Names{"velocity_rows", "velocity_columns"});
  CHECK(refused(ls::Adafactor{.beta_2_decay = 0}, "beta_2_decay"));
  CHECK(refused(ls::Adafactor{.epsilon_1 = 0}, "epsilon_1"));
  CHECK(refused(ls::Adafactor{.epsilon_2 = none}, "epsilon_2"));
  CHECK(refused(ls::Adafactor{.clip_threshold = 0}, "clip_threshold"));
}

TEST_CASE("a row and a column without gradient do not move under Adafactor in float") {
  ls::ReferenceContext<float> context;
  using Device = ls::Reference<float>;
  std::vector<float> w{1, 1, 1, 1}, g{1, 0, 0, 0}, rows(2), columns(2);
  std::vector<double> scratch(8);
  ls::UpdateIo<Device> io{context, 4, w.data(), g.data(), {rows.data(), columns.data()}, {}};
  io.shape = ls::shape(2, 2);
  io.scratch = reinterpret_cast<std::byte*>(scratch.data());
  ls::detail::run_kernel<Device>(ls::Adafactor{.learning_rate = 0.5}.op(0.5, 1), io);
  CHECK(w[0] < 1);
  CHECK((w[1] == 1 && w[2] == 1 && w[3] == 1));
}

TEST_CASE("Ftrl keeps small weights at 0 by l1, and needs a positive rate") {
  testing::OptimizerRun<Double, ls::Ftrl> run({.learning_rate = 0.5,
                                               .initial_accumulator_value = 9,
                                               .l1_regularization_strength = 2,
                                               .l2_regularization_strength = 0.5},
                                              {0, 0});
  run.apply({4, 1});  // n = 25, z = 4: -(4 - 2) / (5 / 0.5 + 1); z = 1 is clipped to 0
  CHECK(near(run.weights()[0], -2.0 / 11));
  CHECK(run.weights()[1] == 0);
  testing::OptimizerRun<Double, ls::Ftrl> shrinking({.learning_rate = 0.5,
                                                     .initial_accumulator_value = 9,
                                                     .l2_shrinkage_regularization_strength = 0.25,
                                                     .beta = 3},
                                                    {1});
  shrinking.apply({4});  // z = 4 + 0.5 - (5 - 3) / 0.5 = 0.5; l2' = 3
  CHECK(near(shrinking.weights()[0], -0.5 / (10 + 6)));
  CHECK(slots_of(ls::Ftrl{}) == Names{"accumulator", "linear"});
  CHECK(ls::Ftrl{}.slot_start(0) == 0.1);
  CHECK(ls::Ftrl{}.slot_start(1) == 0);
  CHECK(refused(ls::Ftrl{.learning_rate_power = 0.5}, "learning_rate_power"));
  CHECK(refused(ls::Ftrl{.l1_regularization_strength = -1}, "l1_regularization_strength"));
  CHECK(refused(ls::Ftrl{.beta = none}, "beta"));
  CHECK_THROWS_AS(ls::Ftrl{}.op(0, 1), ls::UsageError);
}

TEST_CASE("each optimizer refuses options that are invalid, contradictory or without effect") {
  const auto sgd = [](double decay, ls::UpdateOptions with) {
    return ls::SGD{.weight_decay = decay, .with = with};
  };
  CHECK(refused(sgd(-1, {}), "weight_decay"));
  CHECK(refused(sgd(none, {}), "weight_decay"));
  CHECK(refused(sgd(0, {.clipnorm = -1}), "clipnorm"));
  CHECK(refused(sgd(0, {.global_clipnorm = none}), "global_clipnorm"));
  CHECK(refused(sgd(0, {.clipvalue = -1}), "clipvalue"));
  CHECK(refused(sgd(0, {.block_clipnorm = -1}), "block_clipnorm"));
  CHECK(refused(sgd(0, {.clipnorm = 1, .clipvalue = 1}), "give one"));
  CHECK(refused(sgd(0, {.exclude_from_weight_decay = {"bias"}}), "weight_decay"));
  CHECK(refused(sgd(0, {.use_ema = true, .ema_momentum = 1.5}), "ema_momentum"));
  CHECK(refused(sgd(0, {.ema_overwrite_frequency = 2}), "use_ema"));
  CHECK(refused(sgd(0, {.gradient_accumulation_steps = 0}), "gradient_accumulation_steps"));
  const auto minus = static_cast<std::uint64_t>(-1);
  CHECK(
      refused(sgd(0, {.gradient_accumulation_steps = minus}), "gradient_accumulation_steps is -1"));
  CHECK(refused(sgd(0, {.use_ema = true, .ema_overwrite_frequency = minus}), "frequency is -1"));
  CHECK_NOTHROW(sgd(0.1, {.clipnorm = 1, .exclude_from_weight_decay = {"bias"}}).check());
  const ls::UpdateOptions bad{.clipnorm = -1};
  CHECK(refused(ls::Adam{.with = bad}, "clipnorm"));
  CHECK(refused(ls::AdamW{.with = bad}, "clipnorm"));
  CHECK(refused(ls::Adamax{.with = bad}, "clipnorm"));
  CHECK(refused(ls::Nadam{.with = bad}, "clipnorm"));
  CHECK(refused(ls::RMSprop{.with = bad}, "clipnorm"));
  CHECK(refused(ls::Adagrad{.with = bad}, "clipnorm"));
  CHECK(refused(ls::Adadelta{.with = bad}, "clipnorm"));
  CHECK(refused(ls::Lion{.with = bad}, "clipnorm"));
  CHECK(refused(ls::Lamb{.with = bad}, "clipnorm"));
  CHECK(refused(ls::Adafactor{.with = bad}, "clipnorm"));
  CHECK(refused(ls::Muon{.with = bad}, "clipnorm"));
  CHECK(refused(ls::Ftrl{.with = bad}, "clipnorm"));
}
