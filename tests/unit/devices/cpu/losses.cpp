/// \file
/// Losses and metrics on the Cpu, whose cross-entropy has a vectorized kernel.
#include "lockstep/cpu.hpp"
#include "lockstep/lockstep.hpp"
#include "support/exact_losses.hpp"

TEST_CASE("losses and metrics are accurate from the smallest to the largest numbers") {
  testing::losses_are_exact<lockstep::Cpu>(1e-6, true);
  testing::rows_are_exact<lockstep::Cpu>(1e-6);
}

TEST_CASE("a Poisson model starts with the loss of its formula far below zero") {
  namespace ls = lockstep;
  struct Rate : ls::Sequential<ls::Input<1>, ls::Dense<1>, ls::Softplus> {};
  ls::Model model{Rate{}, ls::OneDevice<ls::Cpu>{}, ls::Poisson{}, ls::SGD{.learning_rate = 0.1}};
  model.set_weights("dense/kernel", std::vector<float>{0});
  model.set_weights("dense/bias", std::vector<float>{-20});
  const double loss = model.train_on_batch(std::vector<float>{1}, std::vector<float>{2})["loss"];
  CHECK(std::abs(loss - 32.1954) < 1e-3);  // Keras
  CHECK(model.weights("dense/bias").at(0) > -20);
}
