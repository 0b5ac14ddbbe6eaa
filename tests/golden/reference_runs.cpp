/// \file
/// Runs of Reference compared with Keras. Compiled with optimization, since they compute long.
#include "golden/local_steps.hpp"
#include "golden/mirrored.hpp"
#include "golden/parameter_server.hpp"
#include "golden/resnet.hpp"
#include "golden/training.hpp"
#include "lockstep/reference.hpp"

using lockstep::Reference;
using Double = Reference<double>;

TEST_CASE("Reference<double> trains the tutorial's line as Keras does") {
  golden::meets_linear_regression<Double>();
}
TEST_CASE("Reference<float> trains the tutorial's line as Keras does") {
  golden::meets_linear_regression<Reference<float>>();
}
TEST_CASE("Reference<double> trains the small CNN as Keras does") {
  golden::meets_small_cnn<Double>();
}
TEST_CASE("Reference<float> trains the small CNN as Keras does") {
  golden::meets_small_cnn<Reference<float>>();
}
TEST_CASE("Reference<double> trains the tutorials' CNN on MNIST as Keras does") {
  golden::meets_mnist_cnn<Double>();
}
TEST_CASE("Reference<float> trains the tutorials' CNN on MNIST as Keras does") {
  golden::meets_mnist_cnn<Reference<float>>();
}

TEST_CASE(
    "one to eight replicas on Reference<double> train the line of the tutorial as one does, and as "
    "Keras") {
  golden::meets_linear_regression<Double>(golden::MirroredCheck<Double>{});
}
TEST_CASE(
    "one to eight replicas on Reference<double> train the small CNN as one does, and as Keras") {
  golden::meets_small_cnn<Double>(golden::MirroredCheck<Double>{});
}
TEST_CASE(
    "one to eight replicas on Reference<double> train the tutorials' CNN on MNIST as one does, and "
    "as Keras",
    "[.slow]") {
  golden::meets_mnist_cnn<Double>(golden::MirroredCheck<Double>{});
}

TEST_CASE("gradients that have missed updates train as a simulation in NumPy does") {
  const lockstep::SGD momentum{.learning_rate = 0.1, .momentum = 0.9};
  const lockstep::Adam adam{.learning_rate = 0.01};
  golden::meets_delayed_gradients<Double>("in_order", momentum);
  golden::meets_delayed_gradients<Double>("two_workers", adam);
  golden::meets_delayed_gradients<Double>("a_slow_worker", momentum);
  golden::meets_delayed_gradients<Double>(
      "clipped", lockstep::Adam{.learning_rate = 0.01, .with = {.global_clipnorm = 0.2}});
}

TEST_CASE("replicas that train alone for some steps train as a simulation in NumPy does") {
  const lockstep::SGD momentum{.learning_rate = 0.1, .momentum = 0.9};
  const lockstep::Adam adam{.learning_rate = 0.02};
  golden::meets_local_steps<Double>("each", {1, 1, 0}, momentum);
  golden::meets_local_steps<Double>("local", {3, 1, 0}, momentum);
  golden::meets_local_steps<Double>("local_adam", {4, 1, 0}, adam);
  golden::meets_local_steps<Double>("diloco", {3, 0.7, 0.9}, adam);
}

TEST_CASE("Reference<double> trains ResNet-56 as Keras does", "[.slow]") {
  golden::trains_resnet56<Double>(lockstep::OneDevice<Double>{});
}
TEST_CASE("two replicas on Reference<double> train ResNet-56 as Keras does", "[.slow]") {
  golden::trains_resnet56<Double>(lockstep::Mirrored<Double>{.replicas = 2});
}
