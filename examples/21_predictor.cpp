// Runs a trained network in another program: ls::Predictor reads a weights file and predicts from
// several threads, while the weights are replaced. A program that only predicts needs no
// lockstep/lockstep.hpp; this one also trains. Run it with `./dev predictor`.
//
// Expected output:
//   calls while the weights changed: 4000, with whole sets of weights: yes
//   a damaged file is refused, and the old weights stay: yes
#include <fmt/format.h>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
#include <lockstep/predictor.hpp>
namespace ls = lockstep;

namespace {

struct Net
    : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<32, ls::relu>, ls::Dense<10>> {};

/// A file that is removed at the end.
struct WeightsFile {
  std::string path;
  ~WeightsFile() { std::filesystem::remove(path); }
};

}  // namespace

int main() {
  const WeightsFile first{"first.safetensors"}, second{"second.safetensors"},
      bad{"bad.safetensors"};
  const auto data = ls::datasets::digits().train() | ls::take(1'000) | ls::rescale(1.0f / 255);
  ls::Model model{Net{}, ls::OneDevice<ls::Cpu>{.on = {.threads = 1}},
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::Adam{}};
  for (const WeightsFile* file : {&first, &second}) {
    model.fit(data | ls::batch(50), {.epochs = 1, .progress = ls::ProgressStyle::none});
    model.save_weights(file->path);
  }

  // --8<-- [start:predictor]
  ls::Predictor<Net, ls::Cpu> predictor(first.path);
  const std::vector<float> image(28 * 28, 0.5f);
  std::vector<float> old_scores(10), new_scores(10);
  predictor(image, old_scores);
  predictor.load_weights(second.path);
  predictor(image, new_scores);

  std::atomic<int> calls = 0, whole = 0;
  const auto ask = [&] {
    std::vector<float> scores(10);
    for (int i = 0; i < 1000; ++i, ++calls) {
      predictor(image, scores);  // allocates nothing
      whole += scores == old_scores || scores == new_scores;
    }
  };
  {
    const std::jthread a(ask), b(ask), c(ask), d(ask);
    for (int i = 0; i < 10; ++i) predictor.load_weights(i % 2 == 0 ? first.path : second.path);
  }
  // --8<-- [end:predictor]
  fmt::print("calls while the weights changed: {}, with whole sets of weights: {}\n", calls.load(),
             whole == calls ? "yes" : "no");

  std::ofstream(bad.path) << "not weights";
  bool is_refused = false;
  try {
    predictor.load_weights(bad.path);
  } catch (const ls::WeightsError&) {
    is_refused = true;
  }
  std::vector<float> scores(10);
  predictor(image, scores);
  fmt::print("a damaged file is refused, and the old weights stay: {}\n",
             is_refused && scores == new_scores ? "yes" : "no");
}
