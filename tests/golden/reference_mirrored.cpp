#include "golden/mirrored.hpp"
#include "lockstep/reference.hpp"

using lockstep::Reference;

TEST_CASE(
    "one to eight replicas on Reference<double> train the line of the tutorial as one does, and as "
    "Keras") {
  golden::meets_linear_regression<Reference<double>>(golden::MirroredCheck<Reference<double>>{});
}
TEST_CASE(
    "one to eight replicas on Reference<double> train the small CNN as one does, and as Keras") {
  golden::meets_small_cnn<Reference<double>>(golden::MirroredCheck<Reference<double>>{});
}
TEST_CASE(
    "one to eight replicas on Reference<double> train the tutorials' CNN on MNIST as one does, and "
    "as Keras",
    "[.slow]") {
  golden::meets_mnist_cnn<Reference<double>>(golden::MirroredCheck<Reference<double>>{});
}
