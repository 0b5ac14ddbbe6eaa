#include "lockstep/devices/cpu/tied_dense.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <vector>

#include "lockstep/cpu.hpp"
#include "lockstep/model/shared.hpp"
#include "unit/model/toy_device.hpp"

namespace {

namespace ls = lockstep;

struct Words : ls::Sequential<ls::Input<3>, ls::Shared<"tokens", ls::Embedding<6, 4>>,
                              ls::Shared<"mix", ls::Dense<4, ls::tanh>>,
                              ls::Shared<"mix", ls::Dense<4, ls::tanh>>, ls::TiedDense<"tokens">> {
};

}  // namespace

TEST_CASE("the product with a tied table agrees with the reference") {
  toy::Machine<Words, ls::Reference<double>> expected(2);
  expected.x = {0, 5, 2, 2, 1, 3};
  for (const int threads : {1, 2}) {
    toy::Machine<Words, ls::Cpu> machine(2, 1, {.threads = threads});
    const auto scope = machine.context.scope();
    machine.x = testing::as<float>(expected.x);
    CHECK(testing::relative_error(machine.forward(), expected.forward()) < 1e-6);
    CHECK(testing::relative_error(machine.gradients(), expected.gradients()) < 1e-6);
  }
}

TEST_CASE("kernels that update weights early do so after the last call only") {
  toy::Machine<Words, ls::Cpu> machine(2, 1, {.threads = 1});
  const auto scope = machine.context.scope();
  machine.x = {0, 5, 2, 2, 1, 3};
  const std::vector<float> expected = machine.gradients();
  std::vector<float> seen(expected.size());
  std::vector<int> updates(expected.size());
  float* const all = machine.engine.gradients().data();
  const auto update = [&](float* dw, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(dw + i - all);
      seen.at(at) = dw[i];
      ++updates.at(at);
      machine.engine.weights().data()[at] = std::numeric_limits<float>::quiet_NaN();
    }
  };
  machine.gradients([](const auto&) {}, ls::UpdateRef<float>(update));
  CHECK(seen == expected);
  CHECK(updates == std::vector<int>(expected.size(), 1));
}
