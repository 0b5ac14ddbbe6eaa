/// \file
/// The one place that knows which oneDNN this is: version 2.6 or 3. Invariants: a Call allocates
/// nothing of ours when it runs; all its memory is bound by the caller; errors of oneDNN leave as
/// DeviceError.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep::detail::onednn {

using dnnl::algorithm;
using dnnl::engine;
using dnnl::memory;
using dnnl::prop_kind;
using Tag = memory::format_tag;

[[noreturn, gnu::noinline, gnu::cold]] inline void refuse(const char* op, const Shape& shape,
                                                          const dnnl::error& e) {
  throw DeviceError({"cpu: oneDNN cannot do ", op, " with result ", shape, ": ", e.what(),
                     " (status ", static_cast<int>(e.status),
                     "); check the op's numbers and the installed oneDNN"});
}

/// f(), with oneDNN's errors turned into DeviceError that names the op and the shape of its result.
template <class F>
void call(const char* op, const Shape& shape, const F& f) {
  try {
    f();
  } catch (const dnnl::error& e) {
    refuse(op, shape, e);
  }
}

template <class T>
constexpr memory::data_type data_type() {
  static_assert(std::is_same_v<T, float>,
                "lockstep::Cpu: no oneDNN type for this element type; use Float32");
  return memory::data_type::f32;
}

template <class T>
memory::desc describe(memory::dims dims, Tag tag) {
  return memory::desc(std::move(dims), data_type<T>(), tag);
}

/// Stacks buffers in the scratch of a kernel, each aligned to 64 bytes.
class Scratch {
 public:
  /// Offset of a new buffer.
  std::size_t add(std::size_t bytes) {
    const std::size_t offset = bytes_;
    bytes_ += (bytes + 63) / 64 * 64;
    return offset;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

/// Of any primitive: what is asked of all of them is in their base.
using PrimitiveDesc = dnnl::primitive_desc_base;
using Arguments = std::vector<std::pair<int, memory::desc>>;

/// A primitive with its memory objects: made once, bound and run in each step. It goes through the
/// C interface, since the C++ one makes a vector for each call.
class Call {
 public:
  Call() = default;
  [[gnu::noinline, gnu::cold]] Call(const PrimitiveDesc& pd, const Arguments& arguments,
                                    Scratch& scratch)
      : primitive_(pd.get()) {
    const engine where = pd.get_engine();
    for (const auto& [argument, desc] : arguments) add(argument, desc, where);
    if (const memory::desc pad = pd.query_md(dnnl::query::scratchpad_md); pad.get_size() > 0) {
      scratchpad_ = scratch.add(pad.get_size());
      has_scratchpad_ = true;
      add(DNNL_ARG_SCRATCHPAD, pad, where);
    }
  }
  explicit operator bool() const { return !memories_.empty(); }

  /// Binds the arguments in the order of the constructor, null ones left out, and runs.
  template <class... Pointers>
  void operator()(const dnnl::stream& stream, std::byte* scratch, Pointers... pointers) {
    run(stream, scratch, {pointers...});
  }

 private:
  [[gnu::noinline]] void run(const dnnl::stream& stream, std::byte* scratch,
                             std::initializer_list<const void*> pointers) {
    std::size_t i = 0;
    for (const void* p : pointers)
      if (p != nullptr) bind(i++, p);
    if (has_scratchpad_) bind(i, scratch + scratchpad_);
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(primitive_.get(), stream.get(), static_cast<int>(arguments_.size()),
                               arguments_.data()),
        "could not execute a primitive");
  }
  [[gnu::noinline, gnu::cold]] void add(int argument, const memory::desc& desc,
                                        const engine& where) {
    memories_.push_back(memory(desc, where, DNNL_MEMORY_NONE));
    arguments_.push_back({argument, memories_.back().get()});
  }
  void bind(std::size_t i, const void* p) { memories_[i].set_data_handle(const_cast<void*>(p)); }

  dnnl::primitive primitive_;
  std::vector<memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
  std::size_t scratchpad_ = 0;
  bool has_scratchpad_ = false;
};

/// Scratch belongs to the caller; `relu` is applied to the result.
[[gnu::noinline, gnu::cold]] inline dnnl::primitive_attr attributes(bool relu = false) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (relu) {
    dnnl::post_ops post;
#if DNNL_VERSION_MAJOR >= 3
    post.append_eltwise(algorithm::eltwise_relu, 0.0f, 0.0f);
#else
    post.append_eltwise(1.0f, algorithm::eltwise_relu, 0.0f, 0.0f);
#endif
    attr.set_post_ops(post);
  }
  return attr;
}

