/// \file
/// The one place that knows which oneDNN this is: version 2.6 or 3. It goes through the C
/// interface, whose header is little work for the compiler. Invariants: a Call allocates nothing of
/// ours when it runs; all its memory is bound by the caller; errors of oneDNN leave as DeviceError;
/// a Call runs with the number of threads that it was planned for, or not at all.
#pragma once

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/devices/cpu/team.hpp"

namespace lockstep::detail::onednn {

/// The owner of an object of oneDNN.
// No std::unique_ptr: each would be thirty more functions to compile.
template <class T, auto destroy>
class Owner {
 public:
  explicit Owner(T* object = nullptr) : object_(object) {}
  Owner(Owner&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owner& operator=(Owner&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owner() {
    if (object_ != nullptr) destroy(object_);
  }
  T* get() const { return object_; }

 private:
  T* object_;
};
using Engine = Owner<dnnl_engine, dnnl_engine_destroy>;
using Stream = Owner<dnnl_stream, dnnl_stream_destroy>;
using Attributes = Owner<dnnl_primitive_attr, dnnl_primitive_attr_destroy>;
using PostOps = Owner<dnnl_post_ops, dnnl_post_ops_destroy>;
using PrimitiveDesc = Owner<dnnl_primitive_desc, dnnl_primitive_desc_destroy>;
using Primitive = Owner<dnnl_primitive, dnnl_primitive_destroy>;

/// The op, by its name and the shape of its result, that oneDNN's objects are made for.
struct Site {
  const char* op;
  Shape result;
  dnnl_engine_t engine = nullptr;

  /// \throws DeviceError unless oneDNN had success.
  void check(dnnl_status_t status) const {
    if (status != dnnl_success) refuse(status);
  }
  /// \throws DeviceError unless OpenMP gives the calling thread a team of `threads`: with another
  /// one, a primitive that is planned for them writes a part of its result or waits for ever.
  void check_team(int threads) const {
    if (!gives_team(threads)) refuse_team(threads);
  }

 private:
  [[noreturn, gnu::noinline, gnu::cold]] void refuse_team(int threads) const {
    throw DeviceError({"cpu: ", op, " with result ", result, " is planned for ", threads,
                       threads == 1 ? " thread" : " threads",
                       ", and OpenMP would give another number; do not change OpenMP's settings "
                       "(omp_set_num_threads, omp_set_dynamic, omp_set_max_active_levels) within a "
                       "step"});
  }
  [[noreturn, gnu::noinline, gnu::cold]] void refuse(dnnl_status_t status) const {
    throw DeviceError({"cpu: oneDNN cannot do ", op, " with result ", result, ": ",
                       dnnl_status2str(status), " (status ", static_cast<int>(status),
                       "); check the op's numbers and the installed oneDNN"});
  }
};

[[gnu::cold]] inline Engine make_engine() {
  dnnl_engine_t engine = nullptr;
  Site{"engine", {}}.check(dnnl_engine_create(&engine, dnnl_cpu, 0));
  return Engine(engine);
}
[[gnu::cold]] inline Stream make_stream(const Engine& engine) {
  dnnl_stream_t stream = nullptr;
  Site{"stream", {}}.check(dnnl_stream_create(&stream, engine.get(), dnnl_stream_default_flags));
  return Stream(stream);
}

template <class T>
constexpr dnnl_data_type_t data_type() {
  constexpr bool is_half = std::is_same_v<T, bfloat16>;
  static_assert(std::is_same_v<T, float> || is_half,
                "lockstep::Cpu: no oneDNN type for this element type; use Float32 or "
                "MixedBFloat16");
  return is_half ? dnnl_bf16 : dnnl_f32;
}

/// Whether this oneDNN multiplies in bfloat16 here, by AMX or AVX-512.
inline bool has_bfloat16() {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
         dnnl_cpu_isa_avx512_core_bf16;
}

/// Type, dimensions and layout of a tensor, or of none.
class MemoryDesc {
 public:
#if DNNL_VERSION_MAJOR >= 3
  using Pointer = const_dnnl_memory_desc_t;
#else
  using Pointer = const dnnl_memory_desc_t*;
#endif

  MemoryDesc() = default;
  [[gnu::cold]] MemoryDesc(const Site& at, dnnl_data_type_t type,
                           std::initializer_list<std::ptrdiff_t> dims, dnnl_format_tag_t tag) {
    dnnl_dims_t list{};
    std::copy(dims.begin(), dims.end(), list);
    const int rank = static_cast<int>(dims.size());
#if DNNL_VERSION_MAJOR >= 3
    dnnl_memory_desc_t made = nullptr;
    at.check(dnnl_memory_desc_create_with_tag(&made, rank, list, type, tag));
    desc_.reset(made, dnnl_memory_desc_destroy);
#else
    at.check(dnnl_memory_desc_init_by_tag(&desc_, rank, list, type, tag));
#endif
  }
  /// One that `pd` has chosen.
  [[gnu::cold]] MemoryDesc(const Site& at, const PrimitiveDesc& pd, dnnl_query_t which) {
    const Pointer chosen = dnnl_primitive_desc_query_md(pd.get(), which, 0);
    if (chosen == nullptr) return;
#if DNNL_VERSION_MAJOR >= 3
    dnnl_memory_desc_t made = nullptr;
    at.check(dnnl_memory_desc_clone(&made, chosen));
    desc_.reset(made, dnnl_memory_desc_destroy);
#else
    static_cast<void>(at);
    desc_ = *chosen;
#endif
  }

  /// Null if there is no tensor.
  Pointer get() const {
#if DNNL_VERSION_MAJOR >= 3
    return desc_.get();
#else
    return desc_.ndims == 0 ? nullptr : &desc_;
#endif
  }
  std::size_t bytes() const { return get() == nullptr ? 0 : dnnl_memory_desc_get_size(get()); }
  bool operator==(const MemoryDesc& other) const {
    return dnnl_memory_desc_equal(get(), other.get()) != 0;
  }

 private:
#if DNNL_VERSION_MAJOR >= 3
  std::shared_ptr<dnnl_memory_desc> desc_;
#else
  dnnl_memory_desc_t desc_{};
#endif
};

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

struct Argument {
  int index;
  const MemoryDesc& desc;
};

/// A primitive with its memory objects: made once, bound and run in each step.
class Call {
 public:
  Call() = default;
  /// Arguments that are no tensor are left out.
  [[gnu::noinline, gnu::cold]] Call(const Site& at, const PrimitiveDesc& pd,
                                    std::initializer_list<Argument> arguments, Scratch& scratch)
      : state_(new State(at)) {
    dnnl_primitive_t primitive = nullptr;
    at.check(dnnl_primitive_create(&primitive, pd.get()));
    state_->primitive = Primitive(primitive);
    for (const Argument& argument : arguments)
      if (argument.desc.get() != nullptr) state_->add(argument);
    if (const MemoryDesc pad(at, pd, dnnl_query_scratchpad_md); pad.bytes() > 0) {
      state_->scratchpad = scratch.add(pad.bytes());
      state_->has_scratchpad = true;
      state_->add({DNNL_ARG_SCRATCHPAD, pad});
    }
  }
  explicit operator bool() const { return state_ != nullptr; }

  /// Binds the arguments in the order of the constructor, null ones left out, and runs.
  [[gnu::noinline]] void operator()(dnnl_stream_t stream, std::byte* scratch,
                                    std::initializer_list<const void*> pointers) {
    State& s = *state_;
    std::size_t i = 0;
    for (const void* p : pointers)
      if (p != nullptr) s.bind(i++, p);
    if (s.has_scratchpad) s.bind(i, scratch + s.scratchpad);
    s.at.check_team(s.threads);
    s.at.check(dnnl_primitive_execute(s.primitive.get(), stream, s.count, s.arguments));
  }

 private:
  struct State {
    explicit State(const Site& site) : at(site) {}
    [[gnu::noinline, gnu::cold]] ~State() {
      for (int i = 0; i < count; ++i) dnnl_memory_destroy(arguments[i].memory);
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    void add(const Argument& argument) {
      dnnl_memory_t memory = nullptr;
      at.check(dnnl_memory_create(&memory, argument.desc.get(), at.engine, DNNL_MEMORY_NONE));
      arguments[count++] = {argument.index, memory};
    }
    void bind(std::size_t i, const void* p) {
      at.check(dnnl_memory_set_data_handle(arguments[i].memory, const_cast<void*>(p)));
    }

    Site at;
    int threads = omp_get_max_threads();  // oneDNN plans for as many
    Primitive primitive;
    dnnl_exec_arg_t arguments[5] = {};  // of a forward pass with bias, and the scratchpad
    int count = 0;
    std::size_t scratchpad = 0;
    bool has_scratchpad = false;
  };

  std::unique_ptr<State> state_;
};

/// Scratch belongs to the caller; `relu` is applied to the result.
[[gnu::noinline, gnu::cold]] inline Attributes attributes(const Site& at, bool relu = false) {
  dnnl_primitive_attr_t made = nullptr;
  at.check(dnnl_primitive_attr_create(&made));
  Attributes attr(made);
  at.check(dnnl_primitive_attr_set_scratchpad_mode(attr.get(), dnnl_scratchpad_mode_user));
  if (relu) {
    dnnl_post_ops_t list = nullptr;
    at.check(dnnl_post_ops_create(&list));
    const PostOps post(list);
#if DNNL_VERSION_MAJOR >= 3
    at.check(dnnl_post_ops_append_eltwise(list, dnnl_eltwise_relu, 0, 0));
#else
    at.check(dnnl_post_ops_append_eltwise(list, 1, dnnl_eltwise_relu, 0, 0));
#endif
    at.check(dnnl_primitive_attr_set_post_ops(attr.get(), list));
  }
  return attr;
}

/// A copy between two layouts of one tensor.
[[gnu::noinline, gnu::cold]] inline Call reorder(const Site& at, const MemoryDesc& from,
                                                 const MemoryDesc& to, Scratch& scratch) {
  dnnl_primitive_desc_t made = nullptr;
  at.check(dnnl_reorder_primitive_desc_create(&made, from.get(), at.engine, to.get(), at.engine,
                                              attributes(at).get()));
  return Call(at, PrimitiveDesc(made), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, scratch);
}

/// Weights in the layout and type that a pass wants, and those of the caller: a copy in scratch
/// between them, unless they are equal.
class LayoutChange {
 public:
  LayoutChange() = default;
  [[gnu::noinline, gnu::cold]] LayoutChange(const Site& at, const MemoryDesc& from,
                                            const MemoryDesc& to, Scratch& scratch) {
    if (from == to) return;
    packed_ = scratch.add(std::max(from.bytes(), to.bytes()));
    copy_ = reorder(at, from, to, scratch);
  }
  /// `w` as the pass wants it.
  const void* pack(dnnl_stream_t stream, std::byte* scratch, const void* w) {
    if (!copy_) return w;
    copy_(stream, scratch, {w, scratch + packed_});
    return scratch + packed_;
  }
  /// Where the pass is to write what belongs to `dw`.
  void* place(std::byte* scratch, void* dw) const { return copy_ ? scratch + packed_ : dw; }
  /// After it has written there.
  void unpack(dnnl_stream_t stream, std::byte* scratch, void* dw) {
    if (copy_) copy_(stream, scratch, {scratch + packed_, dw});
  }

 private:
  Call copy_;
  std::size_t packed_ = 0;
};

/// What oneDNN calls the code that it would run.
inline std::string_view name_of(const_dnnl_primitive_desc_t pd) {
  const char* name = "";
  dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
  return name;
}
/// Whether oneDNN would run its plain, very slow loops.
inline bool is_slow(const PrimitiveDesc& pd) { return name_of(pd.get()).starts_with("ref"); }

/// Code that is not to be taken if there is other, by its name.
using Refused = bool (*)(std::string_view name);
inline bool refuse_none(std::string_view) { return false; }

// The end of a function that returns the descriptor of a pass. Version 2 goes through a struct of
// the operation, and has other names for some.
#if DNNL_VERSION_MAJOR >= 3
#define LOCKSTEP_ONEDNN_FORWARD(Struct, old_pass, pass, attr, ...)                      \
  dnnl_primitive_desc_t made = nullptr;                                                 \
  at.check(dnnl_##pass##_primitive_desc_create(&made, at.engine, dnnl_forward_training, \
                                               __VA_ARGS__, attr.get()));               \
  return other_than(PrimitiveDesc(made), refused)
#define LOCKSTEP_ONEDNN_BACKWARD(Struct, old_pass, pass, forward, ...)                       \
  dnnl_primitive_desc_t made = nullptr;                                                      \
  at.check(dnnl_##pass##_primitive_desc_create(&made, at.engine, __VA_ARGS__, forward.get(), \
                                               attributes(at).get()));                       \
  return other_than(PrimitiveDesc(made), refused)
[[gnu::noinline, gnu::cold]] inline PrimitiveDesc other_than(PrimitiveDesc pd, Refused refused) {
  while (refused(name_of(pd.get())) && dnnl_primitive_desc_next_impl(pd.get()) == dnnl_success) {
  }
  return pd;
}
#else
[[gnu::noinline, gnu::cold]] inline PrimitiveDesc primitive_desc(
    const Site& at, const_dnnl_op_desc_t op, const Attributes& attr, Refused refused,
    const_dnnl_primitive_desc_t forward = nullptr) {
  dnnl_primitive_desc_t made = nullptr;
  at.check(dnnl_primitive_desc_create(&made, op, attr.get(), at.engine, forward));
  PrimitiveDesc first(made);
  if (!refused(name_of(made))) return first;
  dnnl_primitive_desc_iterator_t place = nullptr;
  at.check(dnnl_primitive_desc_iterator_create(&place, op, attr.get(), at.engine, forward));
  const Owner<dnnl_primitive_desc_iterator, dnnl_primitive_desc_iterator_destroy> all(place);
  while (dnnl_primitive_desc_iterator_next(place) == dnnl_success) {
    PrimitiveDesc other(dnnl_primitive_desc_iterator_fetch(place));
    if (!refused(name_of(other.get()))) return other;
  }
  return first;
}
#define LOCKSTEP_ONEDNN_FORWARD(Struct, old_pass, pass, attr, ...)                \
  dnnl_##Struct##_desc_t op;                                                      \
  at.check(dnnl_##old_pass##_desc_init(&op, dnnl_forward_training, __VA_ARGS__)); \
  return primitive_desc(at, &op, attr, refused)
#define LOCKSTEP_ONEDNN_BACKWARD(Struct, old_pass, pass, forward, ...) \
  dnnl_##Struct##_desc_t op;                                           \
  at.check(dnnl_##old_pass##_desc_init(&op, __VA_ARGS__));             \
  return primitive_desc(at, &op, attributes(at), refused, forward.get())
#endif

/// What the three passes of a convolution share; dilates count the gaps.
struct Convolution {
  MemoryDesc x, w, bias, y;
  dnnl_dims_t strides, dilates, before, after;
};

[[gnu::noinline, gnu::cold]] inline PrimitiveDesc convolution_forward(const Site& at,
                                                                      const Convolution& c,
                                                                      bool relu, Refused refused) {
  LOCKSTEP_ONEDNN_FORWARD(convolution, dilated_convolution_forward, convolution_forward,
                          attributes(at, relu), dnnl_convolution_direct, c.x.get(), c.w.get(),
                          c.bias.get(), c.y.get(), c.strides, c.dilates, c.before, c.after);
}
[[gnu::noinline, gnu::cold]] inline PrimitiveDesc convolution_backward_data(
    const Site& at, const Convolution& c, const PrimitiveDesc& forward) {
  constexpr Refused refused = refuse_none;
  LOCKSTEP_ONEDNN_BACKWARD(convolution, dilated_convolution_backward_data,
                           convolution_backward_data, forward, dnnl_convolution_direct, c.x.get(),
                           c.w.get(), c.y.get(), c.strides, c.dilates, c.before, c.after);
}
/// Without the gradient of the bias: see column_sums.hpp.
[[gnu::noinline, gnu::cold]] inline PrimitiveDesc convolution_backward_weights(
    const Site& at, const Convolution& c, const PrimitiveDesc& forward, Refused refused) {
  LOCKSTEP_ONEDNN_BACKWARD(convolution, dilated_convolution_backward_weights,
                           convolution_backward_weights, forward, dnnl_convolution_direct,
                           c.x.get(), c.w.get(), nullptr, c.y.get(), c.strides, c.dilates, c.before,
                           c.after);
}

struct InnerProduct {
  MemoryDesc x, w, bias, y;
};
[[gnu::noinline, gnu::cold]] inline PrimitiveDesc inner_product_forward(const Site& at,
                                                                        const InnerProduct& p,
                                                                        bool relu) {
  constexpr Refused refused = refuse_none;
  LOCKSTEP_ONEDNN_FORWARD(inner_product, inner_product_forward, inner_product_forward,
                          attributes(at, relu), p.x.get(), p.w.get(), p.bias.get(), p.y.get());
}
[[gnu::noinline, gnu::cold]] inline PrimitiveDesc inner_product_backward_data(
    const Site& at, const InnerProduct& p, const PrimitiveDesc& forward) {
  constexpr Refused refused = refuse_none;
  LOCKSTEP_ONEDNN_BACKWARD(inner_product, inner_product_backward_data, inner_product_backward_data,
                           forward, p.x.get(), p.w.get(), p.y.get());
}
/// Without the gradient of the bias: see column_sums.hpp.
[[gnu::noinline, gnu::cold]] inline PrimitiveDesc inner_product_backward_weights(
    const Site& at, const InnerProduct& p, const PrimitiveDesc& forward) {
  constexpr Refused refused = refuse_none;
  LOCKSTEP_ONEDNN_BACKWARD(inner_product, inner_product_backward_weights,
                           inner_product_backward_weights, forward, p.x.get(), p.w.get(), nullptr,
                           p.y.get());
}

/// A function of single elements: `from_y` if its gradient is computed from y, else from x.
struct EltwiseFunction {
  dnnl_alg_kind_t which;
  float alpha = 0, beta = 0;
  bool from_y = true;
};
#if DNNL_VERSION_MAJOR >= 3
#define LOCKSTEP_ONEDNN_DATA data.get(), data.get()
#else
#define LOCKSTEP_ONEDNN_DATA data.get()
#endif
[[gnu::noinline, gnu::cold]] inline PrimitiveDesc eltwise_forward(const Site& at,
                                                                  const EltwiseFunction& f,
                                                                  const MemoryDesc& data) {
  constexpr Refused refused = refuse_none;
  LOCKSTEP_ONEDNN_FORWARD(eltwise, eltwise_forward, eltwise_forward, attributes(at), f.which,
                          LOCKSTEP_ONEDNN_DATA, f.alpha, f.beta);
}
[[gnu::noinline, gnu::cold]] inline PrimitiveDesc eltwise_backward(const Site& at,
                                                                   const EltwiseFunction& f,
                                                                   const MemoryDesc& data,
                                                                   const PrimitiveDesc& forward) {
  constexpr Refused refused = refuse_none;
  LOCKSTEP_ONEDNN_BACKWARD(eltwise, eltwise_backward, eltwise_backward, forward, f.which,
                           data.get(), LOCKSTEP_ONEDNN_DATA, f.alpha, f.beta);
}
#undef LOCKSTEP_ONEDNN_DATA

/// Calls of an element-wise function: forward (x, y); backward (y if `from_y`, else x; dy; dx).
struct Eltwise {
  Call forward, backward;
};
[[gnu::noinline, gnu::cold]] inline Eltwise eltwise(const Site& at, const EltwiseFunction& f,
                                                    const MemoryDesc& data, Scratch& scratch) {
  const PrimitiveDesc pd = eltwise_forward(at, f, data);
  return {Call(at, pd, {{DNNL_ARG_SRC, data}, {DNNL_ARG_DST, data}}, scratch),
          Call(at, eltwise_backward(at, f, data, pd),
               {{f.from_y ? DNNL_ARG_DST : DNNL_ARG_SRC, data},
                {DNNL_ARG_DIFF_DST, data},
                {DNNL_ARG_DIFF_SRC, data}},
               scratch)};
}

/// The gradient through a ReLU: (y, dy, dx).
inline Call relu_mask(const Site& at, const MemoryDesc& data, Scratch& scratch) {
  return eltwise(at, {dnnl_eltwise_relu_use_dst_for_bwd}, data, scratch).backward;
}

[[gnu::noinline, gnu::cold]] inline PrimitiveDesc softmax_forward(const Site& at,
                                                                  dnnl_alg_kind_t which,
                                                                  const MemoryDesc& data,
                                                                  int axis) {
  constexpr Refused refused = refuse_none;
  LOCKSTEP_ONEDNN_FORWARD(softmax_v2, softmax_v2_forward, softmax_forward, attributes(at), which,
                          data.get(), data.get(), axis);
}
[[gnu::noinline, gnu::cold]] inline PrimitiveDesc softmax_backward(const Site& at,
                                                                   dnnl_alg_kind_t which,
                                                                   const MemoryDesc& data, int axis,
                                                                   const PrimitiveDesc& forward) {
  constexpr Refused refused = refuse_none;
  LOCKSTEP_ONEDNN_BACKWARD(softmax_v2, softmax_v2_backward, softmax_backward, forward, which,
                           data.get(), data.get(), data.get(), axis);
}

#undef LOCKSTEP_ONEDNN_FORWARD
#undef LOCKSTEP_ONEDNN_BACKWARD

}  // namespace lockstep::detail::onednn
