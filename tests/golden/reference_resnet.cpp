#include "golden/resnet.hpp"
#include "lockstep/reference.hpp"

using Double = lockstep::Reference<double>;

TEST_CASE("Reference<double> trains ResNet-56 as Keras does", "[.slow]") {
  golden::trains_resnet56<Double>(lockstep::OneDevice<Double>{});
}
TEST_CASE("two replicas on Reference<double> train ResNet-56 as Keras does", "[.slow]") {
  golden::trains_resnet56<Double>(lockstep::Mirrored<Double>{.replicas = 2});
}
