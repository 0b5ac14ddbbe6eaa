#pragma once

#include "lockstep/onnx/layer_forms.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/functions/tape.hpp"
#include "lockstep/layers/attention/dot_product_attention.hpp"
#include "lockstep/layers/preprocessing/center_crop.hpp"
#include "lockstep/layers/preprocessing/random_crop.hpp"
#include "lockstep/layers/preprocessing/resized_image.hpp"
#include "lockstep/layers/sliding_window.hpp"

namespace lockstep::detail {

/// The values of a parameter, and its extents.
struct Weights {
  std::vector<std::int64_t> extents;
  std::vector<float> values;

  std::int64_t operator[](std::size_t axis) const { return extents[axis]; }
};

/// The same values with axis i of the result being axis order[i].
[[gnu::cold]] inline Weights transposed(const Weights& w, const std::vector<std::size_t>& order) {
  Weights result;
  std::vector<std::size_t> stride(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    result.extents.push_back(w.extents[order[i]]);
    stride[i] = 1;
    for (std::size_t axis = order[i] + 1; axis < w.extents.size(); ++axis)
      stride[i] *= static_cast<std::size_t>(w.extents[axis]);
  }
  result.values.reserve(w.values.size());
  std::vector<std::size_t> index(order.size());
  for (std::size_t n = 0; n < w.values.size(); ++n) {
    std::size_t from = 0;
    for (std::size_t i = 0; i < order.size(); ++i) from += index[i] * stride[i];
    result.values.push_back(w.values[from]);
    for (std::size_t i = order.size(); i-- > 0;) {
      if (++index[i] < static_cast<std::size_t>(result.extents[i])) break;
      index[i] = 0;
    }
  }
  return result;
}

/// Adds one layer to a graph.
class LayerForm {
 public:
  using Value = std::shared_ptr<OnnxValue>;
  using Numbers = std::vector<std::int64_t>;

  /// `first` has the parameters.
  [[gnu::cold]] LayerForm(OnnxBuilder& graph, const LayerNode& layer, const LayerNode& first,
                          const std::vector<Value>& inputs, ParameterValues values)
      : graph_(graph), layer_(layer), first_(first), inputs_(inputs), values_(values) {}

  [[gnu::cold]] Value add() {
    if (is_recurrent()) return recurrent();
    Value y = add_class();
    if (const auto* option = layer_.option("activation")) {
      const std::string& name = std::get<std::string>(*option);
      if (name == "Function") return function("activation_nodes", *y);
      const auto known = std::find_if(activation_names.begin(), activation_names.end(),
                                      [&](const ActivationName& a) { return a.name == name; });
      if (known == activation_names.end())
        throw UsageError(
            "export_onnx: layer '{}' has the activation {}, which has no form in ONNX; export a "
            "model of the library's layers",
            layer_.name, name);
      const Channels layout = y->channels();
      const std::string x = graph_.use(*y, layout);
      y = value(pointwise(known->class_name, x, layout, "activation_negative_slope"), layout);
    }
    return y;
  }

 private:
  /// Layers that do something in training only.
  static constexpr std::array<std::string_view, 10> identities{
      "Dropout",           "SpatialDropout2D", "GaussianNoise",  "RandomFlip", "RandomRotation",
      "RandomTranslation", "RandomCutout",     "RandomContrast", "RandomZoom", "RandomBrightness"};

  bool is_recurrent() const {
    const std::string_view c = layer_.class_name;
    return c == "LSTM" || c == "GRU" || c == "SimpleRNN";
  }
  [[gnu::cold]] Value add_class() {
    const std::string_view c = layer_.class_name;
    if (std::find(identities.begin(), identities.end(), c) != identities.end()) return inputs_[0];
    for (const ActivationName& a : activation_names)
      if (c == a.class_name) {
        const Channels layout = inputs_[0]->channels();
        return value(pointwise(c, in(layout), layout, "negative_slope"), layout);
      }
    if (c == "Conv1D" || c == "Conv2D" || c == "Conv3D") return convolution();
    if (c == "DepthwiseConv2D") return value(depthwise("kernel", true), Channels::first);
    if (c == "SeparableConv2D") return separable();
    if (c == "Conv1DTranspose" || c == "Conv2DTranspose") return transposed_convolution();
    if (c == "Dense") return dense();
    if (c == "MaxPooling1D" || c == "MaxPooling2D" || c == "MaxPooling3D")
      return pooling("MaxPool");
    if (c == "AveragePooling1D" || c == "AveragePooling2D" || c == "AveragePooling3D")
      return pooling("AveragePool");
    if (c == "GlobalAveragePooling1D" || c == "GlobalAveragePooling2D" ||
        c == "GlobalAveragePooling3D")
      return global_pooling("ReduceMean");
    if (c == "GlobalMaxPooling1D" || c == "GlobalMaxPooling2D" || c == "GlobalMaxPooling3D")
      return global_pooling("ReduceMax");
    if (c == "BatchNormalization") return batch_normalization();
    if (c == "LayerNormalization") return layer_normalization();
    if (c == "RMSNormalization") return rms_normalization();
    if (c == "GroupNormalization") return group_normalization();
    if (c == "Normalization") return normalization();
    if (c == "Rescaling") return rescaling();
    if (c == "Embedding") return embedding();
    if (c == "PositionEmbedding") return position_embedding();
    if (c == "MultiHeadAttention" || c == "GroupedQueryAttention") return attention();
    if (c == "TiedDense") return tied_dense();
    if (c == "InputLayer") return row_part();
    if (c == "PReLU") return prelu();
    if (c == "Flatten" || c == "Reshape") return reshape();
    if (c == "UpSampling1D" || c == "UpSampling2D") return up_sampling();
    if (c == "ZeroPadding1D" || c == "ZeroPadding2D") return zero_padding();
    if (c == "Cropping1D" || c == "Cropping2D") return cropping();
    if (c == "SliceAxis") return slice_axis();
    if (c == "Permute") return permute();
    if (c == "RepeatVector") return repeat_vector();
    if (c == "DepthToSpace" || c == "SpaceToDepth") return blocks();
    if (c == "CenterCrop") {
      const Shape& to = layer_.output_shape;
      return part(CenterCropOp{in_shape(), to[0], to[1]}.window());
    }
    if (c == "RandomCrop") {
      const Shape& to = layer_.output_shape;
      return part(RandomCropOp{in_shape(), to[0], to[1]}.middle());
    }
    if (c == "Resizing") return resizing();
    if (c == "Dot") return dot();
    if (c == "Function") return function("nodes", *inputs_[0]);
    if (const std::string_view op = merging_op(c, inputs_.size() == 2); !op.empty())
      return merge(op);
    throw UsageError(
        "export_onnx: layer '{}' is a {}, which has no form in ONNX; export a model of the "
        "library's layers",
        layer_.name, layer_.class_name);
  }

