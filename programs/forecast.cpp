// The next value of a time series from the last 24: a GRU. The data are in support/series.cpp.
#include <filesystem>
#include <string>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>

#include "support/program.hpp"
#include "support/series.hpp"
#include "support/strategy.hpp"
#include "support/train_on_parts.hpp"

namespace ls = lockstep;

namespace {

constexpr int steps = 24;

struct Net : ls::Sequential<ls::Input<steps, 1>, ls::GRU<32>, ls::Dense<1>> {};

void train(support::Job& job) {
  const support::Options& options = job.options();
  ls::Model model{Net{}, ls::Seed{options.seed}, support::strategy<ls::OneDevice<ls::Cpu>>(options),
                  ls::MeanSquaredError{}, ls::Adam{.learning_rate = options.learning_rate}};
  job.describe(model);
  if (!options.data)
    job.note_drawn(model.is_chief(), "a drawn series", "a file with a real one (CSV)");
  const auto windows = support::Windows::of(
      options.data ? support::read_series(*options.data) : support::drawn_series(options.seed),
      steps, options.data.value_or("the drawn series"));
  support::train_on_parts(model, job, windows.parts, [&](const auto& test) {
    const auto logs = model.evaluate(test, {.progress = ls::ProgressStyle::none});
    support::print_errors(options, windows, logs["loss"]);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const support::Program program{
      .name = std::filesystem::path(argv[0]).filename().string(),
      .description = "Trains a GRU to forecast the next value of a time series.",
      .epochs = 10,
      .batch = 32,
      .learning_rate = 0.003,
      .data = "CSV file, whose last column is the series; default: a drawn series",
      .examples = "windows",
  };
  return support::run(program, argc, argv, train);
}
