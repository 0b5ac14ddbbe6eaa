#include "golden/mirrored.hpp"
#include "lockstep/cpu.hpp"

using lockstep::Cpu;

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
