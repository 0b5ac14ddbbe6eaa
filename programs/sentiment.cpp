// Whether a sentence is positive: an embedding and a bidirectional LSTM over sentences of different
// lengths, padded with zeros. The data are in support/sentences.cpp.
#include <filesystem>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>

#include "support/program.hpp"
#include "support/sentences.hpp"
#include "support/strategy.hpp"
#include "support/train_on_parts.hpp"

namespace ls = lockstep;

namespace {

constexpr support::SentenceShape sentence{.steps = 40, .vocabulary = 1'000};

struct Net : ls::Sequential<ls::Input<sentence.steps>,
                            ls::Embedding<sentence.vocabulary, 32, ls::mask_zero>,
                            ls::Bidirectional<ls::LSTM<32>>,  //
                            ls::Dense<1, ls::sigmoid>> {};

void train(support::Job& job) {
  const support::Options& options = job.options();
  ls::Model model{Net{},
                  ls::Seed{options.seed},
                  support::strategy<ls::OneDevice<ls::Cpu>>(options),
                  ls::BinaryCrossentropy{},
                  ls::Adam{.learning_rate = options.learning_rate},
                  ls::Accuracy{}};
  job.describe(model);
  if (!options.data)
    job.note_drawn(model.is_chief(), "drawn sentences", "a file with real ones (NPZ)");
  const support::Parts parts =
      options.data ? support::read_sentences(*options.data, sentence, options.validate)
                   : support::drawn_sentences(sentence.steps, options.seed);
  support::train_on_parts(model, job, parts, [](const auto&) {});
}

}  // namespace

int main(int argc, char** argv) {
  const support::Program program{
      .name = std::filesystem::path(argv[0]).filename().string(),
      .description = "Trains a bidirectional LSTM on sentences, or on drawn ones.",
      .epochs = 5,
      .batch = 32,
      .learning_rate = 0.003,
      .data = "NPZ file with x_train, y_train, x_test and y_test; default: drawn sentences",
      .examples = "sentences",
  };
  return support::run(program, argc, argv, train);
}
