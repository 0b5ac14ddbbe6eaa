// The main function of the CIFAR-10 programs. Uses no model, so that it compiles quickly.
#include <fmt/format.h>

#include "support/unit_main.hpp"

int main(int argc, char** argv) {
  return support::run_unit(
      {
          .description = "Trains a ResNet on CIFAR-10, or on drawn shapes.",
          .epochs = 60,
          .batch = 128,
          .batch_is_per_replica = true,
          .learning_rate = 0.1,
          .has_depths = true,
      },
      argc, argv, [](const support::Options& o) {
        return fmt::format("--depth {} --precision {}", o.depth, o.precision);
      });
}
