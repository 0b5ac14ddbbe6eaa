// Models with all layers of the library, for tests/programs/export_slow.py, which compares them with Keras, PyTorch and
// onnxruntime. `export_models FOLDER` writes for each model NAME.json, NAME.safetensors, NAME.onnx and NAME.data, a
// safetensors file with inputs "x" and predictions "y". `export_models FOLDER back` reads NAME.back and NAME.data, and
// writes NAME.again, if there is a NAME.back, with the predictions "y" of the weights in NAME.back.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/rng.hpp"
#include "lockstep/files/safetensors.hpp"
#include "lockstep/function.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/onnx.hpp"
#include "lockstep/reference.hpp"
#include "programs/resnet.hpp"

namespace ls = lockstep;

namespace {

using ls::same;
using ls::strides;

// Layers, each with its options.
struct Conv2D
    : ls::Sequential<ls::Input<9, 8, 3>, ls::Conv2D<4, 3, ls::relu>,
                     ls::Conv2D<5, ls::kernel(3, 2), same, strides(2, 1), ls::no_bias>,
                     ls::Conv2D<4, 3, same, ls::dilation(2), ls::elu>,
                     ls::Conv2D<3, 2, same, strides(2), ls::activation<ls::LeakyReLU<0.1>>>> {};
struct Resized : ls::Sequential<ls::Input<7, 9, 2>, ls::Resizing<12, 5>, ls::CenterCrop<9, 4>,
                                ls::Resizing<4, 7, ls::nearest>, ls::CenterCrop<3, 9>> {};
struct Slopes
    : ls::Sequential<ls::Input<5, 4, 3>, ls::PReLU<ls::alpha_initializer(ls::ConstantValue{0.25})>,
                     ls::Conv2D<4, 2>, ls::PReLU<ls::alpha_initializer(ls::ConstantValue{-0.5})>,
                     ls::PReLU<ls::shared_axes(1, 2), ls::alpha_initializer(ls::RandomUniform{})>,
                     ls::Reshape<ls::shape(12, 4)>, ls::PReLU<ls::shared_axes(2)>> {};
struct Groups
    : ls::Sequential<ls::Input<9, 8, 4>, ls::Conv2D<6, 3, same, ls::groups(2), ls::relu>,
                     ls::Conv2D<6, ls::kernel(3, 2), strides(2), ls::groups(6)>,
                     ls::Reshape<ls::shape(16, 6)>, ls::Conv1D<6, 3, ls::groups(3), ls::no_bias>> {
};
struct Conv1D : ls::Sequential<ls::Input<17, 3>, ls::Conv1D<4, 3>,
                               ls::Conv1D<5, 4, same, strides(2), ls::silu>,
                               ls::Conv1D<3, 2, ls::dilation(2), ls::no_bias>> {};
struct Transpose1D
    : ls::Sequential<ls::Input<5, 3>, ls::Conv1DTranspose<4, 3, ls::tanh>,
                     ls::Conv1DTranspose<3, 4, same, strides(2), ls::no_bias>,
                     ls::Conv1DTranspose<2, 3, same, strides(2), ls::output_padding(0)>> {};
struct Recurrent
    : ls::Sequential<
          ls::Input<7, 3>, ls::Bidirectional<ls::LSTM<4, ls::return_sequences>>,
          ls::GRU<5, ls::return_sequences, ls::go_backwards, ls::dropout(0.5)>,
          ls::GRU<4, ls::reset_after(false), ls::return_sequences, ls::recurrent_dropout(0.5)>,
          ls::Bidirectional<ls::SimpleRNN<3, ls::no_bias, ls::return_sequences>, ls::Multiply>,
          ls::LSTM<4, ls::go_backwards>> {};
struct Attention
    : ls::Sequential<
          ls::Input<6, 5>, ls::PositionEmbedding<8>,
          ls::MultiHeadAttention<3, 4, ls::value_dim(2), ls::output_shape(8), ls::dropout(0.5)>,
          ls::MultiHeadAttention<2, 6, ls::causal, ls::no_bias, ls::rotary(100, 2)>,
          ls::GroupedQueryAttention<4, 2, 6, ls::sliding_window(2), ls::rotary_pairs()>,
          ls::GroupedQueryAttention<4, 1, 3, ls::causal, ls::sliding_window(3), ls::no_bias>> {};
struct Depthwise
    : ls::Sequential<ls::Input<9, 8, 3>, ls::DepthwiseConv2D<3, ls::depth_multiplier(2), ls::gelu>,
                     ls::DepthwiseConv2D<ls::kernel(2, 3), same, strides(2), ls::no_bias>,
                     ls::SeparableConv2D<4, 3, same, ls::depth_multiplier(2), ls::softplus>,
                     ls::SeparableConv2D<3, 2, ls::no_bias>,
                     ls::DepthwiseConv2D<2, same, ls::dilation(2)>> {};
struct Transpose
    : ls::Sequential<ls::Input<3, 4, 3>, ls::Conv2DTranspose<4, 3>,
                     ls::Conv2DTranspose<3, 3, same, strides(2), ls::tanh>,
                     ls::Conv2DTranspose<2, 2, strides(3), ls::no_bias>, ls::MaxPooling2D<4>,
                     ls::Conv2DTranspose<3, ls::kernel(4, 3), same, strides(2)>> {};
struct TransposePadded
    : ls::Sequential<ls::Input<3, 4, 2>,
                     ls::Conv2DTranspose<3, 3, same, strides(2), ls::output_padding(0, 1)>,
                     ls::Conv2DTranspose<2, 3, strides(2), ls::output_padding(1)>> {};
struct Dense
    : ls::Sequential<ls::Input<4, 6>, ls::Dense<5, ls::sigmoid>, ls::Dense<4, ls::no_bias>,
                     ls::Flatten, ls::Dense<6, ls::log_softmax>, ls::Dense<3, ls::softmax>> {};
struct Pooling2D : ls::Sequential<ls::Input<11, 9, 2>, ls::MaxPooling2D<3, strides(2), same>,
                                  ls::AveragePooling2D<ls::kernel(2, 3), strides(1), same>,
                                  ls::MaxPooling2D<2, strides(1)>, ls::AveragePooling2D<>> {};
struct Pooling1D
    : ls::Sequential<
          ls::Input<23, 3>, ls::MaxPooling1D<2>, ls::AveragePooling1D<3, same, strides(2)>,
          ls::MaxPooling1D<3, same, strides(1)>, ls::AveragePooling1D<>,
          ls::Parallel<ls::Concatenate, ls::GlobalAveragePooling1D, ls::GlobalMaxPooling1D>> {};
struct GlobalPooling
    : ls::Sequential<
          ls::Input<5, 4, 3>, ls::Conv2D<3, 2>,
          ls::Parallel<ls::Concatenate, ls::GlobalAveragePooling2D, ls::GlobalMaxPooling2D>> {};
struct Volumes
    : ls::Sequential<
          ls::Input<7, 9, 8, 2>, ls::Conv3D<4, 3, same, ls::relu>,
          ls::MaxPooling3D<ls::kernel(2, 3, 1), strides(1, 2, 1), same>,
          ls::Conv3D<6, ls::kernel(3, 2, 4), same, strides(2, 1, 2), ls::groups(2)>,
          ls::AveragePooling3D<ls::kernel(2, 2, 1), strides(1), same>,
          ls::Conv3D<3, 2, ls::dilation(1, 2, 1), ls::no_bias>,
          ls::AveragePooling3D<ls::kernel(1, 2, 2)>, ls::MaxPooling3D<ls::kernel(2, 1, 1)>,
          ls::Parallel<ls::Concatenate, ls::GlobalAveragePooling3D, ls::GlobalMaxPooling3D>> {};
struct Normalizations
    : ls::Sequential<ls::Input<5, 4, 3>, ls::Normalization, ls::BatchNormalization<>,
                     ls::LayerNormalization<>, ls::BatchNormalization<ls::center(false)>,
                     ls::BatchNormalization<ls::scale(false), ls::epsilon(0.01f)>,
                     ls::LayerNormalization<ls::scale(false)>, ls::RMSNormalization<>,
                     ls::GroupNormalization<-1, ls::center(false)>, ls::GroupNormalization<1>,
                     ls::LayerNormalization<ls::center(false), ls::epsilon(0.1f)>,
                     ls::Reshape<ls::shape(20, 3)>, ls::BatchNormalization<>,
                     ls::LayerNormalization<>, ls::Flatten, ls::GroupNormalization<3>,
                     ls::RMSNormalization<>, ls::BatchNormalization<>,
                     ls::Residual<ls::GroupNormalization<-1>>> {};
// Each operation of a function.
constexpr auto all = [](auto x) {
  const auto a = exp(-abs(x)) + expm1(0.25 * x) - log(2 + x * x) * log1p(abs(x)) + tanh(x);
  const auto b = sigmoid(x) * softplus(x) + erf(0.5 * x) - 0.5 * x * erfc(-x);
  const auto c = select(x < 0.5, sqrt(1 + x * x), pow(x * x + 1, 0.25)) / (1 + square(x));
  const auto d = select(x == 2, x, select(x <= -1, max(x, -2), min(x, 0.25)));
  return a + b - c + stop_gradient(x) * d;
};
constexpr auto normalized = [](auto x) {
  const auto centered = x - mean(x);
  return centered / sqrt(mean(square(centered)) + 1e-3) + max(x);
};
struct Activations
    : ls::Sequential<
          ls::Input<3, 2, 4>,
          ls::Parallel<ls::Concatenate, ls::ELU, ls::GELU, ls::LeakyReLU<>, ls::ReLU, ls::ReLU6,
                       ls::SiLU, ls::Sigmoid, ls::Softmax, ls::LogSoftmax, ls::Softplus, ls::Tanh>,
          ls::Conv2D<6, 1, ls::leaky_relu>, ls::Softmax, ls::Dense<4, ls::relu6>,
          ls::Function<normalized>, ls::Conv2D<3, 1, ls::activation<ls::Function<all>>>> {};
struct Shapes
    : ls::Sequential<
          ls::Input<30>, ls::Reshape<ls::shape(3, 2, -1)>, ls::UpSampling2D<>,
          ls::ZeroPadding2D<ls::edges(0, 1, 2, 3)>, ls::UpSampling2D<ls::size(2, 3), ls::bilinear>,
          ls::Rescaling<ls::factor(0.5), ls::offset(-1)>, ls::ZeroPadding2D<>, ls::Flatten> {};
struct Moves
    : ls::Sequential<ls::Input<6, 8, 8>, ls::DepthToSpace<2>, ls::Cropping2D<ls::edges(1, 2, 0, 3)>,
                     ls::Conv2D<4, 2>, ls::Cropping2D<ls::edges(0, 2, 0, 0)>,
                     ls::SliceAxis<2, 1, -1>, ls::SliceAxis<-1, 0, 3>, ls::SpaceToDepth<2>,
                     ls::Permute<3, 1, 2>, ls::SliceAxis<1, 2>, ls::Reshape<ls::shape(-1, 5)>,
                     ls::ZeroPadding1D<2, 1>, ls::UpSampling1D<3>, ls::Conv1D<3, 2>,
                     ls::Cropping1D<>, ls::UpSampling1D<>, ls::ZeroPadding1D<>, ls::SliceAxis<2, 1>,
                     ls::Permute<2, 1>, ls::GlobalAveragePooling1D, ls::RepeatVector<4>> {};
struct Merges
    : ls::Sequential<ls::Input<5, 4, 3>,
                     ls::Parallel<ls::Multiply, ls::Identity, ls::Dense<3, ls::sigmoid>>,
                     ls::Parallel<ls::Subtract, ls::Conv2D<3, 1>, ls::Identity>,
                     ls::Parallel<ls::Maximum, ls::Identity, ls::Dense<3>, ls::Tanh>,
                     ls::Parallel<ls::Minimum, ls::Dense<3>, ls::Identity>,
                     ls::Parallel<ls::Average, ls::Dense<3>, ls::Identity>,
                     ls::Parallel<ls::Average, ls::Conv2D<3, 1>, ls::Identity, ls::Tanh>,
                     ls::Parallel<ls::ConcatenateOn<1>, ls::Identity, ls::Conv2D<3, 1>, ls::Tanh>,
                     ls::Parallel<ls::ConcatenateOn<-2>, ls::Dense<3>, ls::Identity>,
                     ls::Parallel<ls::Add, ls::Identity, ls::Tanh, ls::Dense<3>>,
                     ls::Parallel<ls::Multiply, ls::Identity, ls::Tanh, ls::Conv2D<3, 1>>,
                     ls::Flatten, ls::Parallel<ls::Average, ls::Dense<4>, ls::Dense<4>>> {};
struct Dots
    : ls::Sequential<
          ls::Input<5, 4, 3>,
          ls::Parallel<ls::Dot<ls::axes(2, 1)>,
                       ls::Sequential<ls::Conv2D<3, 2>, ls::Reshape<ls::shape(4, 9)>>,
                       ls::Sequential<ls::Flatten, ls::Dense<18>, ls::Reshape<ls::shape(9, 2)>>>,
          ls::Parallel<ls::Dot<-1, ls::normalize>, ls::Identity, ls::Dense<2>>,
          ls::Parallel<ls::Dot<ls::axes(1, 2)>, ls::Identity, ls::Tanh>, ls::Flatten,
          ls::Parallel<ls::Dot<1, ls::normalize>, ls::Dense<4>, ls::Dense<4>>> {};
struct TrainingOnly
    : ls::Sequential<ls::Input<7, 9, 3>, ls::Dropout<0.5>, ls::SpatialDropout2D<ls::rate(0.3f)>,
                     ls::GaussianNoise<0.2>, ls::RandomFlip<>,
                     ls::RandomRotation<ls::factor(0.1), ls::nearest>,
                     ls::RandomTranslation<ls::factor(0.1), ls::factor(0, 0.2), ls::fill_wrap>,
                     ls::RandomZoom<ls::factor(0.2), ls::factor(-0.5, 0.1)>,
                     ls::RandomZoom<ls::factor(0.2), ls::nearest>,
                     ls::RandomContrast<ls::factor(0.2)>,
                     ls::RandomBrightness<ls::factor(0.2), ls::value_range(-1, 1)>,
                     ls::RandomCutout<3>, ls::RandomCrop<4, 6>, ls::RandomCrop<9, 5>> {};
struct Words : ls::Sequential<ls::Input<5>, ls::Embedding<20, 8>, ls::Conv1D<4, 2>,
                              ls::GlobalAveragePooling1D, ls::Dense<3>> {};
struct Nothing : ls::Sequential<ls::Input<4>, ls::Dropout<0.5>> {};

// Options that meet in one layer, and layers after others that change the order of the axes in ONNX.
struct StridedDilation  // not in Keras, which has strides or dilation, not both
    : ls::Sequential<ls::Input<13, 12, 3>, ls::Conv2D<4, 3, same, strides(2), ls::dilation(1, 2)>,
                     ls::DepthwiseConv2D<2, strides(1, 2), ls::dilation(2, 1)>,
                     ls::SeparableConv2D<4, 2, same, strides(2), ls::dilation(2)>,
                     ls::Reshape<ls::shape(-1, 4)>, ls::Conv1D<3, 2, strides(2), ls::dilation(2)>> {
};
struct Uneven
    : ls::Sequential<
          ls::Input<13, 11, 3>, ls::MaxPooling2D<2, strides(3, 1), same>,
          ls::AveragePooling2D<ls::kernel(2, 4), strides(3, 2), same>,
          ls::Conv2DTranspose<4, ls::kernel(3, 2), same, strides(2, 1), ls::use_bias(false)>,
          ls::Conv2DTranspose<3, ls::kernel(2, 3), ls::dilation(2, 3), ls::relu>,
          ls::Conv2DTranspose<2, 4, same, strides(3), ls::output_padding(1, 2)>,
          ls::ZeroPadding2D<ls::edges(1, 0, 0, 2)>, ls::AveragePooling2D<3, strides(4)>> {};
struct FirstAndLast
    : ls::Sequential<
          ls::Input<8, 7, 3>, ls::Conv2D<4, 2, ls::softmax>, ls::Normalization,
          ls::Rescaling<ls::factor(2), ls::offset(0.5)>, ls::ZeroPadding2D<ls::edges(0, 1, 2, 3)>,
          ls::LogSoftmax, ls::LayerNormalization<>, ls::Conv2D<4, 1, ls::log_softmax>,
          ls::Parallel<ls::Concatenate, ls::Identity, ls::BatchNormalization<>, ls::Dense<2>>,
          ls::UpSampling2D<ls::size(1, 3), ls::bilinear>, ls::Dense<4>, ls::RandomCrop<3, 5>,
          ls::GlobalMaxPooling2D, ls::BatchNormalization<>, ls::Normalization,
          ls::Parallel<ls::Add, ls::Identity, ls::Identity>,
          ls::Parallel<ls::Concatenate, ls::BatchNormalization<>, ls::Identity>, ls::Softmax,
          ls::Reshape<ls::shape(4, 2)>, ls::Conv1D<3, 2, ls::softmax>, ls::Normalization,
          ls::LayerNormalization<>, ls::Conv1D<4, 2>, ls::LogSoftmax, ls::BatchNormalization<>,
          ls::Flatten> {};
struct FourAxes : ls::Sequential<ls::Input<2, 3, 4, 2>, ls::Normalization, ls::Dense<5, ls::gelu>,
                                 ls::BatchNormalization<>, ls::LayerNormalization<>,
                                 ls::Residual<ls::Softmax>, ls::BatchNormalization<>, ls::Softmax,
                                 ls::Parallel<ls::Concatenate, ls::Identity, ls::Tanh>> {};

// Names that are attributes in Python, or have dots and slashes.
struct Type : ls::Dense<4> {
  static constexpr std::string_view name = "type";
};
struct Dotted : ls::Dense<3, ls::relu> {
  static constexpr std::string_view name = "block.1/head";
};
struct Names : ls::Sequential<ls::Input<4>, Type, Dotted, Type> {};

// Named blocks within one another, whose layers need either order of the axes in ONNX.
struct Inner : ls::Residual<ls::Sequential<ls::Conv2D<4, 3, same, ls::relu>, ls::Dense<4>>> {
  static constexpr std::string_view name = "inner";
};
struct Encoder
    : ls::Sequential<ls::Conv2D<4, 3, strides(2)>, ls::Repeat<2, Inner>, ls::BatchNormalization<>> {
  static constexpr std::string_view name = "encoder";
};
struct Decoder : ls::Sequential<ls::Input<3, 3, 4>, ls::Conv2DTranspose<4, 3, strides(2)>,
                                ls::Recompute<Inner>, ls::Conv2D<2, 1, ls::sigmoid>> {
  static constexpr std::string_view name = "block.decoder";
};
struct NamedBlocks
    : ls::Sequential<ls::Input<7, 7, 2>, ls::Conv2D<2, 1>, Encoder, Decoder, ls::Conv2D<2, 1>> {};
// The Keras model that export_slow.py builds of models within a model.
struct Head : ls::Sequential<ls::Dense<4>, ls::Dense<3, ls::relu>> {
  static constexpr std::string_view name = "head";
};
struct Trunk : ls::Sequential<ls::Dense<5, ls::relu>, ls::BatchNormalization<>, Head> {
  static constexpr std::string_view name = "trunk";
};
struct Nested : ls::Sequential<ls::Input<6>, ls::Dense<6>, Trunk, ls::Dense<2>> {};

// A graph: inputs and outputs with names, calls of shared layers, tied matrices, graphs as blocks.
struct Pair : ls::Graph<ls::In<"p", 2>, ls::In<"q", 2>, ls::Out<"sum", ls::From<"p", "q">, ls::Add>,
                        ls::Out<"product", ls::From<"p", "q">, ls::Multiply>> {};
using Coder =
    ls::Shared<"code_twice", ls::Sequential<ls::Shared<"coder", ls::Dense<3, ls::no_bias>>,
                                            ls::Tanh, ls::TiedDense<"coder">>>;
using Steps = ls::Shared<"steps", ls::Conv1D<2, 2, same, strides(2)>>;  // 3 steps need padding
struct Graph
    : ls::Graph<ls::In<"numbers", 2>, ls::In<"words", ls::Integers<3>>,
                ls::Let<"n", ls::From<"numbers">, ls::Shared<"mix", ls::Dense<2, ls::tanh>>,
                        ls::Shared<"mix", ls::Dense<2, ls::tanh>>>,
                ls::Let<"w", ls::From<"words">, ls::Shared<"tokens", ls::Embedding<20, 2>>>,
                ls::Let<"mean", ls::From<"w">, ls::GlobalAveragePooling1D>,
                ls::Let<"pair", ls::From<"n", "mean">, Pair>,
                ls::Let<"row", ls::From<"pair/sum", "pair/product">, ls::Concatenate, Pair>,
                ls::Out<"code", ls::From<"row">, Coder, Coder>,
                ls::Out<"two", ls::From<"row">, ls::Reshape<ls::shape(2, 2)>, Steps>,
                ls::Out<"three", ls::From<"w">, Steps>,
                ls::Out<"logits", ls::From<"w">, ls::TiedDense<"tokens">>> {};

using Attends = ls::Shared<"attends", ls::MultiHeadAttention<2, 3, ls::causal>>;
struct CrossAttention
    : ls::Graph<ls::In<"query", 4, 3>, ls::In<"value", 5, 3>, ls::In<"key", 5, 4>,
                ls::In<"pairs", 4, 5>, ls::Let<"allowed", ls::From<"pairs">, ls::ReLU>,
                ls::Out<"allowed_two", ls::From<"query", "value", "allowed">,
                        ls::MultiHeadAttention<2, 3, ls::causal, ls::attention_mask>>,
                ls::Out<"allowed_three", ls::From<"query", "value", "key", "allowed">,
                        ls::GroupedQueryAttention<2, 1, 3, ls::attention_mask>>,
                ls::Out<"two", ls::From<"query", "value">, ls::MultiHeadAttention<2, 4>>,
                ls::Out<"three", ls::From<"query", "value", "key">,
                        ls::GroupedQueryAttention<4, 2, 3, ls::sliding_window(2)>>,
                ls::Out<"twice", ls::From<"query">, Attends, Attends>> {};

// Whole models.
struct MnistCnn
    : ls::Sequential<ls::Input<28, 28, 1>, ls::Conv2D<32, 3>, ls::ReLU, ls::MaxPooling2D<>,
                     ls::Flatten, ls::Dense<64>, ls::ReLU, ls::Dense<10>> {};
struct Left : ls::Sequential<ls::DepthwiseConv2D<3, same, ls::relu>, ls::Conv2D<6, 1>,
                             ls::BatchNormalization<>> {};
struct Right : ls::Sequential<ls::MaxPooling2D<>, ls::SeparableConv2D<6, 3, same>,
                              ls::Conv2DTranspose<6, 2, strides(2), ls::relu>> {};
struct Branches
    : ls::Sequential<ls::Input<8, 8, 4>, ls::Parallel<ls::Concatenate, Left, Right, ls::Identity>,
                     ls::Residual<ls::Sequential<ls::Conv2D<16, 3, same>, ls::ReLU>>,
                     ls::Parallel<ls::Add, ls::Tanh, ls::Identity, ls::Dropout<0.5>>,
                     ls::UpSampling2D<2, ls::bilinear>, ls::GlobalAveragePooling2D,
                     ls::Dense<5, ls::softmax>> {};

/// Sets all parameters but kernels, whose initializers are random, to random numbers.
void draw_parameters(auto& model) {
  ls::Philox draws(7);
  for (const ls::ParameterInfo& p : model.parameters()) {
    if (p.name.ends_with("kernel") || p.name.ends_with("embeddings")) continue;
    const bool is_scale = p.name.ends_with("gamma") || p.name.ends_with("variance");
    std::vector<float> values(p.size());
    for (float& v : values) v = static_cast<float>(draws.uniform() + (is_scale ? 0.5 : -0.5));
    model.set_weights(p.name, values);
  }
}

constexpr std::size_t examples = 3;

std::vector<std::uint64_t> extents(const ls::Shape& s) {
  std::vector<std::uint64_t> result{examples};
  result.insert(result.end(), s.extent.begin(), s.extent.begin() + s.rank);
  return result;
}
ls::SafetensorsEntry entry(const char* name, const ls::Shape& shape,
                           const std::vector<float>& values) {
  return {name, ls::DType::float32, extents(shape), std::as_bytes(std::span(values))};
}

template <class Net>
void run(const std::string& folder, const std::string& name, bool back) {
  ls::Model model{Net{}, ls::Seed{3}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{},
                  ls::SGD{}};
  const std::string path = folder + "/" + name;
  const auto predict = [&](const std::vector<float>& x) {
    std::vector<float> y;
    const auto rows = model.predict(x);
    y.assign(rows.elements().begin(), rows.elements().end());
    return y;
  };
  if (back) {
    if (!std::filesystem::exists(path + ".back")) return;  // Keras does not have all models
    model.load_weights(path + ".back");
    const auto y = predict(ls::SafetensorsFile::read(path + ".data").values<float>("x"));
    ls::write_safetensors(path + ".again", {entry("y", Net::output_shape, y)});
    return;
  }
  draw_parameters(model);
  std::vector<float> x(examples * Net::input_shape.size());
  ls::Philox draws(11);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = name == "words" || (name == "graph" && i % 5 >= 2)
               ? static_cast<float>(draws.below(20))
               : static_cast<float>(2 * draws.uniform() - 1);
  const auto y = predict(x);
  ls::write_safetensors(path + ".data",
                        {entry("x", Net::input_shape, x), entry("y", Net::output_shape, y)});
  model.save_weights(path + ".safetensors");
  model.save_architecture(path + ".json");
  ls::export_onnx(model, path + ".onnx");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: export_models FOLDER [back]\n";
    return 2;
  }
  const std::string folder = argv[1];
  const bool back = argc > 2 && argv[2] == std::string_view("back");
  try {
    run<Conv2D>(folder, "conv2d", back);
    run<Conv1D>(folder, "conv1d", back);
    run<Recurrent>(folder, "recurrent", back);
    run<Attention>(folder, "attention", back);
    run<CrossAttention>(folder, "cross_attention", back);
    run<Groups>(folder, "groups", back);
    run<Slopes>(folder, "slopes", back);
    run<Resized>(folder, "resized", back);
    run<Transpose1D>(folder, "transpose1d", back);
    run<Depthwise>(folder, "depthwise", back);
    run<Transpose>(folder, "transpose", back);
    run<TransposePadded>(folder, "transpose_padded", back);
    run<Dense>(folder, "dense", back);
    run<Pooling2D>(folder, "pooling2d", back);
    run<Pooling1D>(folder, "pooling1d", back);
    run<GlobalPooling>(folder, "global_pooling", back);
    run<Volumes>(folder, "volumes", back);
    run<Normalizations>(folder, "normalizations", back);
    run<Activations>(folder, "activations", back);
    run<Shapes>(folder, "shapes", back);
    run<Moves>(folder, "moves", back);
    run<Merges>(folder, "merges", back);
    run<Dots>(folder, "dots", back);
    run<TrainingOnly>(folder, "training_only", back);
    run<Words>(folder, "words", back);
    run<Nothing>(folder, "nothing", back);
    run<StridedDilation>(folder, "strided_dilation", back);
    run<Uneven>(folder, "uneven", back);
    run<FirstAndLast>(folder, "first_and_last", back);
    run<FourAxes>(folder, "four_axes", back);
    run<Names>(folder, "names", back);
    run<NamedBlocks>(folder, "named_blocks", back);
    run<Nested>(folder, "nested", back);
    run<MnistCnn>(folder, "mnist_cnn", back);
    run<resnet::ResNet<3>>(folder, "resnet20", back);
    run<Branches>(folder, "branches", back);
    run<Graph>(folder, "graph", back);
  } catch (const std::exception& e) {
    std::cerr << "export_models: " << e.what() << '\n';
    return 1;
  }
}
