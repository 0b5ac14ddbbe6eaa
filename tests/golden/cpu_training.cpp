#include "golden/training.hpp"
#include "lockstep/cpu.hpp"

using lockstep::Cpu;

TEST_CASE("Cpu trains the tutorial's line as Keras does") {
  golden::meets_linear_regression<Cpu>();
}
TEST_CASE("Cpu trains the small CNN as Keras does") { golden::meets_small_cnn<Cpu>(); }
TEST_CASE("Cpu trains the tutorials' CNN on MNIST as Keras does") {
  golden::meets_mnist_cnn<Cpu>();
}