/// A copy between two layouts of one tensor.
[[gnu::noinline, gnu::cold]] inline Call reorder(const engine& e, const memory::desc& from,
                                                 const memory::desc& to, Scratch& scratch) {
  const dnnl::reorder::primitive_desc pd(e, from, e, to, attributes());
  return Call(pd, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, scratch);
}

/// Whether oneDNN would run its plain, very slow loops.
inline bool is_slow(const PrimitiveDesc& pd) {
  return std::string_view(pd.impl_info_str()).starts_with("ref");
}

/// What the three passes of a convolution share. An empty `bias` means none; dilates count the
/// gaps.
struct Convolution {
  memory::desc x, w, bias, y;
  memory::dims strides, dilates, before, after;
};

#if DNNL_VERSION_MAJOR >= 3
#define LOCKSTEP_ONEDNN(Primitive, engine, attr, ...) \
  Primitive::primitive_desc(engine, __VA_ARGS__, attr)
#define LOCKSTEP_ONEDNN_BACKWARD(Primitive, engine, attr, forward, ...) \
  Primitive::primitive_desc(engine, __VA_ARGS__, forward, attr)
#else
#define LOCKSTEP_ONEDNN(Primitive, engine, attr, ...) \
  Primitive::primitive_desc(Primitive::desc(__VA_ARGS__), attr, engine)
#define LOCKSTEP_ONEDNN_BACKWARD(Primitive, engine, attr, forward, ...) \
  Primitive::primitive_desc(Primitive::desc(__VA_ARGS__), attr, engine, forward)
#endif

[[gnu::noinline, gnu::cold]] inline auto convolution_forward(const engine& e, const Convolution& c,
                                                             const dnnl::primitive_attr& attr) {
  return LOCKSTEP_ONEDNN(dnnl::convolution_forward, e, attr, prop_kind::forward_training,
                         algorithm::convolution_direct, c.x, c.w, c.bias, c.y, c.strides, c.dilates,
                         c.before, c.after);
}
[[gnu::noinline, gnu::cold]] inline auto convolution_backward_data(
    const engine& e, const Convolution& c,
    const dnnl::convolution_forward::primitive_desc& forward) {
  return LOCKSTEP_ONEDNN_BACKWARD(dnnl::convolution_backward_data, e, attributes(), forward,
                                  algorithm::convolution_direct, c.x, c.w, c.y, c.strides,
                                  c.dilates, c.before, c.after);
}
[[gnu::noinline, gnu::cold]] inline auto convolution_backward_weights(
    const engine& e, const Convolution& c,
    const dnnl::convolution_forward::primitive_desc& forward) {
  return LOCKSTEP_ONEDNN_BACKWARD(dnnl::convolution_backward_weights, e, attributes(), forward,
                                  algorithm::convolution_direct, c.x, c.w, c.bias, c.y, c.strides,
                                  c.dilates, c.before, c.after);
}

struct InnerProduct {
  memory::desc x, w, bias, y;
};
[[gnu::noinline, gnu::cold]] inline auto inner_product_forward(const engine& e,
                                                               const InnerProduct& p,
                                                               const dnnl::primitive_attr& attr) {
  return LOCKSTEP_ONEDNN(dnnl::inner_product_forward, e, attr, prop_kind::forward_training, p.x,
                         p.w, p.bias, p.y);
}
[[gnu::noinline, gnu::cold]] inline auto inner_product_backward_data(
    const engine& e, const InnerProduct& p,
    const dnnl::inner_product_forward::primitive_desc& forward) {
  return LOCKSTEP_ONEDNN_BACKWARD(dnnl::inner_product_backward_data, e, attributes(), forward, p.x,
                                  p.w, p.y);
}
[[gnu::noinline, gnu::cold]] inline auto inner_product_backward_weights(
    const engine& e, const InnerProduct& p,
    const dnnl::inner_product_forward::primitive_desc& forward) {
  return LOCKSTEP_ONEDNN_BACKWARD(dnnl::inner_product_backward_weights, e, attributes(), forward,
                                  p.x, p.w, p.bias, p.y);
}

