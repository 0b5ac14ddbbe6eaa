#include "distributed/golden.hpp"
#include "lockstep/reference.hpp"

using namespace distributed;
using ls::Reference;

TEST_CASE(
    "one to four workers of one or two replicas fit the tutorial's line as one device does, "
    "and as Keras") {
  golden::meets_linear_regression<Reference<double>>(WorkersCheck<Reference<double>>{});
}
TEST_CASE(
    "one to four workers of one or two replicas train the small CNN as one device does, and as "
    "Keras") {
  golden::meets_small_cnn<Reference<double>>(WorkersCheck<Reference<double>>{});
}
TEST_CASE("workers of two replicas train with sample weights as Keras does") {
  workers_meet_weighted<Reference<double>>();
}
TEST_CASE(
    "one to four workers of one or two replicas train the tutorials' CNN on MNIST as one device "
    "does, and as Keras",
    "[.slow]") {
  golden::meets_mnist_cnn<Reference<double>>(WorkersCheck<Reference<double>>{});
}
