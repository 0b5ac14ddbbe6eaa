// Trains in a loop of its own: gradients are clipped by a rule that no optimizer has, and the loop
// continues from its checkpoint. The same loop runs on replicas and in jobs of several processes.
// Run it with `./dev own_training_loop`.
//
// Expected output:
//   stopped after step 25
//   continued to step 60
//   as without the stop: yes
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>

#include <lockstep/checkpoints.hpp>
#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;

namespace {

struct Net : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<32, ls::relu>,
                            ls::Dropout<0.2>, ls::Dense<10>> {};

const auto train = ls::datasets::digits().train() | ls::rescale(1.0f / 255) | ls::take(1'000) |
                   ls::shuffle(1'000) | ls::batch(50);

auto new_model() {
  return ls::Model{Net{}, ls::Mirrored<ls::Cpu>{.replicas = 2, .on = {.threads = 1}},
                   ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::Adam{}};
}

// --8<-- [start:loop]
/// Trains three passes, or up to step `stop`, with a checkpoint every ten steps.
template <class Model>
void train_loop(Model& model, const std::string& directory, std::uint64_t stop) {
  while (model.passes() < 3)
    for (const auto& batch : model.batches(train)) {
      auto gradients = model.gradients_of(batch);
      // Not more than a hundredth of the weights' own norm.
      const auto kernel = model.weights("dense/kernel");
      double squares = 0;
      for (const float w : kernel) squares += static_cast<double>(w * w);
      gradients *= std::min(1.0, 0.01 * std::sqrt(squares) / gradients.norm());
      model.apply(gradients);
      if (model.steps() % 10 == 0) model.save_checkpoint(directory);
      if (model.steps() == stop) return;
    }
}
// --8<-- [end:loop]

}  // namespace

int main() {
  const auto directory = (std::filesystem::temp_directory_path() / "lockstep_15").string();
  std::filesystem::remove_all(directory);
  auto interrupted = new_model();
  train_loop(interrupted, directory, 25);
  fmt::print("stopped after step {}\n", interrupted.steps());

  auto continued = new_model();
  continued.load_checkpoint(directory);  // of step 20, in the midst of the second pass
  train_loop(continued, directory, 0);
  fmt::print("continued to step {}\n", continued.steps());

  auto quiet = new_model();
  train_loop(quiet, directory, 0);
  const bool equal = quiet.weights_sha256() == continued.weights_sha256();
  fmt::print("as without the stop: {}\n", equal ? "yes" : "no");
  std::filesystem::remove_all(directory);
}
