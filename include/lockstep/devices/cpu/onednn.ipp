#pragma once

#include "lockstep/devices/cpu/onednn.hpp"

#include <oneapi/dnnl/dnnl_debug.h>

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "lockstep/devices/cpu/team.hpp"

namespace lockstep::detail::onednn {

void Site::check_team(int threads) const {
  if (!team_matches(threads))
    throw DeviceError(
        "cpu: {} with result {} is planned for {}{}, but OpenMP's team size has changed; do not "
        "change OpenMP's settings (omp_set_num_threads, omp_set_dynamic, "
        "omp_set_max_active_levels) within a step",
        op, to_string(result), threads, threads == 1 ? " thread" : " threads");
}
void Site::throw_error(dnnl_status_t status) const {
  throw DeviceError(
      "cpu: oneDNN failed in {} with result {}: {} (status {}); check the op's parameters and the "
      "installed oneDNN",
      op, to_string(result), dnnl_status2str(status), static_cast<int>(status));
}

Engine make_engine() {
  dnnl_engine_t engine = nullptr;
  Site{"engine", {}}.check(dnnl_engine_create(&engine, dnnl_cpu, 0));
  return Engine(engine);
}

Stream make_stream(const Engine& engine) {
  dnnl_stream_t stream = nullptr;
  Site{"stream", {}}.check(dnnl_stream_create(&stream, engine.get(), dnnl_stream_default_flags));
  return Stream(stream);
}

bool has_bfloat16() {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
         dnnl_cpu_isa_avx512_core_bf16;
}

MemoryDesc::MemoryDesc(const Site& at, dnnl_data_type_t type,
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
MemoryDesc::MemoryDesc(const Site& at, const PrimitiveDesc& pd, dnnl_query_t which) {
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

// Memory objects hold no memory: each execution binds the caller's pointers to them.
struct Call::State {
  explicit State(const Site& site) : at(site) {}
  ~State() {
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
  int threads = omp_get_max_threads();  // the team size for which oneDNN plans the primitive
  Primitive primitive;
  dnnl_exec_arg_t arguments[5] = {};  // at most: x, w, bias, y, scratchpad
  int count = 0;
  std::size_t scratchpad = 0;
  bool has_scratchpad = false;
};
void Call::Delete::operator()(State* state) const { delete state; }

Call::Call(const Site& at, const PrimitiveDesc& pd, std::initializer_list<Argument> arguments,
           Scratch& scratch)
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

void Call::operator()(dnnl_stream_t stream, std::byte* scratch,
                      std::initializer_list<const void*> pointers) {
  State& s = *state_;
  std::size_t i = 0;
  for (const void* p : pointers)
    if (p != nullptr) s.bind(i++, p);
  if (s.has_scratchpad) s.bind(i, scratch + s.scratchpad);
  s.at.check_team(s.threads);
  s.at.check(dnnl_primitive_execute(s.primitive.get(), stream, s.count, s.arguments));
}

Attributes attributes(const Site& at, bool relu) {
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

Call reorder(const Site& at, const MemoryDesc& from, const MemoryDesc& to, Scratch& scratch) {
  dnnl_primitive_desc_t made = nullptr;
  at.check(dnnl_reorder_primitive_desc_create(&made, from.get(), at.engine, to.get(), at.engine,
                                              attributes(at).get()));
  return Call(at, PrimitiveDesc(made), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, scratch);
}

LayoutChange::LayoutChange(const Site& at, const MemoryDesc& from, const MemoryDesc& to,
                           Scratch& scratch) {
  if (from == to) return;
  packed_ = scratch.add(std::max(from.bytes(), to.bytes()));
  copy_ = reorder(at, from, to, scratch);
}

std::string_view name_of(const_dnnl_primitive_desc_t pd) {
  const char* name = "";
  dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
  return name;
}
bool is_slow(const PrimitiveDesc& pd) { return name_of(pd.get()).starts_with("ref"); }

// The tail of a function that returns the descriptor of a pass. Version 2 first fills an operation
// descriptor, and names some operations differently (`old_pass`).
#if DNNL_VERSION_MAJOR >= 3
#define LOCKSTEP_ONEDNN_FORWARD(Struct, old_pass, pass, attr, ...)                      \
  dnnl_primitive_desc_t made = nullptr;                                                 \
  at.check(dnnl_##pass##_primitive_desc_create(&made, at.engine, dnnl_forward_training, \
                                               __VA_ARGS__, attr.get()));               \
  return first_accepted(PrimitiveDesc(made), reject)
#define LOCKSTEP_ONEDNN_BACKWARD(Struct, old_pass, pass, forward, ...)                       \
  dnnl_primitive_desc_t made = nullptr;                                                      \
  at.check(dnnl_##pass##_primitive_desc_create(&made, at.engine, __VA_ARGS__, forward.get(), \
                                               attributes(at).get()));                       \
  return first_accepted(PrimitiveDesc(made), reject)
// Advances to the first implementation that is not rejected; the last one if all are.
inline PrimitiveDesc first_accepted(PrimitiveDesc pd, Reject reject) {
  while (reject(name_of(pd.get())) && dnnl_primitive_desc_next_impl(pd.get()) == dnnl_success) {
  }
  return pd;
}
#else
// The first implementation that is not rejected; oneDNN's first choice if all are.
inline PrimitiveDesc primitive_desc(const Site& at, const_dnnl_op_desc_t op, const Attributes& attr,
                                    Reject reject, const_dnnl_primitive_desc_t forward = nullptr) {
  dnnl_primitive_desc_t made = nullptr;
  at.check(dnnl_primitive_desc_create(&made, op, attr.get(), at.engine, forward));
  PrimitiveDesc first(made);
  if (!reject(name_of(made))) return first;
  dnnl_primitive_desc_iterator_t place = nullptr;
  at.check(dnnl_primitive_desc_iterator_create(&place, op, attr.get(), at.engine, forward));
  const Owner<dnnl_primitive_desc_iterator, dnnl_primitive_desc_iterator_destroy> all(place);
  while (dnnl_primitive_desc_iterator_next(place) == dnnl_success) {
    PrimitiveDesc other(dnnl_primitive_desc_iterator_fetch(place));
    if (!reject(name_of(other.get()))) return other;
  }
  return first;
}
#define LOCKSTEP_ONEDNN_FORWARD(Struct, old_pass, pass, attr, ...)                \
  dnnl_##Struct##_desc_t op;                                                      \
  at.check(dnnl_##old_pass##_desc_init(&op, dnnl_forward_training, __VA_ARGS__)); \
  return primitive_desc(at, &op, attr, reject)
#define LOCKSTEP_ONEDNN_BACKWARD(Struct, old_pass, pass, forward, ...) \
  dnnl_##Struct##_desc_t op;                                           \
  at.check(dnnl_##old_pass##_desc_init(&op, __VA_ARGS__));             \
  return primitive_desc(at, &op, attributes(at), reject, forward.get())
#endif

PrimitiveDesc convolution_forward(const Site& at, const Convolution& c, bool relu, Reject reject) {
  LOCKSTEP_ONEDNN_FORWARD(convolution, dilated_convolution_forward, convolution_forward,
                          attributes(at, relu), dnnl_convolution_direct, c.x.get(), c.w.get(),
                          c.bias.get(), c.y.get(), c.strides, c.dilates, c.before, c.after);
}

PrimitiveDesc convolution_backward_data(const Site& at, const Convolution& c,
                                        const PrimitiveDesc& forward, Reject reject) {
  LOCKSTEP_ONEDNN_BACKWARD(convolution, dilated_convolution_backward_data,
                           convolution_backward_data, forward, dnnl_convolution_direct, c.x.get(),
                           c.w.get(), c.y.get(), c.strides, c.dilates, c.before, c.after);
}

PrimitiveDesc convolution_backward_weights(const Site& at, const Convolution& c,
                                           const PrimitiveDesc& forward, Reject reject) {
  LOCKSTEP_ONEDNN_BACKWARD(convolution, dilated_convolution_backward_weights,
                           convolution_backward_weights, forward, dnnl_convolution_direct,
                           c.x.get(), c.w.get(), nullptr, c.y.get(), c.strides, c.dilates, c.before,
                           c.after);
}

PrimitiveDesc inner_product_forward(const Site& at, const InnerProduct& p) {
  constexpr Reject reject = reject_none;
  LOCKSTEP_ONEDNN_FORWARD(inner_product, inner_product_forward, inner_product_forward,
                          attributes(at), p.x.get(), p.w.get(), p.bias.get(), p.y.get());
}

PrimitiveDesc inner_product_backward_data(const Site& at, const InnerProduct& p,
                                          const PrimitiveDesc& forward) {
  constexpr Reject reject = reject_none;
  LOCKSTEP_ONEDNN_BACKWARD(inner_product, inner_product_backward_data, inner_product_backward_data,
                           forward, p.x.get(), p.w.get(), p.y.get());
}

PrimitiveDesc inner_product_backward_weights(const Site& at, const InnerProduct& p,
                                             const PrimitiveDesc& forward) {
  constexpr Reject reject = reject_none;
  LOCKSTEP_ONEDNN_BACKWARD(inner_product, inner_product_backward_weights,
                           inner_product_backward_weights, forward, p.x.get(), p.w.get(), nullptr,
                           p.y.get());
}

#if DNNL_VERSION_MAJOR >= 3
#define LOCKSTEP_ONEDNN_DATA data.get(), data.get()
#else
#define LOCKSTEP_ONEDNN_DATA data.get()
#endif
inline PrimitiveDesc eltwise_forward(const Site& at, const EltwiseFunction& f,
                                     const MemoryDesc& data) {
  constexpr Reject reject = reject_none;
  LOCKSTEP_ONEDNN_FORWARD(eltwise, eltwise_forward, eltwise_forward, attributes(at), f.which,
                          LOCKSTEP_ONEDNN_DATA, f.alpha, f.beta);
}

inline PrimitiveDesc eltwise_backward(const Site& at, const EltwiseFunction& f,
                                      const MemoryDesc& data, const PrimitiveDesc& forward) {
  constexpr Reject reject = reject_none;
  LOCKSTEP_ONEDNN_BACKWARD(eltwise, eltwise_backward, eltwise_backward, forward, f.which,
                           data.get(), LOCKSTEP_ONEDNN_DATA, f.alpha, f.beta);
}

#undef LOCKSTEP_ONEDNN_DATA

Call eltwise_forward(const Site& at, const EltwiseFunction& f, const MemoryDesc& data,
                     Scratch& scratch) {
  return Call(at, eltwise_forward(at, f, data), {{DNNL_ARG_SRC, data}, {DNNL_ARG_DST, data}},
              scratch);
}

Eltwise eltwise(const Site& at, const EltwiseFunction& f, const MemoryDesc& data,
                Scratch& scratch) {
  const PrimitiveDesc pd = eltwise_forward(at, f, data);
  return {Call(at, pd, {{DNNL_ARG_SRC, data}, {DNNL_ARG_DST, data}}, scratch),
          Call(at, eltwise_backward(at, f, data, pd),
               {{f.from_y ? DNNL_ARG_DST : DNNL_ARG_SRC, data},
                {DNNL_ARG_DIFF_DST, data},
                {DNNL_ARG_DIFF_SRC, data}},
               scratch)};
}

Call relu_mask(const Site& at, const MemoryDesc& data, Scratch& scratch) {
  return eltwise(at, {dnnl_eltwise_relu_use_dst_for_bwd}, data, scratch).backward;
}

PrimitiveDesc softmax_forward(const Site& at, dnnl_alg_kind_t which, const MemoryDesc& data,
                              int axis) {
  constexpr Reject reject = reject_none;
  LOCKSTEP_ONEDNN_FORWARD(softmax_v2, softmax_v2_forward, softmax_forward, attributes(at), which,
                          data.get(), data.get(), axis);
}

PrimitiveDesc softmax_backward(const Site& at, dnnl_alg_kind_t which, const MemoryDesc& data,
                               int axis, const PrimitiveDesc& forward) {
  constexpr Reject reject = reject_none;
  LOCKSTEP_ONEDNN_BACKWARD(softmax_v2, softmax_v2_backward, softmax_backward, forward, which,
                           data.get(), data.get(), data.get(), axis);
}

#undef LOCKSTEP_ONEDNN_FORWARD
#undef LOCKSTEP_ONEDNN_BACKWARD

}  // namespace lockstep::detail::onednn
