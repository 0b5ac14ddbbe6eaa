#include <catch2/catch_test_macros.hpp>

#include "golden/losses.hpp"
#include "lockstep/cpu.hpp"

TEST_CASE("Cpu's losses have Keras' values and gradients", "[golden]") {
  golden::meets_losses<lockstep::Cpu>();
}
