#include "golden/training.hpp"
#include "lockstep/reference.hpp"

using lockstep::Reference;

TEST_CASE("Reference<double> trains the tutorial's line as Keras does") {
  golden::meets_linear_regression<Reference<double>>();
}
TEST_CASE("Reference<float> trains the tutorial's line as Keras does") {
  golden::meets_linear_regression<Reference<float>>();
}
TEST_CASE("Reference<double> trains the small CNN as Keras does") {
  golden::meets_small_cnn<Reference<double>>();
}
TEST_CASE("Reference<float> trains the small CNN as Keras does") {
  golden::meets_small_cnn<Reference<float>>();
}
TEST_CASE("Reference<double> trains the tutorials' CNN on MNIST as Keras does") {
  golden::meets_mnist_cnn<Reference<double>>();
}
TEST_CASE("Reference<float> trains the tutorials' CNN on MNIST as Keras does") {
  golden::meets_mnist_cnn<Reference<float>>();
}