  // Options and parameters of the layer.

  [[gnu::cold]] const Numbers& numbers(std::string_view name) const {
    return std::get<Numbers>(*layer_.option(name));
  }
  [[gnu::cold]] std::int64_t whole(std::string_view name) const {
    return std::get<std::int64_t>(*layer_.option(name));
  }
  [[gnu::cold]] float number(std::string_view name) const {
    const LayerOption::Value& v = *layer_.option(name);
    const auto* whole = std::get_if<std::int64_t>(&v);
    return whole ? static_cast<float>(*whole) : static_cast<float>(std::get<double>(v));
  }
  /// A parameter; empty if an option such as use_bias(false) omits it.
  [[gnu::cold]] Weights weights(std::string_view name) const {
    const std::string whole = first_.name + "/" + std::string(name);
    for (const LayerParameter& p : first_.parameters)
      if (p.name == whole)
        return {Numbers(p.shape.extent.begin(), p.shape.extent.begin() + p.shape.rank),
                values_(whole)};
    return {};
  }
  /// \throws UsageError if the layer does not have the parameter.
  [[gnu::cold]] Weights required(std::string_view name) const {
    Weights w = weights(name);
    if (w.values.empty())
      throw UsageError(
          "export_onnx: layer '{}' has no parameter {}, although its op is that of {}; export a "
          "model of the library's layers",
          layer_.name, name, layer_.class_name);
    return w;
  }
  [[gnu::cold]] std::string constant(std::string_view name, const Weights& w) {
    return graph_.constant(first_.name + "/" + std::string(name), w.extents, w.values);
  }

  // Values.

  [[gnu::cold]] std::string in(Channels layout, std::size_t i = 0) {
    return graph_.use(*inputs_[i], layout);
  }
  const Shape& in_shape() const { return inputs_[0]->shape(); }
  [[gnu::cold]] Value value(std::string name, Channels layout) const {
    return std::make_shared<OnnxValue>(std::move(name), layer_.output_shape, layout);
  }
  [[gnu::cold]] std::string node(std::string_view op, std::vector<std::string> inputs,
                                 std::initializer_list<OnnxAttribute> attributes = {}) {
    return graph_.add(op, layer_.name, std::move(inputs), attributes);
  }
  /// The axis of the channels.
  std::int64_t channel_axis(Channels layout) const {
    return layout == Channels::first ? 1 : in_shape().rank;
  }
  /// A constant with one number per channel, to be combined with a value of this form.
  [[gnu::cold]] std::string per_channel(std::string_view name, Weights w, Channels layout) {
    if (layout == Channels::first)
      w.extents.insert(w.extents.end(), static_cast<std::size_t>(in_shape().rank - 1), 1);
    return constant(name, w);
  }

  // Layers.

  [[gnu::cold]] std::string pointwise(std::string_view class_name, const std::string& x,
                                      Channels layout, std::string_view slope) {
    if (class_name == "ELU") return node("Elu", {x});
    if (class_name == "ReLU") return node("Relu", {x});
    if (class_name == "Sigmoid") return node("Sigmoid", {x});
    if (class_name == "Softplus") return node("Softplus", {x});
    if (class_name == "Tanh") return node("Tanh", {x});
    if (class_name == "LeakyReLU") return node("LeakyRelu", {x}, {{"alpha", number(slope)}});
    if (class_name == "ReLU6")
      return node("Clip", {x, graph_.constant(layer_.name + "/min", 0.0f),
                           graph_.constant(layer_.name + "/max", 6.0f)});
    if (class_name == "SiLU") return node("Mul", {x, node("Sigmoid", {x})});
    if (class_name == "GELU") {
      const std::string scaled =
          node("Mul", {x, graph_.constant(layer_.name + "/inverse_sqrt2", 0.70710678f)});
      const std::string one = graph_.constant(layer_.name + "/one", 1.0f);
      const std::string twice = node("Mul", {x, node("Add", {node("Erf", {scaled}), one})});
      return node("Mul", {twice, graph_.constant(layer_.name + "/half", 0.5f)});
    }
    const std::int64_t axis = layout == Channels::first ? 1 : -1;
    if (class_name == "Softmax" || class_name == "LogSoftmax")
      return node(class_name, {x}, {{"axis", axis}});
    throw UsageError("export_onnx: layer '{}': the activation {} has no form in ONNX", layer_.name,
                     class_name);
  }

  /// The windows of the layer along the axes of an image, or the steps.
  [[gnu::cold]] std::vector<Window> windows(std::string_view size) const {
    std::vector<Window> result;
    const Numbers* dilation = nullptr;
    if (const auto* option = layer_.option("dilation_rate")) dilation = &std::get<Numbers>(*option);
    for (std::size_t i = 0; i < numbers(size).size(); ++i)
      result.push_back({in_shape()[static_cast<int>(i)], static_cast<int>(numbers(size)[i]),
                        static_cast<int>(numbers("strides")[i]),
                        dilation ? static_cast<int>((*dilation)[i]) : 1, padding()});
    return result;
  }
  [[gnu::cold]] Padding padding() const {
    return std::get<std::string>(*layer_.option("padding")) == "same" ? Padding::same
                                                                      : Padding::valid;
  }
  /// ONNX' attribute `pads`: all beginnings, then all ends.
  [[gnu::cold]] static Numbers pads(const std::vector<Window>& windows) {
    Numbers result;
    for (const Window& w : windows) result.push_back(w.before());
    for (const Window& w : windows) result.push_back(w.after());
    return result;
  }

