#include <catch2/catch_template_test_macros.hpp>

#include "golden/layers.hpp"
#include "lockstep/reference.hpp"

TEMPLATE_TEST_CASE("Layers have Keras' outputs and gradients", "[golden]",
                   lockstep::Reference<double>, lockstep::Reference<float>) {
  golden::meets_layers<TestType>();
}

TEMPLATE_TEST_CASE("Activations have Keras' outputs and gradients", "[golden]",
                   lockstep::Reference<double>, lockstep::Reference<float>) {
  golden::meets_activations<TestType>();
}
