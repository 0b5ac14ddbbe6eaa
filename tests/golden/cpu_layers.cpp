#include <catch2/catch_test_macros.hpp>

#include "golden/layers.hpp"
#include "lockstep/cpu.hpp"

TEST_CASE("Cpu's layers have Keras' outputs and gradients", "[golden]") {
  golden::meets_layers<lockstep::Cpu>();
}

TEST_CASE("Cpu's activations have Keras' outputs and gradients", "[golden]") {
  golden::meets_activations<lockstep::Cpu>();
}
