#include <catch2/catch_test_macros.hpp>

#include "golden/optimizers.hpp"
#include "lockstep/cpu.hpp"

TEST_CASE("Cpu's optimizers move the weights as Keras' do", "[golden]") {
  golden::meets_optimizers<lockstep::Cpu>();
}
