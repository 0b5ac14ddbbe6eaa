// Saves a model for Keras and PyTorch: the weights as safetensors, with Keras' names and layouts, and
// the architecture as JSON. Run it with `./dev weights_in_python FILE`; without FILE it writes
// weights.safetensors and weights.json to the temporary directory. Python loads both with the modules
// of tools/exchange/, which also write weights that `model.load_weights` reads:
//
//   import keras_model                # PYTHONPATH=tools/exchange; needs keras and safetensors
//   net = keras_model.load("weights.json", "weights.safetensors")       # a keras.Model
//   net.predict(images)                      # (examples, 28, 28, 1), as in C++
//   keras_model.save(net, "trained.safetensors")
//
//   import torch_model                       # needs torch and safetensors
//   net = torch_model.load("weights.json", "weights.safetensors")       # a torch.nn.Module
//   net(torch.from_numpy(images))            # the same axes: channels last
//   torch_model.save(net, "trained.safetensors")
//
// Expected output:
//   conv2d (Conv2D): conv2d/kernel (3, 3, 1, 8), conv2d/bias (8)
//   flatten (Flatten)
//   dense (Dense): dense/kernel (5408, 10), dense/bias (10)
//   output for an image of ones: ...
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/cpu.hpp>
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
  model.save_architecture(std::filesystem::path(path).replace_extension(".json").string());

  for (const ls::LayerNode& layer : model.architecture().layers) {
    std::string parameters;
    for (const ls::LayerParameter& p : layer.parameters)
      parameters += (parameters.empty() ? ": " : ", ") + p.name + " " + to_string(p.shape);
    fmt::print("{} ({}){}\n", layer.name, layer.class_name, parameters);
  }
  // Both Python models must compute these numbers, up to rounding.
  const auto outputs = model.predict(std::vector<float>(28 * 28, 1));
  fmt::print("output for an image of ones: {:.4f}\n", fmt::join(outputs.row(0), " "));
}
