/// \file
/// oneDNN's primitives for the layers of layers.cpp, as a user of oneDNN would call them: images in
/// NHWC, weights in oneDNN's preferred layout, ReLU as a post-op where possible. Uses oneDNN's C++
/// interface, and of lockstep only the ops' numbers, so that the two share no code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "lockstep/layers/layers.hpp"

namespace onednn_ops {

using dnnl::memory;

/// oneDNN 2 needs an operation descriptor; oneDNN 3 does not.
#if DNNL_VERSION_MAJOR >= 3
#define ONEDNN_DATA(md) md, md
template <class P, class... A>
typename P::primitive_desc describe(const dnnl::engine& engine, const dnnl::primitive_attr& attr,
                                    A... arguments) {
  return typename P::primitive_desc(engine, arguments..., attr);
}
#else
#define ONEDNN_DATA(md) md
template <class P, class... A>
typename P::primitive_desc describe(const dnnl::engine& engine, const dnnl::primitive_attr& attr,
                                    A... arguments) {
  return typename P::primitive_desc(typename P::desc(arguments...), attr, engine);
}
#endif
template <class P, class Hint, class... A>
typename P::primitive_desc describe_backward(const dnnl::engine& engine, const Hint& hint,
                                             A... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine, arguments..., hint);
#else
  return typename P::primitive_desc(typename P::desc(arguments...), engine, hint);
#endif
}

/// A sequence of primitives.
class Chain {
 public:
  Chain() = default;
  explicit Chain(const dnnl::engine& engine) : engine_(engine) {}
  void operator()() {
    for (auto& [primitive, arguments] : calls_) primitive.execute(stream_, arguments);
    stream_.wait();
  }

  const dnnl::engine& engine() const { return engine_; }
  /// Memory of this layout, filled with positive and negative numbers.
  memory filled(const memory::desc& desc) const {
    memory made(desc, engine_);
    auto* const values = static_cast<float*>(made.get_data_handle());
    std::uint32_t state = 1;
    for (std::size_t i = 0; i < desc.get_size() / sizeof(float); ++i)
      values[i] = static_cast<float>((state = state * 1664525 + 1013904223) >> 8) * 0x1p-23f - 1.0f;
    return made;
  }
  void add(dnnl::primitive primitive, std::unordered_map<int, memory> arguments) {
    calls_.emplace_back(std::move(primitive), std::move(arguments));
  }

 private:
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::vector<std::pair<dnnl::primitive, std::unordered_map<int, memory>>> calls_;
};

inline memory::desc floats(const memory::dims& dims, memory::format_tag tag) {
  return {dims, memory::data_type::f32, tag};
}
/// (count, channels, height, width), in NHWC.
inline memory::desc images(memory::dim count, const lockstep::Shape& s) {
  return floats({count, s[2], s[0], s[1]}, memory::format_tag::nhwc);
}
inline dnnl::primitive_attr with_relu(bool relu) {
  dnnl::primitive_attr attr;
  if (!relu) return attr;
  dnnl::post_ops post;
#if DNNL_VERSION_MAJOR >= 3
  post.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
#else
  post.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
#endif
  attr.set_post_ops(post);
  return attr;
}

/// Backward of an element-wise function: dx from dy and from y or x.
inline void add_eltwise(Chain& chain, dnnl::algorithm which, const memory::desc& md, bool backward,
                        const memory& from, const memory& dy, const memory& to) {
  using dnnl::eltwise_backward, dnnl::eltwise_forward;
  const auto forward = describe<eltwise_forward>(
      chain.engine(), {}, dnnl::prop_kind::forward_training, which, ONEDNN_DATA(md), 0.0f, 0.0f);
  if (!backward)
    return chain.add(eltwise_forward(forward), {{DNNL_ARG_SRC, from}, {DNNL_ARG_DST, to}});
  const bool from_y = which == dnnl::algorithm::eltwise_relu_use_dst_for_bwd;
  chain.add(eltwise_backward(describe_backward<eltwise_backward>(chain.engine(), forward, which, md,
                                                                 ONEDNN_DATA(md), 0.0f, 0.0f)),
            {{from_y ? DNNL_ARG_DST : DNNL_ARG_SRC, from},
             {DNNL_ARG_DIFF_DST, dy},
             {DNNL_ARG_DIFF_SRC, to}});
}
inline Chain eltwise(dnnl::algorithm which, std::size_t size, memory::dim count, bool backward) {
  Chain chain;
  const auto md = floats({count, static_cast<memory::dim>(size)}, memory::format_tag::ab);
  add_eltwise(chain, which, md, backward, chain.filled(md), chain.filled(md), chain.filled(md));
  return chain;
}

