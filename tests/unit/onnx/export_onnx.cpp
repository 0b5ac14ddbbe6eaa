#include "lockstep/onnx/export_onnx.hpp"

#include <protozero/pbf_reader.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/core/version.hpp"
#include "lockstep/function.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "support/temporary_folder.hpp"

namespace {

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Names = std::vector<std::string>;
using Numbers = std::vector<std::int64_t>;

struct ReadNode {
  std::string op;
  Names inputs;
  std::string output;
  std::map<std::string, Numbers> integers;
  std::map<std::string, float> floats;
  std::map<std::string, std::string> texts;
};
struct ReadConstant {
  Numbers extents;
  std::vector<float> values;
  Numbers integers;
};
struct ReadModel {
  std::int64_t ir = 0, opset = 0;
  std::string producer, version, name;
  std::vector<ReadNode> nodes;
  std::map<std::string, ReadConstant> constants;
  std::map<std::string, Names> inputs, outputs;  // the extents as text

  Names ops() const {
    Names result;
    for (const ReadNode& n : nodes) result.push_back(n.op);
    return result;
  }
  /// The only node of this operator.
  const ReadNode& node(const std::string& op) const {
    const ReadNode* found = nullptr;
    for (const ReadNode& n : nodes)
      if (n.op == op) {
        REQUIRE(!found);
        found = &n;
      }
    REQUIRE(found);
    return *found;
  }
};

ReadNode read_node(protozero::pbf_reader message) {
  ReadNode result;
  while (message.next()) {
    if (message.tag() == 1)
      result.inputs.push_back(message.get_string());
    else if (message.tag() == 2)
      result.output = message.get_string();
    else if (message.tag() == 4)
      result.op = message.get_string();
    else if (message.tag() == 5) {
      protozero::pbf_reader attribute = message.get_message();
      std::string name;
      while (attribute.next()) {
        if (attribute.tag() == 1)
          name = attribute.get_string();
        else if (attribute.tag() == 2)
          result.floats[name] = attribute.get_float();
        else if (attribute.tag() == 4)
          result.texts[name] = attribute.get_string();
        else if (attribute.tag() == 3 || attribute.tag() == 8)
          result.integers[name].push_back(attribute.get_int64());
        else
          attribute.skip();
      }
    } else {
      message.skip();
    }
  }
  return result;
}

void read_constant(protozero::pbf_reader message, ReadModel& to) {
  ReadConstant result;
  std::string name, bytes;
  int type = 0;
  while (message.next()) {
    if (message.tag() == 1)
      result.extents.push_back(message.get_int64());
    else if (message.tag() == 2)
      type = message.get_int32();
    else if (message.tag() == 8)
      name = message.get_string();
    else if (message.tag() == 9)
      bytes = message.get_bytes();
    else
      message.skip();
  }
  const auto copy = [&](auto& values) {
    values.resize(bytes.size() / sizeof values[0]);
    std::memcpy(values.data(), bytes.data(), bytes.size());
  };
  REQUIRE((type == 1 || type == 7));
  if (type == 1) copy(result.values);
  if (type == 7) copy(result.integers);
  CHECK(to.constants.emplace(name, result).second);
}

std::pair<std::string, Names> read_value(protozero::pbf_reader message) {
  std::pair<std::string, Names> result;
  while (message.next()) {
    if (message.tag() == 1) result.first = message.get_string();
    if (message.tag() != 2) continue;
    protozero::pbf_reader type = message.get_message();
    REQUIRE(type.next(1));
    protozero::pbf_reader tensor = type.get_message();
    REQUIRE(tensor.next(1));
    CHECK(tensor.get_int32() == 1);
    REQUIRE(tensor.next(2));
    protozero::pbf_reader shape = tensor.get_message();
    while (shape.next(1)) {
      protozero::pbf_reader extent = shape.get_message();
      REQUIRE(extent.next());
      result.second.push_back(extent.tag() == 2 ? extent.get_string()
                                                : std::to_string(extent.get_int64()));
    }
  }
  return result;
}

ReadModel read_model(const std::string& bytes) {
  ReadModel result;
  protozero::pbf_reader model(bytes);
  while (model.next()) {
    if (model.tag() == 1)
      result.ir = model.get_int64();
    else if (model.tag() == 2)
      result.producer = model.get_string();
    else if (model.tag() == 3)
      result.version = model.get_string();
    else if (model.tag() == 8) {
      protozero::pbf_reader opset = model.get_message();
      REQUIRE(opset.next(2));
      result.opset = opset.get_int64();
    } else {
      REQUIRE(model.tag() == 7);
      protozero::pbf_reader graph = model.get_message();
      while (graph.next()) {
        if (graph.tag() == 1)
          result.nodes.push_back(read_node(graph.get_message()));
        else if (graph.tag() == 2)
          result.name = graph.get_string();
        else if (graph.tag() == 5)
          read_constant(graph.get_message(), result);
        else if (graph.tag() == 11)
          result.inputs.insert(read_value(graph.get_message()));
        else
          result.outputs.insert(read_value(graph.get_message()));
      }
    }
  }
  return result;
}

/// The exported graph of Net, whose parameters are 0, 1, 2, ... each.
template <class Net>
ReadModel exported() {
  const ls::Architecture a = ls::architecture<Net>();
  return read_model(ls::detail::onnx_model(a, [&](const std::string& name) {
    std::vector<float> values;
    for (const ls::LayerNode& layer : a.layers)
      for (const ls::LayerParameter& p : layer.parameters)
        if (p.name == name)
          for (std::size_t i = 0; i < p.shape.size(); ++i) values.push_back(static_cast<float>(i));
    return values;
  }));
}

template <class... Layers>
struct Net : ls::Sequential<ls::Input<8, 9, 2>, Layers...> {};

struct Cnn : ls::Sequential<ls::Input<28, 28, 1>, ls::Conv2D<4, 3>, ls::ReLU, ls::MaxPooling2D<>,
                            ls::Flatten, ls::Dense<10>> {};

struct InputLayer : ls::Dense<2> {
  static constexpr std::string_view name = "input";
};
struct SecondDense : ls::Dense<3> {
  static constexpr std::string_view name = "dense_1";
};
struct TwiceOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  bool operator==(const TwiceOp&) const = default;
};
struct Twice : ls::ParameterlessLayer<TwiceOp> {
  static constexpr std::string_view name = "twice";
};