  /// A convolution of channels-first x; `w` has ONNX' layout.
  [[gnu::cold]] std::string conv(const std::string& x, const std::string& kernel, const Weights& w,
                                 const std::vector<Window>& at, std::int64_t groups,
                                 bool has_bias) {
    std::vector<std::string> inputs{x, constant(kernel, w)};
    if (const Weights bias = weights("bias"); has_bias && !bias.values.empty())
      inputs.push_back(constant("bias", bias));
    Numbers extents(w.extents.begin() + 2, w.extents.end()), strides, dilations;
    for (const Window& window : at) {
      strides.push_back(window.stride);
      dilations.push_back(window.dilation);
    }
    return node("Conv", std::move(inputs),
                {{"kernel_shape", extents},
                 {"strides", strides},
                 {"dilations", dilations},
                 {"pads", pads(at)},
                 {"group", groups}});
  }
  [[gnu::cold]] Value convolution() {
    const Weights kernel = required("kernel");  // (.., in, out)
    const std::size_t axes = kernel.extents.size() - 2;
    std::vector<std::size_t> order{axes + 1, axes};
    for (std::size_t i = 0; i < axes; ++i) order.push_back(i);
    const auto* given = layer_.option("groups");
    const std::int64_t groups = given != nullptr ? std::get<std::int64_t>(*given) : 1;
    return value(conv(in(Channels::first), "kernel", transposed(kernel, order),
                      windows("kernel_size"), groups, true),
                 Channels::first);
  }
  /// The convolution of each channel on its own.
  [[gnu::cold]] std::string depthwise(const char* name, bool has_bias) {
    const Weights kernel = required(name);  // (height, width, channels, multiplier)
    Weights w = transposed(kernel, {2, 3, 0, 1});
    const std::int64_t channels = kernel[2];
    w.extents = {channels * kernel[3], 1, kernel[0], kernel[1]};
    return conv(in(Channels::first), name, w, windows("kernel_size"), channels, has_bias);
  }
  [[gnu::cold]] Value separable() {
    const std::string x = depthwise("depthwise_kernel", false);
    const Weights w = transposed(required("pointwise_kernel"), {3, 2, 0, 1});
    return value(conv(x, "pointwise_kernel", w, {Window{}, Window{}}, 1, true), Channels::first);
  }
  [[gnu::cold]] Value transposed_convolution() {
    // The window of the convolution whose gradient this is moves over the output.
    std::vector<Window> at = windows("kernel_size");
    Numbers strides, dilations, extents, output_padding;
    for (std::size_t i = 0; i < at.size(); ++i) {
      Window& w = at[i];
      const int in = w.in;
      w.in = layer_.output_shape[static_cast<int>(i)];
      strides.push_back(w.stride);
      dilations.push_back(w.dilation);
      extents.push_back(w.kernel);
      output_padding.push_back(w.in + w.before() + w.after() - (in - 1) * w.stride - w.extent());
    }
    std::vector<std::size_t> order{at.size() + 1, at.size()};  // of (.., out, in)
    for (std::size_t i = 0; i < at.size(); ++i) order.push_back(i);
    const Weights w = transposed(required("kernel"), order);
    std::vector<std::string> inputs{in(Channels::first), constant("kernel", w)};
    if (const Weights bias = weights("bias"); !bias.values.empty())
      inputs.push_back(constant("bias", bias));
    return value(node("ConvTranspose", std::move(inputs),
                      {{"kernel_shape", extents},
                       {"strides", strides},
                       {"dilations", dilations},
                       {"pads", pads(at)},
                       {"output_padding", output_padding}}),
                 Channels::first);
  }
  [[gnu::cold]] Value dense() {
    std::string y = node("MatMul", {in(Channels::last), constant("kernel", required("kernel"))});
    if (const Weights bias = weights("bias"); !bias.values.empty())
      y = node("Add", {y, constant("bias", bias)});
    return value(y, Channels::last);
  }

  [[gnu::cold]] Value pooling(std::string_view op) {
    const std::vector<Window> at = windows("pool_size");
    return value(node(op, {in(Channels::first)},
                      {{"kernel_shape", numbers("pool_size")},
                       {"strides", numbers("strides")},
                       {"pads", pads(at)}}),
                 Channels::first);
  }
  [[gnu::cold]] Value global_pooling(std::string_view op) {
    const Channels layout = inputs_[0]->channels();
    Numbers axes;
    for (int axis = 1; axis < in_shape().rank; ++axis)
      axes.push_back(axis + (layout == Channels::first));
    return value(node(op, {in(layout), graph_.constant(layer_.name + "/axes", axes)},
                      {{"keepdims", std::int64_t{0}}}),
                 Channels::last);
  }

