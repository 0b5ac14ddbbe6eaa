// The tutorials' one-neuron program: fits y = w x + b, with an L2 penalty on w, to one example.
#include <filesystem>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/training/report/profile.hpp>

#include "support/program.hpp"
#include "support/strategy.hpp"

namespace ls = lockstep;

namespace {

using Strategy = ls::Mirrored<ls::Cpu>;

struct Neuron : ls::Sequential<ls::Input<1>, ls::Dense<1, ls::kernel_regularizer(ls::L2{1e-4})>> {};

void train(support::Job& job) {
  const support::Options& options = job.options();
  const auto example =
      ls::tensors(std::vector<float>{1.0f}, ls::shape(1), std::vector<float>{1.0f}, ls::shape(1));
  const auto data =
      example | (options.steps_per_epoch ? ls::repeat : ls::repeat(400)) | ls::batch(options.batch);
  const auto test = example | ls::repeat(400) | ls::batch(options.batch);
  ls::Model model{Neuron{}, ls::Seed{options.seed}, support::strategy<Strategy>(options),
                  ls::MeanSquaredError{}, ls::SGD{.learning_rate = options.learning_rate}};
  job.train(model, data, static_cast<decltype(&test)>(nullptr),
            [&](const ls::History&) { model.evaluate(test, {.progress = options.progress}); });
}

}  // namespace

int main(int argc, char** argv) {
  const support::Program program{
      .name = std::filesystem::path(argv[0]).filename().string(),
      .description = "Fits one neuron to one example.",
      .epochs = 5,
      .batch = 80,
      .learning_rate = 0.01,
      .reads_data = false,
      .replica_limit = Strategy::replica_limit,
  };
  return support::run(program, argc, argv, train);
}
