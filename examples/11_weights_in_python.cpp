// Saves weights that Keras and PyTorch can load: a safetensors file with Keras' names and layouts.
// Run it with `./dev weights_in_python FILE`; without FILE it writes weights.safetensors to the
// temporary directory. Keras uses the tensors as they are:
//
//   from safetensors.numpy import load_file
//   w = load_file("weights.safetensors")
//   net = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Conv2D(8, 3, name="conv2d"),
//                           keras.layers.Flatten(), keras.layers.Dense(10, name="dense")])
//   for layer in net.layers:
//       if layer.weights:
//           layer.set_weights([w[f"{layer.name}/kernel"], w[f"{layer.name}/bias"]])
//
// PyTorch has the axes of a kernel in another order, and flattens channels first:
//
//   conv, dense = torch.nn.Conv2d(1, 8, 3), torch.nn.Linear(26 * 26 * 8, 10)
//   kernel = w["conv2d/kernel"].transpose(3, 2, 0, 1)         # height, width, in, out to out, in, ...
//   matrix = w["dense/kernel"].reshape(26, 26, 8, 10).transpose(3, 2, 0, 1).reshape(10, -1)
//   for layer, weight, name in (conv, kernel, "conv2d"), (dense, matrix, "dense"):
//       layer.load_state_dict({"weight": torch.from_numpy(weight.copy()),
//                              "bias": torch.from_numpy(w[f"{name}/bias"])})
//
// Expected output:
//   conv2d/bias (8)
//   conv2d/kernel (3, 3, 1, 8)
//   dense/bias (10)
//   dense/kernel (5408, 10)
//   output for an image of ones: ...
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/files/safetensors.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;

namespace {

struct Net : ls::Sequential<ls::Input<28, 28, 1>, ls::Conv2D<8, 3>, ls::Flatten, ls::Dense<10>> {};

}  // namespace

int main(int argc, char** argv) {
  const std::string path =
      argc > 1 ? argv[1]
               : (std::filesystem::temp_directory_path() / "weights.safetensors").string();
  ls::Model model{Net{}, ls::Seed{1}, ls::OneDevice<ls::Cpu>{.on = {.threads = 1}},
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::Adam{.learning_rate = 0.001}};
  const auto train = ls::datasets::digits().train() | ls::take(500) | ls::rescale(1.0f / 255);
  model.fit(train | ls::batch(50), {.epochs = 1, .progress = ls::ProgressStyle::none});
  model.save_weights(path);

  const auto file = ls::SafetensorsFile::read(path);
  for (const ls::SafetensorsTensor& tensor : file.tensors())
    fmt::print("{} ({})\n", tensor.name, fmt::join(tensor.shape, ", "));
  // Both Python models must compute these numbers, up to rounding.
  const auto outputs = model.predict(std::vector<float>(28 * 28, 1));
  fmt::print("output for an image of ones: {:.4f}\n", fmt::join(outputs.row(0), " "));
}
