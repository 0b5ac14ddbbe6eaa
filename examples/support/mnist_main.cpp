// The main function of the MNIST programs.
#include <filesystem>

#include "support/mnist.hpp"

int main(int argc, char** argv) {
  const auto& units = support::units();
  const support::Program program{
      .name = std::filesystem::path(argv[0]).filename().string(),
      .description = "Trains the tutorials' CNN on MNIST, or on drawn digits.",
      .epochs = 3,
      .batch = 64,
      .learning_rate = 0.001,
      .replica_limit = units.empty() ? 0 : units.begin()->second.replica_limit,
      .has_workers = !units.empty() && units.begin()->second.has_workers,
  };
  return support::run(program, argc, argv, [&](support::Job& job) {
    const auto unit = units.find(job.options().optimizer);
    if (unit == units.end()) {
      std::string built;
      for (const auto& entry : units) built += (built.empty() ? "" : ", ") + entry.first;
      throw support::NotBuilt("--optimizer " + job.options().optimizer +
                              ": this program was built with " + built +
                              " only; add it to the list in examples/CMakeLists.txt");
    }
    unit->second.train(job);
  });
}
