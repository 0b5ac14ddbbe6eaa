// Transfers weights into a part of another model: loads the tensors of a weights file that the new
// model shares with it, by name. The new model has its own last layer, and learns a new task from
// few examples. Run it with `./dev transfer`.
//
// Expected output:
//   loaded dense/kernel
//   loaded dense/bias
//   the shared layer has the file's weights: yes
//   accuracy on the new task above 0.8: yes
#include <fmt/format.h>
#include <cstdint>
#include <filesystem>
#include <string>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;

namespace {

/// Its parameters are `dense/...`, which all models share, and `dense_1/...`, the last layer.
template <int Classes>
struct Net : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<64, ls::relu>,
                            ls::Dense<Classes>> {};

template <int Classes>
auto new_model(std::uint64_t seed) {
  return ls::Model{Net<Classes>{},
                   ls::Seed{seed},
                   ls::OneDevice<ls::Cpu>{.on = {.threads = 1}},
                   ls::SparseCategoricalCrossentropy{.from_logits = true},
                   ls::Adam{.learning_rate = 0.001},
                   ls::Accuracy{}};
}

const auto digits = ls::datasets::digits();
const auto scale = ls::rescale(1.0f / 255);
const auto none = ls::ProgressStyle::none;
/// Replaces the labels by 1 for odd digits and 0 for even ones.
const auto odd = ls::map([](auto& example) { example.y[0] %= 2; });

}  // namespace

int main() {
  const auto path = (std::filesystem::temp_directory_path() / "lockstep_09.safetensors").string();
  auto ten = new_model<10>(1);
  ten.fit(digits.train() | scale | ls::take(2'000) | ls::batch(50),
          {.epochs = 3, .progress = none});
  ten.save_weights(path);

  auto two = new_model<2>(2);
  const ls::LoadReport report = two.load_weights(path, {.only = "dense/*"});
  for (const std::string& name : report.loaded) fmt::print("loaded {}\n", name);
  std::filesystem::remove(path);
  const bool equal = two.weights("dense/kernel") == ten.weights("dense/kernel");
  fmt::print("the shared layer has the file's weights: {}\n", equal ? "yes" : "no");

  two.fit(digits.train() | scale | ls::take(300) | odd | ls::batch(10),
          {.epochs = 10, .progress = none});
  const double accuracy =
      two.evaluate(digits.test() | scale | ls::take(500) | odd | ls::batch(100))["accuracy"];
  fmt::print("accuracy on the new task above 0.8: {}\n", accuracy > 0.8 ? "yes" : "no");
}
