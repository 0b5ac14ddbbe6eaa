#include "lockstep/training/export/architecture.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/core/version.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "support/temporary_folder.hpp"

namespace {

namespace ls = lockstep;
using Numbers = std::vector<std::int64_t>;
using Factors = std::vector<double>;

template <class... Layers>
struct Net : ls::Sequential<ls::Input<8, 8, 2>, Layers...> {};
template <class... Layers>
struct Steps : ls::Sequential<ls::Input<9, 4>, Layers...> {};

/// The layer of a network that consists of one layer.
template <class N>
ls::LayerNode only() {
  const ls::Architecture a = ls::architecture<N>();
  REQUIRE(a.layers.size() == 1);
  return a.layers[0];
}

template <class T>
T value(const ls::LayerNode& layer, const char* name) {
  INFO(layer.name << ": " << name);
  const ls::LayerOption::Value* const found = layer.option(name);
  REQUIRE(found);
  REQUIRE(std::holds_alternative<T>(*found));
  return std::get<T>(*found);
}

std::vector<std::string> names(const ls::LayerNode& layer) {
  std::vector<std::string> result;
  for (const ls::LayerOption& o : layer.options) result.push_back(o.name);
  return result;
}

/// A custom op without names, and one with names.
struct ScaleOp {
  ls::Shape in;
  float by = 2;
  constexpr ls::Shape out() const { return in; }
  bool operator==(const ScaleOp&) const = default;
};
struct ScaleBy2 : ls::ParameterlessLayer<ScaleOp> {
  static constexpr std::string_view name = "scale_by2";
};
struct PowerOp {
  static constexpr std::string_view members = "in exponent";
  ls::Shape in;
  int exponent = 3;
  constexpr ls::Shape out() const { return in; }
  bool operator==(const PowerOp&) const = default;
};
struct Cube : ls::ParameterlessLayer<PowerOp> {
  static constexpr std::string_view name = "cube";
};

}  // namespace

TEST_CASE("an architecture has Keras' names, classes, options, shapes and parameters") {
  const auto conv =
      only<Net<ls::Conv2D<4, ls::kernel(3, 2), ls::same, ls::strides(2, 1), ls::relu>>>();
  CHECK(conv.name == "conv2d");
  CHECK(conv.class_name == "Conv2D");
  CHECK(conv.inputs == std::vector<std::string>{"input"});
  CHECK(conv.input_shapes == std::vector<ls::Shape>{ls::shape(8, 8, 2)});
  CHECK(conv.output_shape == ls::shape(4, 8, 4));
  CHECK(names(conv) == std::vector<std::string>{"filters", "kernel_size", "strides",
                                                "dilation_rate", "padding", "use_bias",
                                                "activation"});
  CHECK(value<std::int64_t>(conv, "filters") == 4);
  CHECK(value<Numbers>(conv, "kernel_size") == Numbers{3, 2});
  CHECK(value<Numbers>(conv, "strides") == Numbers{2, 1});
  CHECK(value<std::string>(conv, "padding") == "same");
  CHECK(value<bool>(conv, "use_bias"));
  CHECK(value<std::string>(conv, "activation") == "relu");
  REQUIRE(conv.parameters.size() == 2);
  CHECK(conv.parameters[0].name == "conv2d/kernel");
  CHECK(conv.parameters[0].shape == ls::shape(3, 2, 2, 4));
  CHECK(conv.parameters[0].trainable);
  CHECK(conv.option("rate") == nullptr);

  const auto norm = only<Net<ls::BatchNormalization<ls::center(false)>>>();
  CHECK(value<double>(norm, "momentum") == 0.99);
  CHECK(value<double>(norm, "epsilon") == 0.001);  // not the float next to it
  CHECK(!value<bool>(norm, "center"));
  CHECK(value<std::int64_t>(norm, "axis") == -1);
  REQUIRE(norm.parameters.size() == 3);
  CHECK(norm.parameters[1].name == "batch_normalization/moving_mean");
  CHECK(!norm.parameters[1].trainable);
}

