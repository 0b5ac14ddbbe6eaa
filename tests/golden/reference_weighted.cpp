#include <catch2/catch_template_test_macros.hpp>

#include "golden/weighted.hpp"
#include "lockstep/reference.hpp"

using lockstep::Reference;

TEMPLATE_TEST_CASE("fit and evaluate with weights do what Keras' do", "[golden]", Reference<double>,
                   Reference<float>) {
  golden::meets_weighted<TestType>();
}
TEST_CASE("one to eight replicas train with weights as one does, and as Keras", "[golden]") {
  golden::meets_weighted_mirrored<Reference<double>>();
}