  [[gnu::cold]] Value batch_normalization() {
    const std::size_t channels = static_cast<std::size_t>(in_shape().channels());
    const auto or_else = [&](const char* name, float otherwise) {
      Weights w = weights(name);
      if (w.values.empty())
        w = {{static_cast<std::int64_t>(channels)}, std::vector<float>(channels, otherwise)};
      return constant(name, w);
    };
    const std::string gamma = or_else("gamma", 1), beta = or_else("beta", 0);
    const std::string mean = or_else("moving_mean", 0), variance = or_else("moving_variance", 1);
    return value(node("BatchNormalization", {in(Channels::first), gamma, beta, mean, variance},
                      {{"epsilon", number("epsilon")}}),
                 Channels::first);
  }
  [[gnu::cold]] Value layer_normalization() {
    const std::size_t channels = static_cast<std::size_t>(in_shape().channels());
    Weights gamma = weights("gamma");
    if (gamma.values.empty())
      gamma = {{static_cast<std::int64_t>(channels)}, std::vector<float>(channels, 1)};
    std::vector<std::string> inputs{in(Channels::last), constant("gamma", gamma)};
    if (const Weights beta = weights("beta"); !beta.values.empty())
      inputs.push_back(constant("beta", beta));
    return value(node("LayerNormalization", std::move(inputs),
                      {{"axis", std::int64_t{-1}}, {"epsilon", number("epsilon")}}),
                 Channels::last);
  }
  [[gnu::cold]] Value rms_normalization() {
    const std::string x = in(Channels::last);
    const std::string mean = node("ReduceMean", {node("Mul", {x, x}), list("axes", {-1})});
    const std::string epsilon = graph_.constant(layer_.name + "/epsilon", number("epsilon"));
    const std::string root = node("Sqrt", {node("Add", {mean, epsilon})});
    return value(node("Mul", {node("Div", {x, root}), constant("scale", required("scale"))}),
                 Channels::last);
  }
  /// Each group as a channel of an instance normalization.
  [[gnu::cold]] Value group_normalization() {
    const std::int64_t groups = whole("groups");
    const auto each = [&](const char* name, float v) {
      return graph_.constant(layer_.name + "/" + name, Numbers{groups},
                             std::vector<float>(static_cast<std::size_t>(groups), v));
    };
    const Shape& to = layer_.output_shape;
    Numbers extents{0, to.channels()};
    extents.insert(extents.end(), to.extent.begin(), to.extent.begin() + to.rank - 1);
    const std::string blocks =
        node("Reshape", {in(Channels::first), list("blocks", {0, groups, -1})});
    std::string y = node("InstanceNormalization", {blocks, each("ones", 1), each("zeros", 0)},
                         {{"epsilon", number("epsilon")}});
    y = node("Reshape", {y, list("shape", extents)});
    for (const auto& [name, op] : {std::pair{"gamma", "Mul"}, std::pair{"beta", "Add"}})
      if (Weights w = weights(name); !w.values.empty())
        y = node(op, {y, per_channel(name, std::move(w), Channels::first)});
    return value(y, Channels::first);
  }
  [[gnu::cold]] Value normalization() {
    const Channels layout = inputs_[0]->channels();
    Weights deviation = required("variance");
    for (float& v : deviation.values) v = std::max(std::sqrt(v), 1e-7f);
    const std::string centered =
        node("Sub", {in(layout), per_channel("mean", required("mean"), layout)});
    return value(node("Div", {centered, per_channel("deviation", deviation, layout)}), layout);
  }

  [[gnu::cold]] Value rescaling() {
    const Channels layout = inputs_[0]->channels();
    const std::string scale = graph_.constant(layer_.name + "/scale", number("scale"));
    const std::string offset = graph_.constant(layer_.name + "/offset", number("offset"));
    return value(node("Add", {node("Mul", {in(layout), scale}), offset}), layout);
  }
  [[gnu::cold]] Value embedding() {
    const std::string index =
        node("Cast", {in(Channels::last)}, {{"to", std::int64_t{7}}});  // int64
    return value(node("Gather", {constant("embeddings", required("embeddings")), index},
                      {{"axis", std::int64_t{0}}}),
                 Channels::last);
  }
  [[gnu::cold]] Value position_embedding() {
    Weights w = required("embeddings");
    w.extents[0] = in_shape()[0];
    w.values.resize(in_shape().size());
    return value(node("Add", {in(Channels::last), constant("embeddings", w)}), Channels::last);
  }