TEST_CASE("an architecture has the options of all kinds of layers") {
  const auto separable = only<Net<ls::SeparableConv2D<4, 3, ls::depth_multiplier(2)>>>();
  CHECK(value<std::int64_t>(separable, "depth_multiplier") == 2);
  CHECK(value<std::int64_t>(separable, "filters") == 4);
  CHECK(value<bool>(separable, "use_bias"));  // the layer's, not that of the depthwise part
  CHECK(value<Numbers>(only<Net<ls::MaxPooling2D<3>>>(), "pool_size") == Numbers{3, 3});
  CHECK(value<double>(only<Net<ls::Dropout<0.25>>>(), "rate") == 0.25);
  CHECK(value<double>(only<Net<ls::LeakyReLU<>>>(), "negative_slope") == 0.3);
  CHECK(value<std::string>(only<Net<ls::RandomFlip<ls::vertical>>>(), "mode") == "vertical");
  CHECK(value<Numbers>(only<Net<ls::Reshape<ls::shape(-1, 4)>>>(), "target_shape") ==
        Numbers{32, 4});
  CHECK(only<Net<ls::Flatten>>().options.empty());
  CHECK(value<Numbers>(only<Net<ls::ZeroPadding2D<ls::edges(0, 1, 2, 3)>>>(), "padding") ==
        Numbers{0, 1, 2, 3});
  CHECK(value<Numbers>(only<Net<ls::Cropping2D<ls::edges(0, 1, 2, 3)>>>(), "cropping") ==
        Numbers{0, 1, 2, 3});
  const auto slice = only<Net<ls::SliceAxis<-1, 0, -1>>>();
  CHECK(names(slice) == std::vector<std::string>{"axis", "begin", "end"});
  CHECK(value<std::int64_t>(slice, "axis") == 3);
  CHECK(value<std::int64_t>(slice, "end") == 1);
  CHECK(value<Numbers>(only<Net<ls::Permute<3, 1, 2>>>(), "dims") == Numbers{3, 1, 2});
  CHECK(value<std::int64_t>(only<Net<ls::SpaceToDepth<2>>>(), "block_size") == 2);
  const auto dot = only<Net<ls::Parallel<ls::Dot<-1>, ls::Identity, ls::Identity>>>();
  CHECK(names(dot) == std::vector<std::string>{"axes", "normalize"});
  CHECK(value<Numbers>(dot, "axes") == Numbers{3, 3});
  CHECK(!value<bool>(dot, "normalize"));
  const auto rotation =
      only<Net<ls::RandomRotation<ls::factor(0, 0.25), ls::fill_constant(0.5f)>>>();
  CHECK(names(rotation) ==
        std::vector<std::string>{"factor", "fill_mode", "fill_value", "interpolation"});
  CHECK(value<Factors>(rotation, "factor") == Factors{0, 0.25});
  CHECK(value<std::string>(rotation, "fill_mode") == "constant");
  CHECK(value<std::string>(rotation, "interpolation") == "bilinear");
  const auto dense = only<Net<ls::Dense<3, ls::activation<ls::LeakyReLU<0.2>>, ls::no_bias>>>();
  CHECK(names(dense) ==
        std::vector<std::string>{"units", "use_bias", "activation", "activation_negative_slope"});
  CHECK(dense.output_shape == ls::shape(8, 8, 3));
}

TEST_CASE("layers over steps have one number per option") {
  const auto conv = only<Steps<ls::Conv1D<5, 3, ls::strides(2)>>>();
  CHECK(conv.class_name == "Conv1D");
  CHECK(value<Numbers>(conv, "kernel_size") == Numbers{3});
  CHECK(value<Numbers>(conv, "strides") == Numbers{2});
  CHECK(conv.output_shape == ls::shape(4, 5));
  const auto pool = only<Steps<ls::MaxPooling1D<2>>>();
  CHECK(value<Numbers>(pool, "pool_size") == Numbers{2});
  CHECK(only<Steps<ls::GlobalMaxPooling1D>>().options.empty());
  const auto padding = only<Steps<ls::ZeroPadding1D<2, 1>>>();
  CHECK(padding.class_name == "ZeroPadding1D");
  CHECK(value<Numbers>(padding, "padding") == Numbers{2, 1});
  CHECK(value<Numbers>(only<Steps<ls::Cropping1D<0, 3>>>(), "cropping") == Numbers{0, 3});
  CHECK(value<Numbers>(only<Steps<ls::UpSampling1D<3>>>(), "size") == Numbers{3});
  CHECK(names(only<Steps<ls::Permute<2, 1>>>()) == std::vector<std::string>{"dims"});
  const auto lstm = only<Steps<ls::LSTM<6, ls::go_backwards>>>();
  CHECK(value<std::int64_t>(lstm, "units") == 6);
  CHECK(value<bool>(lstm, "go_backwards"));
  CHECK(lstm.option("results") == nullptr);
  CHECK(value<std::int64_t>(only<Steps<ls::GRU<5>>>(), "units") == 5);
}

TEST_CASE("an architecture has custom layers, whose options without names are numbered") {
  CHECK(names(only<Net<ScaleBy2>>()) == std::vector<std::string>{"option_1"});
  CHECK(value<std::int64_t>(only<Net<Cube>>(), "exponent") == 3);
  CHECK(value<std::string>(only<Net<ls::Dense<3, ls::activation<Cube>>>>(), "activation") ==
        "Cube");
}

namespace {
struct Convolution : ls::Conv2D<4, 3> {};
struct Steps3 : ls::MaxPooling1D<3> {};
struct Rectifier : ls::ReLU {};
struct Flat : ls::Flatten {};
}  // namespace