/// Forward: x to y. Backward: dy to dx. The workspace holds the maxima's positions from forward.
inline void add_pool(Chain& chain, const lockstep::Pooling2DWindow& w, bool maximum,
                     memory::dim count, bool backward, const memory& from, const memory& to) {
  using dnnl::pooling_backward, dnnl::pooling_forward;
  const auto in = images(count, w.in), out = images(count, w.out());
  const memory::dims strides{w.strides.height, w.strides.width}, pool{w.pool.height, w.pool.width},
      none{0, 0};
  const auto which =
      maximum ? dnnl::algorithm::pooling_max : dnnl::algorithm::pooling_avg_exclude_padding;
#if DNNL_VERSION_MAJOR >= 3
  const auto forward = describe<pooling_forward>(chain.engine(), dnnl::primitive_attr(),
                                                 dnnl::prop_kind::forward_training, which, in, out,
                                                 strides, pool, none, none, none);
#else
  const auto forward = describe<pooling_forward>(chain.engine(), dnnl::primitive_attr(),
                                                 dnnl::prop_kind::forward_training, which, in, out,
                                                 strides, pool, none, none);
#endif
  const memory winners(forward.workspace_desc(), chain.engine());
  if (!backward)
    return chain.add(pooling_forward(forward),
                     {{DNNL_ARG_SRC, from}, {DNNL_ARG_DST, to}, {DNNL_ARG_WORKSPACE, winners}});
  Chain before(chain.engine());  // writes the workspace
  before.add(pooling_forward(forward), {{DNNL_ARG_SRC, chain.filled(in)},
                                        {DNNL_ARG_DST, chain.filled(out)},
                                        {DNNL_ARG_WORKSPACE, winners}});
  before();
#if DNNL_VERSION_MAJOR >= 3
  const auto pd = describe_backward<pooling_backward>(chain.engine(), forward, which, in, out,
                                                      strides, pool, none, none, none);
#else
  const auto pd = describe_backward<pooling_backward>(chain.engine(), forward, which, in, out,
                                                      strides, pool, none, none);
#endif
  chain.add(pooling_backward(pd),
            {{DNNL_ARG_DIFF_DST, from}, {DNNL_ARG_DIFF_SRC, to}, {DNNL_ARG_WORKSPACE, winners}});
}
inline Chain pool(const lockstep::Pooling2DWindow& w, bool maximum, memory::dim count,
                  bool backward) {
  Chain chain;
  const auto in = chain.filled(images(count, w.in)), out = chain.filled(images(count, w.out()));
  add_pool(chain, w, maximum, count, backward, backward ? out : in, backward ? in : out);
  return chain;
}

/// Batch normalization with gamma and beta.
inline Chain batch_normalization(const lockstep::BatchNormalizationOp& op, memory::dim count,
                                 bool backward) {
  using dnnl::batch_normalization_backward, dnnl::batch_normalization_forward;
  Chain chain;
  const auto x = images(count, op.in), c = floats({op.in.channels()}, memory::format_tag::a);
  const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  const auto pd = describe<batch_normalization_forward>(chain.engine(), dnnl::primitive_attr(),
                                                        dnnl::prop_kind::forward_training,
                                                        ONEDNN_DATA(x), op.epsilon, flags);
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, chain.filled(x)},   {DNNL_ARG_DST, chain.filled(x)},
      {DNNL_ARG_MEAN, chain.filled(c)},  {DNNL_ARG_VARIANCE, chain.filled(c)},
      {DNNL_ARG_SCALE, chain.filled(c)}, {DNNL_ARG_SHIFT, chain.filled(c)}};
  Chain before(chain.engine());  // computes the statistics
  (backward ? before : chain).add(batch_normalization_forward(pd), arguments);
  if (!backward) return chain;
  before();
  for (const int gradient : {DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST})
    arguments[gradient] = chain.filled(x);
  for (const int gradient : {DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT})
    arguments[gradient] = chain.filled(c);
  chain.add(
      batch_normalization_backward(describe_backward<batch_normalization_backward>(
          chain.engine(), pd, dnnl::prop_kind::backward, ONEDNN_DATA(x), x, op.epsilon, flags)),
      arguments);
  return chain;
}

