// Writes values of each kind for TensorBoard into a folder, and the same values as JSON to stdout,
// for tensorboard_slow.py. Usage: tensorboard_events FOLDER
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>
#include <lockstep/tensorboard.hpp>

namespace ls = lockstep;
using nlohmann::json;

namespace {

struct Net : ls::Sequential<ls::Input<6, 6, 1>, ls::Conv2D<4, 3>, ls::BatchNormalization<>,
                            ls::ReLU, ls::Flatten, ls::Dense<3>> {};

/// Records what TensorBoard must show.
struct Expected : ls::Callback {
  json batches = json::array(), epochs = json::array(), tensors = json::array();

  void on_train_batch_end(std::size_t, const ls::Logs& logs) override {
    batches.push_back(as_json(logs));
  }
  void on_epoch_end(int, const ls::Logs& logs) override {
    json epoch = as_json(logs);
    epoch["learning_rate"] = control().learning_rate();
    epochs.push_back(std::move(epoch));
    json all = json::object();
    for (const ls::NamedTensor& t : control().tensors())
      all[t.name] = {{"values", t.values}, {"gradient", t.gradient}};
    tensors.push_back(std::move(all));
  }
  static json as_json(const ls::Logs& logs) {
    json result = json::object();
    for (const auto& [name, value] : logs) result[name] = value;
    return result;
  }
};

auto examples() {
  std::vector<float> x;
  std::vector<std::int32_t> y;
  for (int i = 0; i < 24; ++i) {
    for (int k = 0; k < 36; ++k) x.push_back(static_cast<float>((i * 31 + k * 17) % 23) / 23);
    y.push_back(i % 3);
  }
  return ls::tensors(std::move(x), ls::shape(6, 6, 1), std::move(y)) | ls::batch(8);
}

json train(const std::string& folder) {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{},
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::Adam{.learning_rate = 0.01}, ls::Accuracy{}};
  const auto expected = std::make_shared<Expected>();
  json before = json::object();
  for (const ls::ParameterInfo& p : model.parameters()) before[p.name] = model.weights(p.name);
  const auto data = examples();
  model.fit(data, data,
            {.epochs = 3,
             .callbacks = {expected, ls::TensorBoard{.log_dir = folder,
                                                     .histogram_freq = 1,
                                                     .write_images = true,
                                                     .write_steps_per_second = true,
                                                     .update_freq = "batch",
                                                     .hparams = {{"units", 3},
                                                                 {"augment", false},
                                                                 {"optimizer", "adam"}}}},
             .progress = ls::ProgressStyle::none});
  json layers = json::array();
  for (const ls::LayerNode& layer : model.architecture().layers)
    layers.push_back({layer.name, layer.class_name});
  return {{"before", before},
          {"batches", expected->batches},
          {"epochs", expected->epochs},
          {"tensors", expected->tensors},
          {"layers", layers}};
}

json write_custom(const std::string& folder) {
  const std::vector<std::int64_t> steps{0, 1, 1LL << 40};
  std::vector<std::uint8_t> pixels(2 * 4 * 5 * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 41);
  const std::string text = "**bold** \xc3\xa9\n\n| a | b |\n|---|---|\n| 1 | 2 |";
  ls::EventWriter writer(folder);
  ls::EventWriter tensors(folder + "_tensors", {.tensor_scalars = true});
  for (const std::int64_t step : steps) {
    writer.add_scalar("a/scalar", 0.1 * static_cast<double>(step), step);
    tensors.add_scalar("a/scalar", 0.1 * static_cast<double>(step), step);
  }
  writer.add_scalar("caf\xE9", 1, 0);  // not UTF-8; a reader would not read on
  writer.add_histogram("a/constant", std::vector<float>(4, 0.25f), 0);
  writer.add_histogram("a/nothing", {}, 0);
  writer.add_images("a/image", ls::shape(4, 5, 3), pixels, 7);
  writer.add_text("a/text", text, 8);
  return {{"steps", steps}, {"pixels", pixels}, {"text", text}};
}

/// A run of 12 files in one second, and one that continues from a checkpoint before its last step.
void write_continued(const std::string& folder) {
  for (std::int64_t step = 0; step < 12; ++step)
    ls::EventWriter(folder).add_scalar("a/scalar", static_cast<double>(step), step);
  ls::EventWriter writer(folder);
  writer.add_restart(11);
  writer.add_scalar("a/scalar", 11.5, 11);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: tensorboard_events FOLDER\n", stderr);
    return 2;
  }
  const std::string folder = argv[1];
  const json run = train(folder + "/run");
  write_continued(folder + "/continued");
  std::cout << json{{"run", run}, {"custom", write_custom(folder + "/custom")}} << "\n";
}