  /// The product of x and a kernel of an attention layer, as a matrix with `columns`, and its bias.
  [[gnu::cold]] std::string projected(const std::string& name, const std::string& x,
                                      std::int64_t columns) {
    Weights w = required(name + "/kernel");
    w.extents = {static_cast<std::int64_t>(w.values.size()) / columns, columns};
    const std::string y = node("MatMul", {x, constant(name + "/kernel", w)});
    Weights bias = weights(name + "/bias");
    bias.extents = {columns};
    return bias.values.empty() ? y : node("Add", {y, constant(name + "/bias", bias)});
  }
  /// x (n, steps, heads * size) with rotary positions, in parts of a head.
  [[gnu::cold]] std::string turned(const std::string& x, std::int64_t steps, std::int64_t heads,
                                   std::int64_t size) {
    const bool pairs = std::get<bool>(*layer_.option("pairs"));
    const std::int64_t axis = pairs ? 4 : 3, half = size / 2;
    Weights cosine{pairs ? Numbers{steps, 1, half, 1} : Numbers{steps, 1, 1, half}, {}},
        sine{cosine};
    for (std::int64_t s = 0; s < steps; ++s)
      for (std::int64_t i = 0; i < half; ++i) {
        const double frequency =
            std::pow(static_cast<double>(number("max_wavelength")),
                     -2.0 * static_cast<double>(i) / static_cast<double>(size));
        const double angle = static_cast<double>(s) / number("scaling_factor") * frequency;
        cosine.values.push_back(static_cast<float>(std::cos(angle)));
        sine.values.push_back(static_cast<float>(std::sin(angle)));
      }
    const std::string c = constant("cosine", cosine), s = constant("sine", sine),
                      parts = node("Reshape",
                                   {x, list("parts", pairs ? Numbers{0, steps, heads, half, 2}
                                                           : Numbers{0, steps, heads, 2, half})});
    const auto part = [&](std::int64_t i) {
      return node("Slice", {parts, list("begin", {i}), list("end", {i + 1}), list("axis", {axis})});
    };
    const std::string a = part(0), b = part(1);
    return node("Concat",
                {node("Sub", {node("Mul", {a, c}), node("Mul", {b, s})}),
                 node("Add", {node("Mul", {b, c}), node("Mul", {a, s})})},
                {{"axis", axis}});
  }
  /// Queries, keys or values of the heads, with the axes n, steps, groups, heads of a group, size in
  /// this order.
  [[gnu::cold]] std::string heads(const std::string& name, std::size_t operand, std::int64_t groups,
                                  const Numbers& order) {
    const Weights kernel = required(name + "/kernel");  // (features, heads, size)
    const std::int64_t steps = inputs_[operand]->shape()[0], count = kernel[1], size = kernel[2];
    std::string y = projected(name, in(Channels::last, operand), count * size);
    if (name != "value" && number("max_wavelength") > 0) y = turned(y, steps, count, size);
    y = node("Reshape", {y, list("heads", {0, steps, groups, count / groups, size})});
    return node("Transpose", {y}, {{"perm", order}});
  }
  /// MultiHeadAttention and GroupedQueryAttention.
  [[gnu::cold]] Value attention() {
    const bool has_mask = layer_.option("attention_mask") != nullptr;
    const std::size_t operands = inputs_.size() - (has_mask ? 1 : 0),
                      value_operand = operands > 1 ? 1 : 0, key_operand = operands - 1;
    const int queries = in_shape()[0], keys = inputs_[key_operand]->shape()[0];
    const std::int64_t groups = required("key/kernel")[1];
    const Weights output = required("attention_output/kernel");  // (heads, size, features)
    const std::string q = heads("query", 0, groups, {0, 2, 3, 1, 4}),
                      k = heads("key", key_operand, groups, {0, 2, 3, 4, 1}),
                      v = heads("value", value_operand, groups, {0, 2, 3, 1, 4});
    const float scale = 1 / std::sqrt(static_cast<float>(required("query/kernel")[2]));
    std::string p =
        node("Mul", {node("MatMul", {q, k}), graph_.constant(layer_.name + "/scale", scale)});
    DotProductAttentionOp op;
    op.queries = queries;
    op.keys = keys;
    op.rules.causal = std::get<bool>(*layer_.option("use_causal_mask"));
    op.rules.window = static_cast<int>(whole("sliding_window"));
    Weights excluded{{queries, keys}, {}}, has_keys{{queries, 1}, {}};
    for (int i = 0; i < queries; ++i) {
      const auto [first, last] = op.keys_of(i);
      for (int j = 0; j < keys; ++j)
        excluded.values.push_back(first <= j && j < last ? 0.0f : -1e9f);
      has_keys.values.push_back(first < last ? 1.0f : 0.0f);
    }
    if (op.rules.causal || op.rules.window > 0)
      p = node("Add", {p, constant("excluded", excluded)});
    if (has_mask) {
      // Pairs that one of the masks excludes: among all scores, and 0 among the probabilities.
      for (float& each : excluded.values) each = each == 0.0f ? 1.0f : 0.0f;
      const std::string pairs = node("Reshape", {in(Channels::last, operands),
                                                 list("pairs", {0, 1, 1, queries, keys})}),
                        counts = node("Abs", {node("Sign", {pairs})});
      const std::string allowed = node("Mul", {counts, constant("allowed", excluded)});
      p = node("Add", {p, node("Mul", {node("Sub", {allowed, constant("one", {{1}, {1.0f}})}),
                                       constant("far", {{1}, {1e9f}})})});
      p = node("Mul", {node("Softmax", {p}, {{"axis", std::int64_t{-1}}}), allowed});
    } else {
      p = node("Softmax", {p}, {{"axis", std::int64_t{-1}}});
    }
    if (!has_mask && std::count(has_keys.values.begin(), has_keys.values.end(), 0.0f) > 0)
      p = node("Mul", {p, constant("has_keys", has_keys)});
    const std::string o =
        node("Transpose", {node("MatMul", {p, v})}, {{"perm", Numbers{0, 3, 1, 2, 4}}});
    const std::string rows =
        node("Reshape", {o, list("rows", {0, queries, output[0] * output[1]})});
    return value(projected("attention_output", rows, output[2]), Channels::last);
  }
  [[gnu::cold]] Value tied_dense() {
    const std::string name = first_.parameters.front().name.substr(first_.name.size() + 1);
    const std::string matrix =
        node("Transpose", {constant(name, required(name))}, {{"perm", Numbers{1, 0}}});
    return value(node("MatMul", {in(Channels::last), matrix}), Channels::last);
  }
  /// A part of a row within the model.
  [[gnu::cold]] Value row_part() {
    const std::int64_t begin = whole("offset");
    const Shape& to = layer_.output_shape;
    const std::string x = node(
        "Slice", {in(Channels::last), list("begin", {begin}),
                  list("end", {begin + static_cast<std::int64_t>(to.size())}), list("axis", {1})});
    Numbers extents{0};
    extents.insert(extents.end(), to.extent.begin(), to.extent.begin() + to.rank);
    return value(node("Reshape", {x, list("shape", extents)}), Channels::last);
  }
  [[gnu::cold]] Value prelu() {
    const Channels layout = inputs_[0]->channels();
    Weights alpha = required("alpha");
    if (layout == Channels::first) {
      std::vector<std::size_t> order{alpha.extents.size() - 1};
      for (std::size_t axis = 0; axis + 1 < alpha.extents.size(); ++axis) order.push_back(axis);
      alpha = transposed(alpha, order);
    }
    return value(node("PRelu", {in(layout), constant("alpha", alpha)}), layout);
  }
  [[gnu::cold]] Value reshape() {
    const Shape& to = layer_.output_shape;
    Numbers extents{0};  // as in the input: the batch
    extents.insert(extents.end(), to.extent.begin(), to.extent.begin() + to.rank);
    return value(
        node("Reshape", {in(Channels::last), graph_.constant(layer_.name + "/shape", extents)}),
        Channels::last);
  }