constexpr auto hard = [](auto x) { return x * min(max(x + 3, 0), 6) / 6 + erfc(0.5 * x); };
constexpr auto softmax = [](auto x) {
  const auto e = exp(x - max(x));
  return select(e < 0.5, e, pow(e, 0.25)) / sum(e);
};

}  // namespace

TEST_CASE("an ONNX file has its versions, a free batch and the names input and output") {
  const ReadModel m = exported<Cnn>();
  CHECK(m.ir == 8);
  CHECK(m.opset == 18);
  CHECK(m.producer == "lockstep");
  CHECK(m.version == LOCKSTEP_VERSION);
  CHECK(m.name == "Cnn");
  CHECK(m.inputs == std::map<std::string, Names>{{"input", {"N", "28", "28", "1"}}});
  CHECK(m.outputs == std::map<std::string, Names>{{"output", {"N", "10"}}});
  CHECK(m.nodes.front().inputs == Names{"input"});
  CHECK(m.nodes.back().output == "output");
}

TEST_CASE("values are transposed where a layer needs the other form, and not elsewhere") {
  CHECK(exported<Cnn>().ops() == Names{"Transpose", "Conv", "Relu", "MaxPool", "Transpose",
                                       "Reshape", "MatMul", "Add", "Identity"});
  CHECK(exported<Cnn>().nodes[0].integers.at("perm") == Numbers{0, 3, 1, 2});
  CHECK(exported<Cnn>().nodes[4].integers.at("perm") == Numbers{0, 2, 3, 1});
  // Both branches use one transposed input; the sum stays channels first.
  using Branches =
      Net<ls::Residual<ls::Conv2D<2, 1>, ls::Conv2D<2, 1>>, ls::Tanh, ls::GlobalAveragePooling2D>;
  CHECK(exported<Branches>().ops() ==
        Names{"Transpose", "Conv", "Conv", "Add", "Tanh", "ReduceMean", "Identity"});
  CHECK(exported<Net<ls::Dense<3>, ls::Softmax>>().ops() ==
        Names{"MatMul", "Add", "Softmax", "Identity"});
}

