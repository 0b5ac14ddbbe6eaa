#include <catch2/catch_template_test_macros.hpp>

#include "golden/metrics.hpp"
#include "lockstep/reference.hpp"

using lockstep::Reference;

TEMPLATE_TEST_CASE("Metrics have Keras' values", "[golden]", Reference<double>, Reference<float>) {
  golden::meets_metrics<TestType>();
}
TEMPLATE_TEST_CASE("Metrics have Keras' values with weights", "[golden]", Reference<double>,
                   Reference<float>) {
  golden::meets_weighted_metrics<TestType>();
}