  /// The factor whose product with `from` is at least `to`: Resize rounds the extent down.
  static float factor(int from, int to) {
    const float nearest = static_cast<float>(to) / static_cast<float>(from);
    return static_cast<double>(nearest) * from < to  // readers multiply in float or in double
               ? std::nextafter(nearest, 2 * nearest)
               : nearest;
  }
  /// Resizes a channels-first image; `nearest` reads input pixel i / factor, or with `centers` that
  /// at the center of pixel i. Not by sizes, which onnxruntime's optimizer confuses when it moves a
  /// Transpose.
  [[gnu::cold]] std::string resize(const std::string& x, bool nearest, int height, int width,
                                   const Shape& to) {
    return resize(x, nearest, {1, 1, factor(height, to[0]), factor(width, to[1])});
  }
  [[gnu::cold]] std::string resize(const std::string& x, bool nearest,
                                   const std::vector<float>& factors) {
    const std::array<std::int64_t, 1> count{static_cast<std::int64_t>(factors.size())};
    const std::string scales = graph_.constant(layer_.name + "/scales", count, factors);
    const std::string_view coordinates = nearest ? "asymmetric" : "half_pixel";
    const std::string_view mode = nearest ? "nearest" : "linear", rounding = "floor";
    return node("Resize", {x, "", scales},
                {{"mode", mode},
                 {"coordinate_transformation_mode", coordinates},
                 {"nearest_mode", rounding}});
  }
  [[gnu::cold]] Value up_sampling() {
    const bool nearest = std::get<std::string>(*layer_.option("interpolation")) == "nearest";
    std::vector<float> factors{1, 1};
    for (const std::int64_t f : numbers("size")) factors.push_back(static_cast<float>(f));
    return value(resize(in(Channels::first), nearest, factors), Channels::first);
  }
  /// The options of padding and cropping, (before, after) for each axis but that of the channels,
  /// as all beginnings and all ends.
  [[gnu::cold]] std::pair<Numbers, Numbers> edges(std::string_view name) const {
    const Numbers& n = numbers(name);  // top, bottom, left, right, or before, after
    std::pair<Numbers, Numbers> result;
    for (std::size_t i = 0; i < n.size(); i += 2) {
      result.first.push_back(n[i]);
      result.second.push_back(n[i + 1]);
    }
    return result;
  }
  /// A list of numbers as a constant of this layer.
  [[gnu::cold]] std::string list(std::string_view name, const Numbers& values) {
    return graph_.constant(layer_.name + "/" + std::string(name), values);
  }
  /// Nearest pixels are listed: ONNX rounds the places of some of them in another direction.
  [[gnu::cold]] Value resizing() {
    const Shape& to = layer_.output_shape;
    if (std::get<std::string>(*layer_.option("interpolation")) != "nearest")
      return value(resize(in(Channels::first), false, in_shape()[0], in_shape()[1], to),
                   Channels::first);
    std::string x = in(Channels::first);
    for (int axis = 0; axis < 2; ++axis) {
      Numbers places;
      for (int i = 0; i < to[axis]; ++i)
        places.push_back(resized_place(i, to[axis], in_shape()[axis], Interpolation::nearest).low);
      x = node("Gather", {x, list(axis == 0 ? "rows" : "columns", places)},
               {{"axis", std::int64_t{axis + 2}}});
    }
    return value(x, Channels::first);
  }
  [[gnu::cold]] Value zero_padding() {
    const auto [before, after] = edges("padding");
    const Channels layout = inputs_[0]->channels();
    Numbers pads;
    for (const Numbers& each : {before, after}) {
      pads.insert(pads.end(), layout == Channels::first ? 2 : 1, 0);
      pads.insert(pads.end(), each.begin(), each.end());
      if (layout == Channels::last) pads.push_back(0);
    }
    return value(node("Pad", {in(layout), list("pads", pads)}), layout);
  }
  /// The elements [begin, end) of some axes, which count from 1 with channels last.
  [[gnu::cold]] Value cut(const Numbers& begin, const Numbers& end, Numbers axes) {
    const Channels layout = inputs_[0]->channels();
    if (layout == Channels::first)
      for (std::int64_t& axis : axes) axis = axis == in_shape().rank ? 1 : axis + 1;
    return value(
        node("Slice", {in(layout), list("begin", begin), list("end", end), list("axes", axes)}),
        layout);
  }
  [[gnu::cold]] Value cropping() {
    auto [before, after] = edges("cropping");
    Numbers axes;
    for (std::size_t i = 0; i < after.size(); ++i) {
      axes.push_back(static_cast<std::int64_t>(i) + 1);
      after[i] = in_shape()[static_cast<int>(i)] - after[i];
    }
    return cut(before, after, axes);
  }
  [[gnu::cold]] Value slice_axis() {
    return cut({whole("begin")}, {whole("end")}, {whole("axis")});
  }
  /// A parameter of a recurrent layer as (1, gates * units, rows), with the gates in ONNX' order.
  [[gnu::cold]] Weights by_gate(const Weights& w, const Numbers& order) const {
    const auto units = static_cast<std::size_t>(whole("units"));
    const std::size_t rows = w.values.size() / units / order.size();
    Weights result{{1, static_cast<std::int64_t>(units * order.size()), w.extents[0]}, {}};
    for (const std::int64_t gate : order)
      for (std::size_t u = 0; u < units; ++u)
        for (std::size_t r = 0; r < rows; ++r)
          result.values.push_back(
              w.values[(r * order.size() + static_cast<std::size_t>(gate)) * units + u]);
    return result;
  }
  /// LSTM, GRU or SimpleRNN: ONNX has the steps as first axis, and always writes them in their order.
  [[gnu::cold]] Value recurrent() {
    if (layer_.option("results") != nullptr || layer_.option("operands") != nullptr)
      throw UsageError(
          "export_onnx: layer '{}' has states among its results or operands, which have no form in "
          "ONNX; export a model without return_state and initial_state",
          layer_.name);
    if (inputs_.size() > 1)
      throw UsageError(
          "export_onnx: layer '{}' reads a mask, which has no form in ONNX; export a model without",
          layer_.name);
    const bool lstm = layer_.class_name == "LSTM", gru = layer_.class_name == "GRU";
    for (const auto& [option, known] :
         {std::pair{"activation", "tanh"}, {"recurrent_activation", "sigmoid"}})
      if (const auto* given = layer_.option(option);
          given != nullptr && std::get<std::string>(*given) != known)
        throw UsageError(
            "export_onnx: layer '{}' has the {} {}; in ONNX recurrent layers have tanh and sigmoid",
            layer_.name, option, std::get<std::string>(*given));
    const Numbers order = lstm ? Numbers{0, 3, 1, 2} : gru ? Numbers{0, 1, 2} : Numbers{0};
    const std::int64_t units = whole("units"), steps = in_shape()[0];
    std::vector<std::string> inputs{
        node("Transpose", {in(Channels::last)}, {{"perm", Numbers{1, 0, 2}}}),
        constant("kernel", by_gate(required("kernel"), order)),
        constant("recurrent_kernel", by_gate(required("recurrent_kernel"), order))};
    if (const Weights bias = weights("bias"); !bias.values.empty()) {
      // That of the input, then that of the state.
      const std::size_t size = order.size() * static_cast<std::size_t>(units);
      Weights both{{1, static_cast<std::int64_t>(2 * size)}, {}};
      for (std::size_t first = 0; first < 2 * size; first += size) {
        Weights part{{1}, std::vector<float>(size)};
        if (first < bias.values.size())
          std::copy_n(bias.values.begin() + static_cast<std::ptrdiff_t>(first), size,
                      part.values.begin());
        part = by_gate(part, order);
        both.values.insert(both.values.end(), part.values.begin(), part.values.end());
      }
      inputs.push_back(constant("bias", both));
    }
    const bool backwards = std::get<bool>(*layer_.option("go_backwards")),
               all = std::get<bool>(*layer_.option("return_sequences"));
    const std::string_view direction = backwards ? "reverse" : "forward";
    const OnnxAttribute size{"hidden_size", units}, way{"direction", direction};
    std::string y =
        gru ? node("GRU", std::move(inputs),
                   {size,
                    way,
                    {"linear_before_reset",
                     std::int64_t{std::get<bool>(*layer_.option("reset_after")) ? 1 : 0}}})
            : node(lstm ? "LSTM" : "RNN", std::move(inputs), {size, way});  // (steps, 1, n, units)
    y = node("Transpose", {y}, {{"perm", Numbers{2, 0, 1, 3}}});
    if (!all) {
      const std::int64_t last = backwards ? 0 : steps - 1;
      y = node("Slice", {y, list("begin", {last}), list("end", {last + 1}), list("axis", {1})});
    } else if (backwards && layer_.option("output_order") == nullptr) {
      y = node("Slice",
               {y, list("begin", {-1}), list("end", {std::numeric_limits<std::int64_t>::min()}),
                list("axis", {1}), list("step", {-1})});
    }
    const Numbers to = all ? Numbers{0, steps, units} : Numbers{0, units};
    return value(node("Reshape", {y, list("shape", to)}), Channels::last);
  }
  [[gnu::cold]] Value permute() {
    Numbers order{0};
    for (const std::int64_t axis : numbers("dims")) order.push_back(axis);
    return value(node("Transpose", {in(Channels::last)}, {{"perm", order}}), Channels::last);
  }
  [[gnu::cold]] Value repeat_vector() {
    const std::string row = node("Unsqueeze", {in(Channels::last), list("axes", {1})});
    return value(node("Tile", {row, list("repeats", {1, whole("n"), 1})}), Channels::last);
  }
  /// DepthToSpace and SpaceToDepth.
  [[gnu::cold]] Value blocks() {
    const std::int64_t size = whole("block_size");
    const std::string x = in(Channels::first);
    return value(
        layer_.class_name == "SpaceToDepth"
            ? node("SpaceToDepth", {x}, {{"blocksize", size}})
            : node("DepthToSpace", {x}, {{"blocksize", size}, {"mode", std::string_view("DCR")}}),
        Channels::first);
  }
  /// A part of an image, resized if it does not have the layer's extents.
  [[gnu::cold]] Value part(const ImagePart& part) {
    const Shape& to = layer_.output_shape;
    const std::string begin = list("begin", {part.row, part.column});
    const std::string end = list("end", {part.row + part.height, part.column + part.width});
    const std::string cut = node("Slice", {in(Channels::first), begin, end, list("axes", {2, 3})});
    if (layer_.class_name == "CenterCrop" && part.height == to[0] && part.width == to[1])
      return value(cut, Channels::first);
    return value(resize(cut, false, part.height, part.width, to), Channels::first);
  }