TEST_CASE("a model with an output for each pixel has channels last in ONNX, too") {
  struct Half : ls::Sequential<ls::Conv2D<4, ls::kernel(2, 3), ls::strides(2, 3)>,
                               ls::UpSampling2D<ls::size(2, 3)>> {};
  using Segmentation =
      Net<ls::Parallel<ls::Concatenate, ls::Identity, Half>, ls::Conv2D<3, 1>, ls::Softmax>;
  const ReadModel m = exported<Segmentation>();
  CHECK(m.outputs == std::map<std::string, Names>{{"output", {"N", "8", "9", "3"}}});
  const Names ops = m.ops();
  CHECK(std::count(ops.begin(), ops.end(), "Conv") == 2);
  CHECK(std::count(ops.begin(), ops.end(), "Concat") == 1);
  REQUIRE(ops.back() == "Identity");  // names the output
  const auto& last = m.nodes[m.nodes.size() - 2];
  REQUIRE(last.op == "Transpose");
  CHECK(last.integers.at("perm") == Numbers{0, 2, 3, 1});
}

TEST_CASE("layers that do nothing at inference have no node") {
  CHECK(exported<Net<ls::Dropout<0.5>, ls::RandomFlip<>, ls::GaussianNoise<0.1>>>().ops() ==
        Names{"Identity"});
}

TEST_CASE("PReLU's slopes are in the order of its input") {
  const ReadModel first = exported<Net<ls::Conv2D<3, 1>, ls::PReLU<ls::shared_axes(1)>>>();
  CHECK(first.constants.at("p_re_lu/alpha").extents == Numbers{3, 1, 9});
  const ReadModel last = exported<Net<ls::PReLU<ls::shared_axes(1)>>>();
  CHECK(last.constants.at("p_re_lu/alpha").extents == Numbers{1, 9, 2});
  CHECK(last.ops() == Names{"PRelu", "Identity"});
}

TEST_CASE("a grouped convolution has its number of groups") {
  const ReadModel m = exported<Net<ls::Conv2D<6, 1, ls::groups(2)>>>();
  CHECK(m.node("Conv").integers.at("group") == Numbers{2});
  CHECK(m.constants.at("conv2d/kernel").extents == Numbers{6, 1, 1, 1});
}

