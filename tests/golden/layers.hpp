/// \file
/// Compares every layer with Keras' outputs and gradients, on any device.
#pragma once

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "lockstep/layers/layers.hpp"
#include "support/run_kernel.hpp"

namespace golden {

namespace ls = lockstep;

using Parameters = std::vector<ls::Parameter>;
template <class L>
Parameters parameters(const ls::Shape& in) {
  Parameters result;
  for (const ls::Parameter& p : L::parameters(in)) result.push_back(p);
  return result;
}

/// The file's tensors `prefix` + name for each weight, or for each untrained parameter,
/// concatenated as in the plan's flat buffers.
inline std::vector<double> weights(const GoldenFile& file, const Parameters& parameters,
                                   const std::string& prefix, bool trainable = true) {
  std::vector<double> flat;
  for (const ls::Parameter& p : parameters) {
    if (!p.present || p.trainable != trainable) continue;
    const std::string name = prefix + std::string(p.name);
    REQUIRE(file.values(name).size() == p.shape.size());
    const auto values = file.values(name);
    flat.insert(flat.end(), values.begin(), values.end());
  }
  return flat;
}
template <class L>
std::vector<double> weights(const GoldenFile& file, const ls::Shape& in,
                            const std::string& prefix) {
  return weights(file, parameters<L>(in), prefix);
}

/// Layer L on a device: the code that compares it is the same for all layers.
template <class D>
struct LayerRuns {
  using T = typename D::real;
  Parameters (*parameters)(const ls::Shape& in);
  ls::Shape (*out)(const ls::Shape& in);
  testing::LayerResult<T> (*run)(const ls::Shape& in, std::size_t count, const std::vector<T>& x,
                                 const std::vector<T>& w, const std::vector<T>& dy,
                                 const testing::RunOptions<T>& options);
};

template <class D>
void meets_layer(const LayerRuns<D>& layer, const std::string& name, double allowed, bool has_dx) {
  DYNAMIC_SECTION(name) {
    using T = typename D::real;
    const GoldenFile file("layer_" + name);
    const ls::Shape in = file.example_shape("x");
    const std::size_t count = file.count("x");
    const Parameters all = layer.parameters(in);
    REQUIRE(layer.out(in) == file.example_shape("y_train"));
    const auto x = testing::as<T>(file.values("x")), c = testing::as<T>(file.values("c"));
    const auto w = testing::as<T>(weights(file, all, "param/"));

    const auto state = testing::as<T>(weights(file, all, "param/", false));

    const auto run = layer.run(in, count, x, w, c, {.state = state});
    CHECK(testing::relative_error(run.y, file.values("y_train")) < allowed);
    if (has_dx) CHECK(testing::relative_error(run.dx, file.values("dx")) < allowed);
    CHECK(testing::relative_error(run.dw, weights(file, all, "d/")) < allowed);
    CHECK(testing::relative_error(run.state, weights(file, all, "after/", false)) < allowed);
    const auto infer = layer.run(in, count, x, w, {}, {.training = false, .state = state});
    CHECK(testing::relative_error(infer.y, file.values("y_infer")) < allowed);
    CHECK(infer.state == state);
  }
}

/// Compares layer L with `layer_<name>`: outputs in training and inference, dx, the gradient of
/// each weight, and the untrained parameters after training. `has_dx`: Keras' dx is the derivative.
template <class D, class L>
void meets_layer(const std::string& name, double allowed = tolerance<D>, bool has_dx = true) {
  using T = typename D::real;
  static constexpr LayerRuns<D> runs{
      parameters<L>, [](const ls::Shape& in) { return L::op(in).out(); },
      [](const ls::Shape& in, std::size_t count, const std::vector<T>& x, const std::vector<T>& w,
         const std::vector<T>& dy, const testing::RunOptions<T>& options) {
        return testing::run_layer<D>(L::op(in), count, x, w, dy, options);
      }};
  meets_layer(runs, name, allowed, has_dx);
}

/// Compares a rule that merges two values with `layer_<name>`.
template <class D, class Rule>
void meets_merge(const std::string& name) {
  DYNAMIC_SECTION(name) {
    using T = typename D::real;
    const GoldenFile file("layer_" + name);
    const ls::Shape in = file.example_shape("x");
    const auto run = testing::run_layer<D>(
        Rule::op(in, file.example_shape("x2")), file.count("x"), testing::as<T>(file.values("x")),
        {}, testing::as<T>(file.values("c")), {.x2 = testing::as<T>(file.values("x2"))});
    CHECK(testing::relative_error(run.y, file.values("y_train")) < tolerance<D>);
    CHECK(testing::relative_error(run.dx, file.values("dx")) < tolerance<D>);
    CHECK(testing::relative_error(run.dx2, file.values("dx2")) < tolerance<D>);
  }
}

/// Compares Dense and ReLU, as two kernels, with Keras' Dense with an activation.
template <class D>
void meets_dense_then_relu() {
  DYNAMIC_SECTION("dense_relu") {
    using T = typename D::real;
    using Dense = ls::Dense<5>;
    const GoldenFile file("layer_dense_relu");
    const ls::Shape in = file.example_shape("x");
    const std::size_t count = file.count("x");
    const auto x = testing::as<T>(file.values("x")), c = testing::as<T>(file.values("c"));
    const auto w = testing::as<T>(weights<Dense>(file, in, "param/"));

    const auto dense = testing::run_layer<D>(Dense::op(in), count, x, w, c, {.training = false});
    const auto relu = testing::run_layer<D>(ls::ReLUOp{ls::shape(5)}, count, dense.y, {}, c);
    const auto back = testing::run_layer<D>(Dense::op(in), count, x, w, relu.dx);
    CHECK(testing::relative_error(relu.y, file.values("y_train")) < tolerance<D>);
    CHECK(testing::relative_error(back.dx, file.values("dx")) < tolerance<D>);
    CHECK(testing::relative_error(back.dw, weights<Dense>(file, in, "d/")) < tolerance<D>);
  }
}

template <class D>
void meets_volumes() {
  meets_layer<D, ls::Conv3D<4, 3>>("conv3d");
  meets_layer<D, ls::Conv3D<3, ls::kernel(2, 3, 4), ls::strides(2, 1, 3), ls::same>>(
      "conv3d_same_strides");
  meets_layer<D, ls::Conv3D<3, ls::kernel(2, 3, 2), ls::dilation(3, 1, 2), ls::no_bias>>(
      "conv3d_dilated");
  meets_layer<D, ls::Conv3D<6, ls::kernel(3, 1, 2), ls::same, ls::groups(3)>>("conv3d_groups");
  meets_layer<D, ls::Conv3D<3, 1, ls::strides(2)>>("conv3d_1x1_stride2");
  meets_layer<D, ls::Conv3D<1, 3, ls::same>>("conv3d_voxel");
  meets_layer<D, ls::MaxPooling3D<>>("max_pool3d");
  meets_layer<D, ls::MaxPooling3D<ls::kernel(2, 3, 2), ls::strides(1, 2, 3), ls::same>>(
      "max_pool3d_same");
  meets_layer<D, ls::AveragePooling3D<ls::kernel(2, 1, 3)>>("average_pool3d");
  meets_layer<D, ls::AveragePooling3D<3, ls::strides(1), ls::same>>("average_pool3d_same");
  meets_layer<D, ls::GlobalAveragePooling3D>("global_average_pool3d");
  meets_layer<D, ls::GlobalMaxPooling3D>("global_max_pool3d");
}

template <class D>
void meets_layers() {
  meets_layer<D, ls::Dense<5>>("dense");
  meets_dense_then_relu<D>();
  meets_layer<D, ls::Conv2D<6, 3>>("conv_valid_3x3");
  meets_layer<D, ls::Conv2D<6, 3, ls::same>>("conv_same_3x3");
  meets_layer<D, ls::Conv2D<4, 4, ls::same>>("conv_same_4x4");
  meets_layer<D, ls::Conv2D<5, 3, ls::same, ls::strides(2)>>("conv_same_stride2_even");
  meets_layer<D, ls::Conv2D<5, 3, ls::same, ls::strides(2)>>("conv_same_stride2_odd");
  meets_layer<D, ls::Conv2D<4, 1, ls::strides(2)>>("conv_1x1_stride2");
  meets_layer<D, ls::Conv2D<4, ls::kernel(5, 3), ls::dilation(2, 1)>>("conv_5x3_dilated");
  meets_layer<D, ls::Conv2D<4, 3, ls::no_bias>>("conv_no_bias");
  meets_layer<D, ls::Conv2D<6, ls::kernel(3, 2), ls::same, ls::groups(3)>>("conv_groups");
  meets_layer<D, ls::Conv2D<4, 3, ls::strides(2), ls::groups(2), ls::no_bias>>(
      "conv_groups_strides");
  meets_layer<D, ls::Conv1D<6, 3, ls::dilation(2), ls::groups(2)>>("conv1d_groups");
  meets_layer<D, ls::DepthwiseConv2D<3, ls::same>>("depthwise_conv");
  meets_layer<D, ls::DepthwiseConv2D<ls::kernel(3, 2), ls::strides(2), ls::same,
                                     ls::depth_multiplier(2), ls::no_bias>>("depthwise_multiplier");
  meets_layer<D, ls::DepthwiseConv2D<3, ls::dilation(2)>>("depthwise_dilated");
  meets_layer<D, ls::SeparableConv2D<5, 3, ls::same, ls::depth_multiplier(2)>>("separable");
  meets_layer<D, ls::SeparableConv2D<4, ls::kernel(3, 2), ls::strides(2), ls::no_bias>>(
      "separable_strides");
  meets_layer<D, ls::Conv2DTranspose<4, 3>>("conv_transpose");
  meets_layer<D, ls::Conv2DTranspose<4, 3, ls::strides(2), ls::same>>(
      "conv_transpose_same_stride2");
  meets_layer<D, ls::Conv2DTranspose<2, 4, ls::strides(2), ls::same, ls::no_bias>>(
      "conv_transpose_same_4x4");
  meets_layer<D, ls::Conv2DTranspose<4, ls::kernel(5, 2), ls::strides(2, 3)>>(
      "conv_transpose_strides");
  meets_layer<D, ls::Conv2DTranspose<3, ls::kernel(3, 4), ls::strides(3), ls::same,
                                     ls::output_padding(2, 1)>>("conv_transpose_output_padding");
  meets_layer<D, ls::Conv2DTranspose<3, 2, ls::strides(2), ls::output_padding(1)>>(
      "conv_transpose_valid_padding");
  meets_layer<D, ls::Conv1DTranspose<4, 3, ls::strides(2), ls::same>>("conv1d_transpose");
  meets_layer<D, ls::Conv1DTranspose<3, 4, ls::strides(3), ls::no_bias>>("conv1d_transpose_valid");
  meets_layer<D, ls::Conv1DTranspose<2, 3, ls::strides(2), ls::output_padding(0), ls::same>>(
      "conv1d_transpose_padded");
  meets_layer<D, ls::PReLU<>>("prelu");
  meets_layer<D, ls::PReLU<ls::shared_axes(1, 2)>>("prelu_channels");
  meets_layer<D, ls::PReLU<ls::shared_axes(2, 3)>>("prelu_rows");
  meets_layer<D, ls::MaxPooling2D<>>("max_pool_2x2");
  meets_layer<D, ls::MaxPooling2D<>>("max_pool_2x2_odd");
  meets_layer<D, ls::MaxPooling2D<3, ls::strides(2), ls::same>>("max_pool_3x3_stride2_same");
  meets_layer<D, ls::MaxPooling2D<>>("max_pool_ties");
  meets_layer<D, ls::AveragePooling2D<>>("average_pool_2x2");
  meets_layer<D, ls::AveragePooling2D<3, ls::strides(2), ls::same>>("average_pool_3x3_same");
  meets_layer<D, ls::GlobalAveragePooling2D>("global_average_pool");
  meets_layer<D, ls::GlobalMaxPooling2D>("global_max_pool");
  meets_layer<D, ls::ZeroPadding2D<ls::edges(1, 2, 3, 0)>>("zero_padding");
  meets_layer<D, ls::ZeroPadding1D<2, 1>>("zero_padding_1d");
  meets_layer<D, ls::Cropping1D<2, 1>>("cropping_1d");
  meets_layer<D, ls::Cropping2D<ls::edges(1, 2, 0, 3)>>("cropping_2d");
  meets_layer<D, ls::SliceAxis<2, 1, 4>>("slice_axis");
  meets_layer<D, ls::Permute<3, 1, 2>>("permute");
  meets_layer<D, ls::RepeatVector<4>>("repeat_vector");
  meets_layer<D, ls::DepthToSpace<2>>("depth_to_space");
  meets_layer<D, ls::SpaceToDepth<2>>("space_to_depth");
  meets_merge<D, ls::Multiply>("multiply");
  meets_merge<D, ls::Subtract>("subtract");
  meets_merge<D, ls::Average>("average");
  meets_merge<D, ls::Maximum>("maximum");
  meets_merge<D, ls::Minimum>("minimum");
  meets_merge<D, ls::Dot<ls::axes(2, 1)>>("dot");
  meets_merge<D, ls::Dot<-1, ls::normalize>>("dot_normalized");
  meets_merge<D, ls::Dot<1, ls::normalize>>("dot_of_vectors");
  meets_layer<D, ls::UpSampling1D<3>>("up_sampling_1d");
  meets_layer<D, ls::UpSampling2D<ls::size(2, 3)>>("up_sampling_nearest");
  meets_layer<D, ls::UpSampling2D<2, ls::bilinear>>("up_sampling_bilinear");
  meets_layer<D, ls::UpSampling2D<ls::size(4, 2), ls::bilinear>>("up_sampling_bilinear_4x2");
  // TensorFlow computes thirds and fifths in float32.
  meets_layer<D, ls::UpSampling2D<ls::size(3, 5), ls::bilinear>>("up_sampling_bilinear_3x5", 1e-6);
  meets_layer<D, ls::Resizing<8, 4>>("resizing_bilinear");
  meets_layer<D, ls::Resizing<7, 5>>("resizing_bilinear_7x5", 1e-6);
  meets_layer<D, ls::Resizing<7, 5, ls::nearest>>("resizing_nearest");
  meets_layer<D, ls::CenterCrop<4, 3>>("center_crop");
  meets_layer<D, ls::CenterCrop<6, 3>>("center_crop_small", 1e-6);
  // Keras computes the positions in float32; TensorFlow's gradient samples dy instead of scattering
  // it.
  meets_layer<D, ls::RandomZoom<ls::factor(0.35, 0.35), ls::factor(-0.4, -0.4)>>("random_zoom",
                                                                                 2e-6, false);
  meets_layer<D, ls::RandomZoom<ls::factor(-0.3, -0.3), ls::nearest>>("random_zoom_nearest",
                                                                      tolerance<D>, false);
  meets_layer<D, ls::RandomContrast<ls::factor(-0.75, 0.75), ls::value_range(-1, 1)>>(
      "random_contrast");
  meets_layer<D, ls::RandomBrightness<ls::factor(0.25, 0.25), ls::value_range(-1, 1)>>(
      "random_brightness");
  meets_layer<D, ls::LayerNormalization<>>("layer_norm");
  meets_layer<D, ls::RMSNormalization<>>("rms_norm");
  meets_layer<D, ls::GroupNormalization<3>>("group_norm");
  meets_layer<D, ls::GroupNormalization<-1, ls::center(false)>>("group_norm_instance");
  meets_layer<D, ls::BatchNormalization<>>("batch_norm");
  meets_layer<D, ls::BatchNormalization<>>("batch_norm_dense");
  meets_layer<D, ls::BatchNormalization<ls::center(false), ls::scale(false)>>(
      "batch_norm_no_scale");
  meets_layer<D, ls::BatchNormalization<ls::momentum(0.997), ls::epsilon(1e-5f)>>(
      "batch_norm_resnet");
  meets_volumes<D>();
}

/// Attention with the operands (query, value, key).
template <class D>
void meets_cross_attention() {
  DYNAMIC_SECTION("attention_cross") {
    using T = typename D::real;
    using L = ls::MultiHeadAttention<2, 4, ls::value_dim(3), ls::causal>;
    using K = ls::Kernel<ls::MultiHeadAttentionOp, D>;
    const GoldenFile file("layer_attention_cross");
    const std::size_t count = file.count("x");
    const std::array<ls::Shape, 3> in{file.example_shape("x"), file.example_shape("x2"),
                                      file.example_shape("x3")};
    const auto op = L::op(in[0], in[1], in[2]);
    const auto all = L::parameters(in[0], in[1], in[2]);
    const Parameters parameters(all.begin(), all.end());
    REQUIRE(op.weights() == weights(file, parameters, "param/").size());
    auto context = D{}.open(1, 0);
    [[maybe_unused]] const auto scope = context.scope();
    const auto values = [&](const std::string& name) { return testing::as<T>(file.values(name)); };
    using Array = testing::DeviceArray<D, T>;
    Array x(context, values("x")), x2(context, values("x2")), x3(context, values("x3")),
        dy(context, values("c")), w(context, testing::as<T>(weights(file, parameters, "param/"))),
        y(context, count * op.out().size()), dw(context, op.weights()),
        dx(context, count * in[0].size()), dx2(context, count * in[1].size()),
        dx3(context, count * in[2].size());
    auto prepared = K::prepare(op, context, count);
    testing::DeviceArray<D, std::byte> saved(context, count * K::saved(op)),
        once(context, K::saved_once(op)), scratch(context, prepared.scratch_bytes());
    testing::GroupOfOne group;
    const ls::StepContext step{ls::whole_batch(count, 0, 0), true, 1, 0, ls::CollectiveRef(group)};
    const T* const inputs[]{x.data(), x2.data(), x3.data()};
    T* const gradients[]{dx.data(), dx2.data(), dx3.data()};
    ls::Io<D> io{step,     context,      7,           inputs,         y.data(),  w.data(),
                 nullptr,  saved.data(), once.data(), scratch.data(), dy.data(), gradients,
                 dw.data()};
    K::forward(op, io, prepared);
    K::backward(op, io, prepared);
    CHECK(testing::relative_error(y.download(), file.values("y_train")) < tolerance<D>);
    CHECK(testing::relative_error(dx.download(), file.values("dx")) < tolerance<D>);
    CHECK(testing::relative_error(dx2.download(), file.values("dx2")) < tolerance<D>);
    CHECK(testing::relative_error(dx3.download(), file.values("dx3")) < tolerance<D>);
    CHECK(testing::relative_error(dw.download(), weights(file, parameters, "d/")) < tolerance<D>);
  }
}

template <class D>
void meets_attention() {
  meets_cross_attention<D>();
  meets_layer<D, ls::MultiHeadAttention<2, 4>>("attention");
  meets_layer<D, ls::MultiHeadAttention<3, 1>>("attention_one_step");
  meets_layer<D, ls::MultiHeadAttention<3, 4, ls::value_dim(2), ls::no_bias, ls::output_shape(5),
                                        ls::causal>>("attention_causal");
  meets_layer<D, ls::MultiHeadAttention<1, 4, ls::sliding_window(2)>>("attention_window");
  meets_layer<D, ls::MultiHeadAttention<2, 1, ls::value_dim(3), ls::causal, ls::sliding_window(3)>>(
      "attention_causal_window");
  meets_layer<D, ls::GroupedQueryAttention<4, 2, 4, ls::causal>>("grouped_attention");
}

template <class D>
void meets_activations() {
  meets_layer<D, ls::ReLU>("relu");
  meets_layer<D, ls::ReLU6>("relu6");
  // The slope is a float; Keras on TensorFlow, which recorded the data, rounds it and GELU's
  // 1 / sqrt(2), too. Keras on JAX and PyTorch does not.
  meets_layer<D, ls::LeakyReLU<ls::negative_slope(0.2f)>>("leaky_relu");
  meets_layer<D, ls::LeakyReLU<ls::negative_slope(0.3f)>>("leaky_relu_layer");
  meets_layer<D, ls::ELU>("elu");
  meets_layer<D, ls::GELU>("gelu", 2e-7);
  meets_layer<D, ls::SiLU>("silu");
  meets_layer<D, ls::Sigmoid>("sigmoid");
  meets_layer<D, ls::Tanh>("tanh");
  meets_layer<D, ls::Softplus>("softplus");
  meets_layer<D, ls::Softmax>("softmax");
  meets_layer<D, ls::LogSoftmax>("log_softmax");
}

}  // namespace golden
