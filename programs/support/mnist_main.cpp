// The main function of the MNIST programs.
#include "support/unit_main.hpp"

int main(int argc, char** argv) {
  return support::run_unit(
      {
          .description = "Trains the tutorials' CNN on MNIST, or on drawn digits.",
          .epochs = 3,
          .batch = 64,
          .learning_rate = 0.001,
          .has_optimizers = true,
      },
      argc, argv, [](const support::Options& o) {
        return "--optimizer " + o.optimizer + " --precision " + o.precision;
      });
}