  /// ONNX' op that merges two values, or any number; empty if the class is not a merging layer.
  [[gnu::cold]] static std::string_view merging_op(std::string_view class_name, bool of_two) {
    using Pair = std::pair<std::string_view, std::string_view>;
    for (const auto& [name, op] :
         {Pair{"Add", of_two ? "Add" : "Sum"}, Pair{"Average", "Mean"},
          Pair{"Concatenate", "Concat"}, Pair{"Maximum", "Max"}, Pair{"Minimum", "Min"},
          Pair{"Multiply", "Mul"}, Pair{"Subtract", "Sub"}})
      if (class_name == name) return op;
    return {};
  }
  [[gnu::cold]] Value merge(std::string_view op) {
    // Channels first if that needs no more nodes.
    const bool first = std::any_of(inputs_.begin(), inputs_.end(),
                                   [](const Value& v) { return v->channels() == Channels::first; });
    const Channels layout = first && in_shape().rank > 1 ? Channels::first : Channels::last;
    std::vector<std::string> all;
    for (std::size_t i = 0; i < inputs_.size(); ++i) all.push_back(in(layout, i));
    if (op == "Concat") return value(node(op, std::move(all), {{"axis", axis_in(layout)}}), layout);
    if (op != "Mul") return value(node(op, std::move(all)), layout);
    std::string product = all[0];
    for (std::size_t i = 1; i < all.size(); ++i) product = node(op, {product, all[i]});
    return value(product, layout);
  }
  /// The axis of a Concatenate where the channels are first or last.
  [[gnu::cold]] std::int64_t axis_in(Channels layout) const {
    const std::int64_t rank = in_shape().rank, given = whole("axis"),
                       axis = given < 0 ? rank + 1 + given : given;
    return layout == Channels::last ? axis : axis == rank ? 1 : axis + 1;
  }