[[gnu::noinline, gnu::cold]] inline auto eltwise_forward(const engine& e, algorithm which,
                                                         const memory::desc& data, float alpha,
                                                         float beta) {
#if DNNL_VERSION_MAJOR >= 3
  return LOCKSTEP_ONEDNN(dnnl::eltwise_forward, e, attributes(), prop_kind::forward_training, which,
                         data, data, alpha, beta);
#else
  return LOCKSTEP_ONEDNN(dnnl::eltwise_forward, e, attributes(), prop_kind::forward_training, which,
                         data, alpha, beta);
#endif
}
[[gnu::noinline, gnu::cold]] inline auto eltwise_backward(
    const engine& e, algorithm which, const memory::desc& data, float alpha, float beta,
    const dnnl::eltwise_forward::primitive_desc& forward) {
#if DNNL_VERSION_MAJOR >= 3
  return LOCKSTEP_ONEDNN_BACKWARD(dnnl::eltwise_backward, e, attributes(), forward, which, data,
                                  data, data, alpha, beta);
#else
  return LOCKSTEP_ONEDNN_BACKWARD(dnnl::eltwise_backward, e, attributes(), forward, which, data,
                                  data, alpha, beta);
#endif
}

/// Calls of an element-wise function on n elements: forward (x, y); backward (y if `from_y`, else
/// x; dy; dx).
struct Eltwise {
  Call forward, backward;
};
template <class T>
[[gnu::noinline, gnu::cold]] Eltwise eltwise(const engine& e, algorithm which, bool from_y,
                                             std::size_t n, float alpha, float beta,
                                             Scratch& scratch) {
  const memory::desc data = describe<T>({static_cast<memory::dim>(n)}, Tag::a);
  const auto pd = eltwise_forward(e, which, data, alpha, beta);
  const auto back = eltwise_backward(e, which, data, alpha, beta, pd);
  return {Call(pd, {{DNNL_ARG_SRC, data}, {DNNL_ARG_DST, data}}, scratch),
          Call(back,
               {{from_y ? DNNL_ARG_DST : DNNL_ARG_SRC, data},
                {DNNL_ARG_DIFF_DST, data},
                {DNNL_ARG_DIFF_SRC, data}},
               scratch)};
}

/// The gradient through a ReLU: (y, dy, dx).
template <class T>
Call relu_mask(const engine& e, std::size_t n, Scratch& scratch) {
  return eltwise<T>(e, algorithm::eltwise_relu_use_dst_for_bwd, true, n, 0, 0, scratch).backward;
}

#if DNNL_VERSION_MAJOR >= 3
using SoftmaxForward = dnnl::softmax_forward;
using SoftmaxBackward = dnnl::softmax_backward;
#else
using SoftmaxForward = dnnl::softmax_v2_forward;
using SoftmaxBackward = dnnl::softmax_v2_backward;
#endif
inline auto softmax_forward(const engine& e, algorithm which, const memory::desc& data, int axis) {
  return LOCKSTEP_ONEDNN(SoftmaxForward, e, attributes(), prop_kind::forward_training, which, data,
                         data, axis);
}
inline auto softmax_backward(const engine& e, algorithm which, const memory::desc& data, int axis,
                             const SoftmaxForward::primitive_desc& forward) {
  return LOCKSTEP_ONEDNN_BACKWARD(SoftmaxBackward, e, attributes(), forward, which, data, data,
                                  data, axis);
}

#undef LOCKSTEP_ONEDNN
#undef LOCKSTEP_ONEDNN_BACKWARD

}  // namespace lockstep::detail::onednn
