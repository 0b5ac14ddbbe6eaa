/// \file
/// Frozen layers on the Cpu, whose kernels skip their gradients, also where layers are fused.
#include "lockstep/model/frozen.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "lockstep/cpu.hpp"
#include "lockstep/reference.hpp"
#include "unit/model/frozen_nets.hpp"

TEST_CASE("frozen layers leave the gradients of the others as they are") {
  frozen_nets::all_nets_give_the_gradients_of_all<lockstep::Cpu>();
}

TEST_CASE("a frozen normalization has the gradient of the reference") {
  using Net = frozen_nets::Normalized<frozen_nets::Frozen>;
  toy::Machine<Net, lockstep::Reference<double>> reference(3);
  reference.engine.state().upload(frozen_nets::some_state<Net>().data());
  const std::vector<double> expected = reference.gradients();
  frozen_nets::has_gradients<Net, lockstep::Cpu>(expected, 1e-4);
  frozen_nets::has_gradients<Net, lockstep::CpuBFloat16>(expected, 0.2);
}