/// A convolution, optionally followed by ReLU and pooling. Backward computes the gradient of the
/// weights, and of the images if requested.
inline Chain convolution(const lockstep::Conv2DOp& op, bool relu,
                         const lockstep::Pooling2DWindow* pooling, memory::dim count, bool backward,
                         bool wants_dx) {
  using dnnl::convolution_backward_data, dnnl::convolution_backward_weights,
      dnnl::convolution_forward;
  Chain chain;
  const auto x = images(count, op.in), y = images(count, op.out());
  const auto w = floats({op.filters, op.channels(), op.kernel.height, op.kernel.width},
                        memory::format_tag::any);
  const auto b = floats({op.filters}, memory::format_tag::a);
  const memory::dims strides{op.strides.height, op.strides.width},
      before{op.rows().before(), op.columns().before()},
      after{op.rows().after(), op.columns().after()};
  const auto forward = describe<convolution_forward>(
      chain.engine(), with_relu(relu), dnnl::prop_kind::forward_training,
      dnnl::algorithm::convolution_direct, x, w, b, y, strides, before, after);
  const memory from = chain.filled(x), to = chain.filled(y);
  if (!backward) {
    chain.add(convolution_forward(forward),
              {{DNNL_ARG_SRC, from},
               {DNNL_ARG_WEIGHTS, chain.filled(forward.weights_desc())},
               {DNNL_ARG_BIAS, chain.filled(b)},
               {DNNL_ARG_DST, to}});
    if (pooling != nullptr)
      add_pool(chain, *pooling, true, count, false, to,
               chain.filled(images(count, pooling->out())));
    return chain;
  }
  memory dy = chain.filled(y);
  if (pooling != nullptr)
    add_pool(chain, *pooling, true, count, true, chain.filled(images(count, pooling->out())), dy);
  if (relu) {
    const memory masked = chain.filled(y);
    add_eltwise(chain, dnnl::algorithm::eltwise_relu_use_dst_for_bwd, y, true, to, dy, masked);
    dy = masked;
  }
  const auto pd = describe_backward<convolution_backward_weights>(
      chain.engine(), forward, dnnl::algorithm::convolution_direct, x, w, b, y, strides, before,
      after);
  chain.add(convolution_backward_weights(pd),
            {{DNNL_ARG_SRC, from},
             {DNNL_ARG_DIFF_DST, dy},
             {DNNL_ARG_DIFF_WEIGHTS, chain.filled(pd.diff_weights_desc())},
             {DNNL_ARG_DIFF_BIAS, chain.filled(b)}});
  if (!wants_dx) return chain;
  const auto data = describe_backward<convolution_backward_data>(
      chain.engine(), forward, dnnl::algorithm::convolution_direct, x, w, y, strides, before,
      after);
  chain.add(convolution_backward_data(data), {{DNNL_ARG_DIFF_DST, dy},
                                              {DNNL_ARG_WEIGHTS, chain.filled(data.weights_desc())},
                                              {DNNL_ARG_DIFF_SRC, from}});
  return chain;
}

/// A dense layer. Backward computes both gradients.
inline Chain dense(const lockstep::DenseOp& op, bool relu, memory::dim count, bool backward) {
  using dnnl::inner_product_backward_data, dnnl::inner_product_backward_weights,
      dnnl::inner_product_forward;
  Chain chain;
  const auto x = floats({count, op.inputs}, memory::format_tag::ab);
  const auto y = floats({count, op.units}, memory::format_tag::ab);
  const auto w = floats({op.units, op.inputs}, memory::format_tag::any);
  const auto b = floats({op.units}, memory::format_tag::a);
  const auto forward = describe<inner_product_forward>(
      chain.engine(), with_relu(relu), dnnl::prop_kind::forward_training, x, w, b, y);
  const memory from = chain.filled(x), to = chain.filled(y);
  if (!backward) {
    chain.add(inner_product_forward(forward),
              {{DNNL_ARG_SRC, from},
               {DNNL_ARG_WEIGHTS, chain.filled(forward.weights_desc())},
               {DNNL_ARG_BIAS, chain.filled(b)},
               {DNNL_ARG_DST, to}});
    return chain;
  }
  memory dy = chain.filled(y);
  if (relu) {
    const memory masked = chain.filled(y);
    add_eltwise(chain, dnnl::algorithm::eltwise_relu_use_dst_for_bwd, y, true, to, dy, masked);
    dy = masked;
  }
  const auto weights =
      describe_backward<inner_product_backward_weights>(chain.engine(), forward, x, w, b, y);
  const auto data =
      describe_backward<inner_product_backward_data>(chain.engine(), forward, x, w, y);
  chain.add(inner_product_backward_weights(weights),
            {{DNNL_ARG_SRC, from},
             {DNNL_ARG_DIFF_DST, dy},
             {DNNL_ARG_DIFF_WEIGHTS, chain.filled(weights.diff_weights_desc())},
             {DNNL_ARG_DIFF_BIAS, chain.filled(b)}});
  chain.add(inner_product_backward_data(data),
            {{DNNL_ARG_DIFF_DST, dy},
             {DNNL_ARG_WEIGHTS, chain.filled(data.weights_desc())},
             {DNNL_ARG_DIFF_SRC, chain.filled(x)}});
  return chain;
}

#undef ONEDNN_DATA

}  // namespace onednn_ops
