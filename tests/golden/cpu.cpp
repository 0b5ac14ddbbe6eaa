/// \file
/// Cpu compared with Keras.
#include <catch2/catch_test_macros.hpp>

#include "golden/heads.hpp"
#include "golden/layers.hpp"
#include "golden/losses.hpp"
#include "golden/mirrored.hpp"
#include "golden/optimizers.hpp"
#include "golden/resnet.hpp"
#include "golden/training.hpp"
#include "golden/weighted.hpp"
#include "lockstep/cpu.hpp"

using lockstep::Cpu;

TEST_CASE("Cpu's layers have Keras' outputs and gradients", "[golden]") {
  golden::meets_layers<Cpu>();
}

TEST_CASE("Cpu's attention has Keras' outputs and gradients", "[golden]") {
  golden::meets_attention<Cpu>();
}

TEST_CASE("Cpu's activations have Keras' outputs and gradients", "[golden]") {
  golden::meets_activations<Cpu>();
}

TEST_CASE("Cpu's losses have Keras' values and gradients", "[golden]") {
  golden::meets_losses<Cpu>();
}

TEST_CASE("Cpu's optimizers move the weights as Keras' do", "[golden]") {
  golden::meets_optimizers<Cpu>();
}
TEST_CASE("Cpu's Muon moves matrices as Keras' does", "[golden]") { golden::meets_muon<Cpu>(); }

TEST_CASE("on Cpu, fit and evaluate with weights do what Keras' do", "[golden]") {
  golden::meets_weighted<Cpu>();
}
TEST_CASE("one to eight replicas on Cpu train with weights as one does, and as Keras", "[golden]") {
  golden::meets_weighted_mirrored<Cpu>();
}

TEST_CASE("replicas on Cpu train several outputs as the simulation, with the bits of one") {
  const golden::GoldenFile file("heads");
  for (const bool is_weighted : {false, true}) {
    const auto run = [&](std::size_t n) {
      const lockstep::Mirrored<Cpu> strategy{.replicas = n, .virtual_shards = 4};
      return golden::run_of_heads(file, strategy, is_weighted);
    };
    const golden::Results one = run(1);
    golden::is_simulated(file, one, is_weighted, golden::tolerance<Cpu>);
    CHECK(run(2) == one);
    CHECK(run(4) == one);
  }
}

TEST_CASE("Cpu trains the tutorial's line as Keras does") {
  golden::meets_linear_regression<Cpu>();
}
TEST_CASE("Cpu trains the small CNN as Keras does") { golden::meets_small_cnn<Cpu>(); }
TEST_CASE("Cpu trains the tutorials' CNN on MNIST as Keras does") {
  golden::meets_mnist_cnn<Cpu>();
}

TEST_CASE("one to eight replicas on Cpu train the tutorial's line as one does, and as Keras") {
  golden::meets_linear_regression<Cpu>(golden::MirroredCheck<Cpu>{});
}
TEST_CASE("one to eight replicas on Cpu train the small CNN as one does, and as Keras") {
  golden::meets_small_cnn<Cpu>(golden::MirroredCheck<Cpu>{});
}
TEST_CASE(
    "one to eight replicas on Cpu train the tutorials' CNN on MNIST as one does, and as Keras") {
  golden::meets_mnist_cnn<Cpu>(golden::MirroredCheck<Cpu>{});
}

TEST_CASE("Cpu trains ResNet-56 as Keras does") {
  golden::trains_resnet56<Cpu>(lockstep::OneDevice<Cpu>{});
}
TEST_CASE("two replicas on Cpu train ResNet-56 as Keras does") {
  golden::trains_resnet56<Cpu>(lockstep::Mirrored<Cpu>{.replicas = 2});
}
