// A program that exports a model to ONNX, and loads a part of its weights.
#include <lockstep/lockstep.hpp>
#include <lockstep/onnx.hpp>
#include <lockstep/reference.hpp>

#include <cstdio>
#include <filesystem>
#include <string>

namespace ls = lockstep;

struct Line
    : ls::Sequential<ls::Input<4, 4, 1>, ls::Conv2D<2, 3, ls::relu>, ls::Flatten, ls::Dense<1>> {};

int main(int, char** argv) {
  ls::Model model{Line{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{},
                  ls::SGD{.learning_rate = 0.1}};
  const std::string path = argv[0];
  ls::export_onnx(model, path + ".onnx");
  model.save_architecture(path + ".json");
  model.save_weights(path + ".safetensors");
  const ls::LoadReport report = model.load_weights(path + ".safetensors", {.only = "conv2d/*"});
  const bool is_written = std::filesystem::file_size(path + ".onnx") > 100;
  std::printf("writes ONNX: %s\n", is_written && report.loaded.size() == 2 ? "yes" : "no");
}