TEST_CASE("a class derived from a layer has the layer's class") {
  CHECK(only<Net<Convolution>>().class_name == "Conv2D");
  CHECK(only<Steps<Steps3>>().class_name == "MaxPooling1D");
  CHECK(only<Steps<ls::GlobalAveragePooling1D>>().class_name == "GlobalAveragePooling1D");
  CHECK(only<Net<Rectifier>>().class_name == "ReLU");
  CHECK(only<Net<Flat>>().class_name == "Flatten");
  CHECK(only<Net<ls::Reshape<ls::shape(128)>>>().class_name == "Reshape");
  CHECK(only<Net<ls::Reshape<ls::shape(4, 32)>>>().class_name == "Reshape");
  CHECK(only<Net<Cube>>().class_name == "Cube");
  CHECK(value<std::string>(only<Net<ls::Dense<3, ls::activation<Rectifier>>>>(), "activation") ==
        "relu");
}

TEST_CASE("an architecture has the connections between layers") {
  using Branches =
      Net<ls::Residual<ls::Conv2D<2, 1>>, ls::Parallel<ls::Concatenate, ls::ReLU, ls::Identity>>;
  const ls::Architecture a = ls::architecture<Branches>();
  REQUIRE(a.layers.size() == 4);
  CHECK(a.layers[1].inputs == std::vector<std::string>{"conv2d", "input"});
  CHECK(a.layers[3].inputs == std::vector<std::string>{"re_lu", "add"});
  CHECK(a.layers[3].input_shapes == std::vector{ls::shape(8, 8, 2), ls::shape(8, 8, 2)});
  CHECK(names(a.layers[3]) == std::vector<std::string>{"axis"});
  CHECK(a.output == "concatenate");
  CHECK(ls::architecture<Net<>>().output == "input");
}

namespace {
struct Main : ls::Sequential<ls::Conv2D<2, 1>, ls::Conv2D<2, 1, ls::relu>> {
  static constexpr std::string_view name = "main";
};
struct Body : ls::Sequential<ls::Residual<ls::Recompute<Main>>, ls::ReLU> {
  static constexpr std::string_view name = "body";
};
}  // namespace

TEST_CASE("an architecture has the paths of named blocks in names, inputs and parameters") {
  using Blocks = Net<ls::Conv2D<2, 1>, ls::Repeat<2, Body>, ls::Conv2D<2, 1>>;
  const ls::Architecture a = ls::architecture<Blocks>();
  std::vector<std::string> layers, parameters;
  for (const ls::LayerNode& layer : a.layers) {
    layers.push_back(layer.name);
    for (const ls::LayerParameter& p : layer.parameters) {
      CHECK(p.name.starts_with(layer.name + "/"));
      parameters.push_back(p.name);
    }
  }
  CHECK(layers == std::vector<std::string>{"conv2d", "body/main/conv2d", "body/main/conv2d_1",
                                           "body/add", "body/re_lu", "body_1/main/conv2d",
                                           "body_1/main/conv2d_1", "body_1/add", "body_1/re_lu",
                                           "conv2d_1"});
  CHECK(parameters.size() == 12);
  CHECK(a.layers[3].inputs == std::vector<std::string>{"body/main/conv2d_1", "conv2d"});
  CHECK(a.layers[9].inputs == std::vector<std::string>{"body_1/re_lu"});
  CHECK(a.output == "conv2d_1");
}

namespace {
struct Tiny : ls::Sequential<ls::Input<3>, ls::Dense<2, ls::relu>, ls::Dropout<0.5>> {};
const std::string tiny_json = R"({
  "format": "lockstep.architecture",
  "format_version": 1,
  "library_version": ")" LOCKSTEP_VERSION R"(",
  "name": "Tiny",
  "input_shape": [3],
  "output": "dropout",
  "layers": [
    {"name": "dense", "class_name": "Dense",
      "inputs": ["input"], "input_shapes": [[3]], "output_shape": [2],
      "config": {"units": 2, "use_bias": true, "activation": "relu"},
      "parameters": [
        {"name": "dense/kernel", "shape": [3, 2], "trainable": true},
        {"name": "dense/bias", "shape": [2], "trainable": true}]},
    {"name": "dropout", "class_name": "Dropout",
      "inputs": ["dense"], "input_shapes": [[2]], "output_shape": [2],
      "config": {"rate": 0.5},
      "parameters": []}
  ]
}
)";

struct Reader : ls::Callback {
  void on_train_begin(const ls::Logs&) override { seen = control().architecture(); }
  ls::Architecture seen;
};
}  // namespace

TEST_CASE("an architecture as JSON") { CHECK(ls::to_json(ls::architecture<Tiny>()) == tiny_json); }

TEST_CASE("a model saves its architecture, and callbacks read it") {
  ls::Model model{Tiny{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{}, ls::SGD{}};
  const TemporaryFolder folder;
  const std::string path = folder / "tiny.json";
  model.save_architecture(path);
  std::ifstream file(path);
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == tiny_json);
  const auto reader = std::make_shared<Reader>();
  const auto data =
      ls::tensors(std::vector<float>(12), ls::shape(3), std::vector<float>(8), ls::shape(2)) |
      ls::batch(2);
  model.fit(data, {.epochs = 1, .callbacks = {reader}, .progress = ls::ProgressStyle::none});
  CHECK(ls::to_json(reader->seen) == tiny_json);
}