  /// An input of Dot as (vectors, length), or as (length, vectors) if `is_second`.
  [[gnu::cold]] std::string vectors(std::size_t i, std::int64_t axis, bool is_second) {
    const Shape& shape = inputs_[i]->shape();
    Numbers order{0};
    for (std::int64_t k = 1; k <= shape.rank; ++k)
      if (k != axis) order.push_back(k);
    order.insert(is_second ? order.begin() + 1 : order.end(), axis);
    std::string x = in(Channels::last, i);
    if (!std::is_sorted(order.begin(), order.end())) x = node("Transpose", {x}, {{"perm", order}});
    const std::int64_t length = shape[static_cast<int>(axis) - 1];
    const std::int64_t count = static_cast<std::int64_t>(shape.size()) / length;
    const std::string extents =
        list("extents", is_second ? Numbers{0, length, count} : Numbers{0, count, length});
    x = node("Reshape", {x, extents});
    if (!std::get<bool>(*layer_.option("normalize"))) return x;
    const std::string norm = node("ReduceL2", {x, list("axis", {is_second ? 1 : 2})});
    return node("Div", {x, node("Max", {norm, graph_.constant(layer_.name + "/least", 1e-7f)})});
  }
  [[gnu::cold]] Value dot() {
    const std::string x = vectors(0, numbers("axes")[0], false);
    const std::string y = node("MatMul", {x, vectors(1, numbers("axes")[1], true)});
    const Shape& to = layer_.output_shape;
    Numbers extents{0};
    extents.insert(extents.end(), to.extent.begin(), to.extent.begin() + to.rank);
    return value(node("Reshape", {y, list("shape", extents)}), Channels::last);
  }

  /// A layer Function: each of its operations is a node. `option`: the operations as numbers.
  [[gnu::cold]] Value function(std::string_view option, OnnxValue& x) {
    using functions::Operation;
    const auto& code = std::get<std::vector<double>>(*layer_.option(option));
    struct Step {
      Operation op;
      std::array<std::size_t, 4> from{};
      float value = 0;
    };
    std::vector<Step> steps;
    bool along_rows = false;
    for (std::size_t i = 0; i < code.size();) {
      Step s{static_cast<Operation>(static_cast<int>(code[i++]))};
      for (std::size_t k = 0; k < functions::operands(s.op); ++k)
        s.from[k] = static_cast<std::size_t>(code[i++]);
      if (functions::has_value(s.op)) s.value = static_cast<float>(code[i++]);
      along_rows |= functions::is_reduction(s.op);
      steps.push_back(s);
    }
    const Channels layout = along_rows ? Channels::last : x.channels();
    std::vector<std::string> names;
    for (const Step& s : steps) {
      const auto from = [&](std::size_t k) { return names[s.from[k]]; };
      const auto one = [&] { return graph_.constant(layer_.name + "/one", 1.0f); };
      switch (s.op) {
        case Operation::input:
          names.push_back(graph_.use(x, layout));
          break;
        case Operation::constant:
          names.push_back(graph_.constant(layer_.name + "/constant", s.value));
          break;
        case Operation::length:
          names.push_back(
              graph_.constant(layer_.name + "/length", static_cast<float>(x.shape().channels())));
          break;
        case Operation::stop:
          names.push_back(from(0));
          break;
        case Operation::expm1:
          names.push_back(node("Sub", {node("Exp", {from(0)}), one()}));
          break;
        case Operation::log1p:
          names.push_back(node("Log", {node("Add", {from(0), one()})}));
          break;
        case Operation::erf:
        case Operation::erfc: {
          const std::string factor = graph_.constant(layer_.name + "/factor", s.value);
          const std::string erf = node("Erf", {node("Mul", {from(0), factor})});
          names.push_back(s.op == Operation::erf ? erf : node("Sub", {one(), erf}));
          break;
        }
        case Operation::power:
          names.push_back(
              node("Pow", {from(0), graph_.constant(layer_.name + "/exponent", s.value)}));
          break;
        case Operation::if_less:
        case Operation::if_less_equal:
        case Operation::if_equal:
          names.push_back(
              node("Where", {node(function_op(s.op), {from(0), from(1)}), from(2), from(3)}));
          break;
        case Operation::sum:
        case Operation::largest:
          names.push_back(node(function_op(s.op), {from(0), list("axes", {-1})}));
          break;
        default:
          names.push_back(functions::operands(s.op) == 1
                              ? node(function_op(s.op), {from(0)})
                              : node(function_op(s.op), {from(0), from(1)}));
      }
    }
    return value(names.back(), layout);
  }
  /// ONNX' op of an operation.
  [[gnu::cold]] static std::string_view function_op(functions::Operation op) {
    using enum functions::Operation;
    switch (op) {
      case negate:
        return "Neg";
      case exp:
        return "Exp";
      case log:
        return "Log";
      case tanh:
        return "Tanh";
      case sigmoid:
        return "Sigmoid";
      case softplus:
        return "Softplus";
      case sqrt:
        return "Sqrt";
      case abs:
        return "Abs";
      case add:
        return "Add";
      case subtract:
        return "Sub";
      case multiply:
        return "Mul";
      case divide:
        return "Div";
      case if_less:
        return "Less";
      case if_less_equal:
        return "LessOrEqual";
      case if_equal:
        return "Equal";
      case if_maximum:
        return "Max";
      case if_minimum:
        return "Min";
      case sum:
        return "ReduceSum";
      case largest:
        return "ReduceMax";
      default:
        return "";  // only in derivatives
    }
  }

  OnnxBuilder& graph_;
  const LayerNode &layer_, &first_;
  const std::vector<Value>& inputs_;
  ParameterValues values_;
};

std::shared_ptr<OnnxValue> add_layer(OnnxBuilder& graph, const LayerNode& layer,
                                     const LayerNode& first,
                                     const std::vector<std::shared_ptr<OnnxValue>>& inputs,
                                     ParameterValues values) {
  return LayerForm(graph, layer, first, inputs, values).add();
}

}  // namespace lockstep::detail