TEST_CASE("convolutions have ONNX' layout, and the padding of same") {
  const ReadModel m = exported<Net<ls::Conv2D<5, ls::kernel(3, 2), ls::same, ls::strides(2, 1)>>>();
  const ReadNode& conv = m.node("Conv");
  CHECK(conv.integers.at("kernel_shape") == Numbers{3, 2});
  CHECK(conv.integers.at("strides") == Numbers{2, 1});
  CHECK(conv.integers.at("dilations") == Numbers{1, 1});
  // 8 rows, 3 taps, stride 2: one row below; 9 columns, 2 taps, stride 1: one column at the right.
  CHECK(conv.integers.at("pads") == Numbers{0, 0, 1, 1});
  CHECK(conv.integers.at("group") == Numbers{1});
  CHECK(conv.inputs == Names{"input/Transpose", "conv2d/kernel", "conv2d/bias"});
  const ReadConstant& kernel = m.constants.at("conv2d/kernel");
  CHECK(kernel.extents == Numbers{5, 2, 3, 2});
  // Element (f, k, i, j) is element (i, j, k, f) of (3, 2, 2, 5), whose values count up.
  CHECK(kernel.values[0] == 0);
  CHECK(kernel.values[1] == 10);      // j = 1
  CHECK(kernel.values[2] == 20);      // i = 1
  CHECK(kernel.values[6] == 5);       // k = 1
  CHECK(kernel.values[12] == 1);      // f = 1
  CHECK(kernel.values.back() == 59);  // the last of both
  CHECK(m.constants.at("conv2d/bias").values == std::vector<float>{0, 1, 2, 3, 4});

  const ReadModel depthwise = exported<Net<ls::DepthwiseConv2D<3, ls::depth_multiplier(3)>>>();
  CHECK(depthwise.node("Conv").integers.at("group") == Numbers{2});
  CHECK(depthwise.constants.at("depthwise_conv2d/kernel").extents == Numbers{6, 1, 3, 3});
  const ReadModel bare = exported<Net<ls::Conv2D<5, 3, ls::no_bias>>>();
  CHECK(bare.node("Conv").inputs.size() == 2);
}

TEST_CASE("transposed convolutions have the output of lockstep") {
  const auto extra = [](const ReadModel& m) {
    const ReadNode& n = m.node("ConvTranspose");
    return std::pair(n.integers.at("pads"), n.integers.at("output_padding"));
  };
  using Pair = std::pair<Numbers, Numbers>;
  CHECK(extra(exported<Net<ls::Conv2DTranspose<4, 3>>>()) == Pair{{0, 0, 0, 0}, {0, 0}});
  // 16 = 7 * 2 + 3 - 1: one row too many, below.
  CHECK(extra(exported<Net<ls::Conv2DTranspose<4, 3, ls::same, ls::strides(2)>>>()) ==
        Pair{{0, 0, 1, 1}, {0, 0}});
  // The stride is larger than the kernel: 8 * 3 rows from 7 * 3 + 2.
  CHECK(extra(exported<Net<ls::Conv2DTranspose<4, 2, ls::strides(3)>>>()) ==
        Pair{{0, 0, 0, 0}, {1, 1}});
}

TEST_CASE("normalizations have all their operands") {
  const ReadModel m = exported<Net<ls::BatchNormalization<ls::center(false), ls::epsilon(0.5f)>>>();
  const ReadNode& n = m.node("BatchNormalization");
  REQUIRE(n.inputs.size() == 5);
  CHECK(n.floats.at("epsilon") == 0.5f);
  CHECK(m.constants.at("batch_normalization/gamma").values == std::vector<float>{0, 1});
  CHECK(m.constants.at("batch_normalization/beta").values == std::vector<float>{0, 0});
  CHECK(m.constants.at("batch_normalization/moving_variance").values == std::vector<float>{0, 1});
  const ReadModel layer = exported<Net<ls::LayerNormalization<ls::scale(false)>>>();
  CHECK(layer.constants.at("layer_normalization/gamma").values == std::vector<float>{1, 1});
  // Variance 0 and 1: the deviation is at least 1e-7.
  const ReadModel own = exported<Net<ls::Normalization>>();
  CHECK(own.constants.at("normalization/deviation").values == std::vector<float>{1e-7f, 1});
}

TEST_CASE("activations as options are nodes of their layer") {
  const ReadModel m =
      exported<Net<ls::Conv2D<2, 1, ls::leaky_relu>, ls::Dense<2, ls::relu6>, ls::LeakyReLU<>>>();
  CHECK(m.ops() == Names{"Transpose", "Conv", "LeakyRelu", "Transpose", "MatMul", "Add", "Clip",
                         "LeakyRelu", "Identity"});
  CHECK(m.nodes[2].floats.at("alpha") == 0.2f);
  CHECK(m.nodes[2].output == "conv2d/LeakyRelu");
  CHECK(m.nodes[7].floats.at("alpha") == 0.3f);
}

