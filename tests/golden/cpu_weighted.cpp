#include "golden/weighted.hpp"
#include "lockstep/cpu.hpp"

TEST_CASE("on Cpu, fit and evaluate with weights do what Keras' do", "[golden]") {
  golden::meets_weighted<lockstep::Cpu>();
}
TEST_CASE("one to eight replicas on Cpu train with weights as one does, and as Keras", "[golden]") {
  golden::meets_weighted_mirrored<lockstep::Cpu>();
}
