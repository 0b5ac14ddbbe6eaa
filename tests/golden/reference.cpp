/// \file
/// Reference compared with Keras: single values, and short runs.
#include <catch2/catch_template_test_macros.hpp>

#include "golden/layers.hpp"
#include "golden/losses.hpp"
#include "golden/metrics.hpp"
#include "golden/optimizers.hpp"
#include "golden/recurrent.hpp"
#include "golden/weighted.hpp"
#include "lockstep/reference.hpp"

using lockstep::Reference;

TEMPLATE_TEST_CASE("Layers have Keras' outputs and gradients", "[golden]", Reference<double>,
                   Reference<float>) {
  golden::meets_layers<TestType>();
}

TEMPLATE_TEST_CASE("Attention has Keras' outputs and gradients", "[golden]", Reference<double>,
                   Reference<float>) {
  golden::meets_attention<TestType>();
}

TEMPLATE_TEST_CASE("Activations have Keras' outputs and gradients", "[golden]", Reference<double>,
                   Reference<float>) {
  golden::meets_activations<TestType>();
}

TEST_CASE("Recurrent layers have Keras' outputs and gradients", "[golden]") {
  golden::meets_recurrent<Reference<double>>();
  golden::meets_recurrent_states<Reference<double>>();
}

TEMPLATE_TEST_CASE("Losses have Keras' values and gradients", "[golden]", Reference<double>,
                   Reference<float>) {
  golden::meets_losses<TestType>();
}

TEMPLATE_TEST_CASE("Metrics have Keras' values", "[golden]", Reference<double>, Reference<float>) {
  golden::meets_metrics<TestType>();
}
TEMPLATE_TEST_CASE("Metrics have Keras' values with weights", "[golden]", Reference<double>,
                   Reference<float>) {
  golden::meets_weighted_metrics<TestType>();
}

TEMPLATE_TEST_CASE("Optimizers move the weights as Keras' do", "[golden]", Reference<double>,
                   Reference<float>) {
  golden::meets_optimizers<TestType>();
}
TEST_CASE("Muon and Adafactor move matrices as Keras' do", "[golden]") {
  golden::meets_muon<Reference<double>>();
  golden::meets_adafactor<Reference<double>>();
}

TEMPLATE_TEST_CASE("fit and evaluate with weights do what Keras' do", "[golden]", Reference<double>,
                   Reference<float>) {
  golden::meets_weighted<TestType>();
}
TEST_CASE("one to eight replicas train with weights as one does, and as Keras", "[golden]") {
  golden::meets_weighted_mirrored<Reference<double>>();
}