TEST_CASE("each operation of a function is a node") {
  const ReadModel m = exported<Net<ls::Conv2D<2, 1>, ls::Function<hard>, ls::Function<softmax>>>();
  CHECK(m.ops() == Names{"Transpose", "Conv", "Add",     "Max", "Min",  "Mul",
                         "Div",       "Mul",  "Erf",     "Sub", "Add",  "Transpose",
                         "ReduceMax", "Sub",  "Exp",     "Pow", "Less", "Where",
                         "ReduceSum", "Div",  "Identity"});
  CHECK(m.constants.at("function/constant").values == std::vector<float>{3});
  CHECK(m.constants.at("function/factor").values == std::vector<float>{0.5f});
  CHECK(m.node("ReduceSum").inputs.at(1) == "function_1/axes_1");
  CHECK(m.node("Where").inputs == Names{"function_1/Less", "function_1/Exp", "function_1/Pow"});
  const ReadModel option = exported<Net<ls::Dense<3, ls::activation<ls::Function<hard>>>>>();
  CHECK(option.ops()[2] == "Add");
  CHECK(option.nodes[2].inputs == Names{"dense/Add", "dense/constant"});
}

TEST_CASE("layers and activations without a form in ONNX are named") {
  CHECK_THROWS_MATCHES(exported<Net<Twice>>(), ls::UsageError,
                       MessageMatches(ContainsSubstring(
                           "export_onnx: layer 'twice' is a Twice, which has no form")));
  CHECK_THROWS_MATCHES((exported<Net<ls::Dense<3, ls::activation<Twice>>>>()), ls::UsageError,
                       MessageMatches(ContainsSubstring("layer 'dense' has the activation Twice")));
  const ls::Architecture masked{.name = "Masked",
                                .input_shape = ls::shape(4, 2),
                                .layers = {{.name = "gru",
                                            .class_name = "GRU",
                                            .inputs = {"input", "input"},
                                            .input_shapes = {ls::shape(4, 2), ls::shape(4)},
                                            .output_shape = ls::shape(3),
                                            .options = {},
                                            .parameters = {}}},
                                .output = "gru"};
  CHECK_THROWS_MATCHES(ls::detail::onnx_model(masked, {}), ls::UsageError,
                       MessageMatches(ContainsSubstring("layer 'gru' reads a mask")));
}

TEST_CASE("a name that stands for two values is an error, not a wrong graph") {
  const auto refused = [](auto exported_net) {
    CHECK_THROWS_MATCHES(exported_net(), ls::UsageError,
                         MessageMatches(ContainsSubstring("stands for two layers, or for a layer "
                                                          "and the model's input")));
  };
  refused([] { exported<Net<InputLayer, ls::Residual<ls::ReLU>>>(); });
  refused([] { exported<Net<ls::Dense<3>, ls::Dense<3>, SecondDense>>(); });
}

