// Transfers weights into a part of another model: reads a weights file and sets the tensors that the
// new model shares with it by name. The new model has its own last layer, and learns a new task from
// few examples. Run it with `./dev transfer`.
//
// Expected output:
//   loaded dense/bias
//   loaded dense/kernel
//   the shared layer has the file's weights: yes
//   accuracy on the new task above 0.8: yes
#include <fmt/format.h>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <lockstep/cpu.hpp>
#include <lockstep/files/safetensors.hpp>
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

/// Sets the parameters below `layer` to those of the file, and leaves all others alone.
void load_part(auto& model, const std::string& path, std::string_view layer) {
  const auto file = ls::SafetensorsFile::read(path);
  for (const ls::SafetensorsTensor& tensor : file.tensors()) {
    if (!tensor.name.starts_with(layer)) continue;
    model.set_weights(tensor.name, file.values<float>(tensor.name));  // throws for a wrong size
    fmt::print("loaded {}\n", tensor.name);
  }
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
  load_part(two, path, "dense/");
  std::filesystem::remove(path);
  const bool equal = two.weights("dense/kernel") == ten.weights("dense/kernel");
  fmt::print("the shared layer has the file's weights: {}\n", equal ? "yes" : "no");

  two.fit(digits.train() | scale | ls::take(300) | odd | ls::batch(10),
          {.epochs = 10, .progress = none});
  const double accuracy =
      two.evaluate(digits.test() | scale | ls::take(500) | odd | ls::batch(100))["accuracy"];
  fmt::print("accuracy on the new task above 0.8: {}\n", accuracy > 0.8 ? "yes" : "no");
}
