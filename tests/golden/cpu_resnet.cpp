#include "golden/resnet.hpp"
#include "lockstep/cpu.hpp"

using lockstep::Cpu;

TEST_CASE("Cpu trains ResNet-56 as Keras does") {
  golden::trains_resnet56<Cpu>(lockstep::OneDevice<Cpu>{});
}
TEST_CASE("two replicas on Cpu train ResNet-56 as Keras does") {
  golden::trains_resnet56<Cpu>(lockstep::Mirrored<Cpu>{.replicas = 2});
}