TEST_CASE("a model above 2 GiB is refused before its values are read") {
  const auto wide = [](int extent) {
    ls::Architecture a{.name = "Wide",
                       .input_shape = ls::shape(extent),
                       .layers = {{.name = "dense",
                                   .class_name = "Dense",
                                   .inputs = {"input"},
                                   .input_shapes = {ls::shape(extent)},
                                   .output_shape = ls::shape(extent),
                                   .options = {},
                                   .parameters = {{"dense/kernel", ls::shape(extent, extent)}}}},
                       .output = "dense"};
    ls::detail::onnx_model(a, [](const std::string&) -> std::vector<float> {
      throw std::logic_error("the values were read");
    });
  };
  CHECK_THROWS_MATCHES(
      wide(1 << 15), ls::UsageError,
      MessageMatches(ContainsSubstring("the model has 4294967296 bytes, but an ONNX file") &&
                     ContainsSubstring("at most 2 GiB; use save_weights and save_architecture")));
  CHECK_THROWS_AS(wide(23'000), std::logic_error);  // 2.1e9 bytes, below the limit
}

TEST_CASE("export_onnx writes a complete file or none") {
  ls::Model model{Cnn{}, ls::OneDevice<ls::Reference<float>>{},
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::SGD{}};
  const TemporaryFolder folder;
  const std::string path = folder / "cnn.onnx";
  ls::export_onnx(model, path);
  std::ifstream file(path, std::ios::binary);
  const ReadModel m = read_model(std::string(std::istreambuf_iterator<char>(file), {}));
  CHECK(m.constants.at("dense/kernel").values == model.weights("dense/kernel"));
  CHECK_THROWS_AS(ls::export_onnx(model, folder / "none/cnn.onnx"), ls::FileError);

  const auto refused = [&] {
    ls::detail::write_onnx(folder / "custom.onnx", ls::architecture<Net<Twice>>(),
                           [](const std::string&) { return std::vector<float>{}; });
  };
  CHECK_THROWS_AS(refused(), ls::UsageError);
  CHECK(!std::filesystem::exists(folder / "custom.onnx"));
}

namespace {

struct Tokens
    : ls::Graph<ls::In<"number", 2>, ls::In<"words", ls::Integers<3>>,
                ls::Let<"n", ls::From<"number">, ls::Shared<"mix", ls::Dense<2, ls::tanh>>,
                        ls::Shared<"mix", ls::Dense<2, ls::tanh>>>,
                ls::Let<"w", ls::From<"words">, ls::Shared<"tokens", ls::Embedding<5, 2>>>,
                ls::Out<"sum", ls::From<"n">, ls::Dense<1>>,
                ls::Out<"logits", ls::From<"w">, ls::TiedDense<"tokens">>> {};

}  // namespace

TEST_CASE("onnx: a graph has its own inputs and outputs, and weights of several calls once") {
  const ReadModel m = exported<Tokens>();
  CHECK(m.inputs == std::map<std::string, Names>{{"number", {"N", "2"}}, {"words", {"N", "3"}}});
  CHECK(m.outputs ==
        std::map<std::string, Names>{{"logits", {"N", "3", "5"}}, {"sum", {"N", "1"}}});
  CHECK(m.ops() == Names{"MatMul", "Add", "Tanh", "MatMul", "Add", "Tanh", "Cast", "Gather",
                         "MatMul", "Add", "Transpose", "MatMul", "Identity", "Identity"});
  Names constants;
  for (const auto& [name, constant] : m.constants) constants.push_back(name);
  CHECK(constants == Names{"dense/bias", "dense/kernel", "dense_1/bias", "dense_1/kernel",
                           "embedding/embeddings"});
  CHECK(m.nodes[3].inputs == Names{m.nodes[2].output, "dense/kernel"});
  CHECK(m.node("Transpose").inputs == Names{"embedding/embeddings"});
  CHECK(m.node("Cast").inputs == Names{"words"});
}

TEST_CASE("an architecture has the inputs and outputs of a graph, and the calls of its layers") {
  const ls::Architecture a = ls::architecture<Tokens>();
  CHECK(a.layers[3].name == "dense[1]");
  CHECK(a.layers[3].shared_with == "dense");
  CHECK(a.layers[3].inputs == Names{"dense"});
  CHECK(a.layers[3].parameters.empty());
  CHECK(a.outputs[1].layer == "tied_dense");
  const std::string json = to_json(a);
  CHECK_THAT(
      json,
      ContainsSubstring(
          R"("inputs": [{"name": "number", "shape": [2], "offset": 0, "layer": "number"}, {"name": "words", "shape": [3], "offset": 2, "layer": "words"}])"));
  CHECK_THAT(
      json,
      ContainsSubstring(
          R"("outputs": [{"name": "sum", "shape": [1], "offset": 0, "layer": "dense_1"}, {"name": "logits", "shape": [3, 5], "offset": 1, "layer": "tied_dense"}])"));
  CHECK_THAT(json, ContainsSubstring(R"("parameters": [], "shared_with": "embedding"})"));
}
