#include <catch2/catch_template_test_macros.hpp>

#include "golden/optimizers.hpp"
#include "lockstep/reference.hpp"

TEMPLATE_TEST_CASE("Optimizers move the weights as Keras' do", "[golden]",
                   lockstep::Reference<double>, lockstep::Reference<float>) {
  golden::meets_optimizers<TestType>();
}
