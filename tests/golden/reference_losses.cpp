#include <catch2/catch_template_test_macros.hpp>

#include "golden/losses.hpp"
#include "lockstep/reference.hpp"

TEMPLATE_TEST_CASE("Losses have Keras' values and gradients", "[golden]",
                   lockstep::Reference<double>, lockstep::Reference<float>) {
  golden::meets_losses<TestType>();
}
