/// \file
/// The one place that knows which oneDNN this is: version 2.6 or 3. It goes through the C
/// interface, whose header is little work for the compiler. Invariants: a Call allocates nothing of
/// ours when it runs; all its memory is bound by the caller; errors of oneDNN leave as DeviceError;
/// a Call runs with the number of threads that it was planned for, or not at all.
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep::detail::onednn {

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* object) const {
    destroy(object);
  }
};
template <class T, auto destroy>
using Owner = std::unique_ptr<T, Destroy<destroy>>;
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
    if (status != dnnl_success) throw_error(status);
  }
  /// \throws DeviceError unless OpenMP gives the calling thread a team of `threads`: with another
  /// one, a primitive that is planned for them writes a part of its result or waits for ever.
  LOCKSTEP_DECL void check_team(int threads) const;

 private:
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_error(dnnl_status_t status) const;
};

LOCKSTEP_COLD_DECL Engine make_engine();
LOCKSTEP_COLD_DECL Stream make_stream(const Engine& engine);

template <class T>
constexpr dnnl_data_type_t data_type() {
  constexpr bool is_half = std::is_same_v<T, bfloat16>;
  static_assert(std::is_same_v<T, float> || is_half,
                "lockstep::Cpu: no oneDNN type for this element type; use Float32 or "
                "MixedBFloat16");
  return is_half ? dnnl_bf16 : dnnl_f32;
}

/// Whether this oneDNN multiplies in bfloat16 here, by AMX or AVX-512.
LOCKSTEP_DECL bool has_bfloat16();

/// Type, dimensions and layout of a tensor, or of none.
class MemoryDesc {
 public:
#if DNNL_VERSION_MAJOR >= 3
  using Pointer = const_dnnl_memory_desc_t;
#else
  using Pointer = const dnnl_memory_desc_t*;
#endif

  MemoryDesc() = default;
  LOCKSTEP_COLD_DECL MemoryDesc(const Site& at, dnnl_data_type_t type,
                                std::initializer_list<std::ptrdiff_t> dims, dnnl_format_tag_t tag);
  /// One that `pd` has chosen.
  LOCKSTEP_COLD_DECL MemoryDesc(const Site& at, const PrimitiveDesc& pd, dnnl_query_t which);

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
  LOCKSTEP_COLD_DECL Call(const Site& at, const PrimitiveDesc& pd,
                          std::initializer_list<Argument> arguments, Scratch& scratch);
  explicit operator bool() const { return state_ != nullptr; }

  /// Binds the arguments in the order of the constructor, null ones left out, and runs.
  LOCKSTEP_DECL void operator()(dnnl_stream_t stream, std::byte* scratch,
                                std::initializer_list<const void*> pointers);

 private:
  struct State;
  struct Delete {
    LOCKSTEP_COLD_DECL void operator()(State* state) const;
  };
  std::unique_ptr<State, Delete> state_;
};

/// Scratch belongs to the caller; `relu` is applied to the result.
LOCKSTEP_COLD_DECL Attributes attributes(const Site& at, bool relu = false);

/// A copy between two layouts of one tensor.
LOCKSTEP_COLD_DECL Call reorder(const Site& at, const MemoryDesc& from, const MemoryDesc& to,
                                Scratch& scratch);

/// Weights in the layout and type that a pass wants, and those of the caller: a copy in scratch
/// between them, unless they are equal.
class LayoutChange {
 public:
  LayoutChange() = default;
  LOCKSTEP_COLD_DECL LayoutChange(const Site& at, const MemoryDesc& from, const MemoryDesc& to,
                                  Scratch& scratch);
  /// `w` as the pass wants it.
  const void* pack(dnnl_stream_t stream, std::byte* scratch, const void* w) {
    if (!copy_) return w;
    copy_(stream, scratch, {w, scratch + packed_});
    return scratch + packed_;
  }
  /// Where the pass is to write what belongs to `dw`.
  void* destination(std::byte* scratch, void* dw) const { return copy_ ? scratch + packed_ : dw; }
  /// After it has written there.
  void unpack(dnnl_stream_t stream, std::byte* scratch, void* dw) {
    if (copy_) copy_(stream, scratch, {scratch + packed_, dw});
  }

 private:
  Call copy_;
  std::size_t packed_ = 0;
};

/// What oneDNN calls the code that it would run.
LOCKSTEP_DECL std::string_view name_of(const_dnnl_primitive_desc_t pd);
/// Whether oneDNN would run its plain, very slow loops.
LOCKSTEP_DECL bool is_slow(const PrimitiveDesc& pd);

/// Code that is not to be taken if there is other, by its name.
using Reject = bool (*)(std::string_view name);
inline bool reject_none(std::string_view) { return false; }

/// What the three passes of a convolution share; dilates count the gaps.
struct Convolution {
  MemoryDesc x, w, bias, y;
  dnnl_dims_t strides, dilates, before, after;
};

LOCKSTEP_COLD_DECL PrimitiveDesc convolution_forward(const Site& at, const Convolution& c,
                                                     bool relu, Reject reject);
LOCKSTEP_COLD_DECL PrimitiveDesc convolution_backward_data(const Site& at, const Convolution& c,
                                                           const PrimitiveDesc& forward);
/// Without the gradient of the bias: see column_sums.hpp.
LOCKSTEP_COLD_DECL PrimitiveDesc convolution_backward_weights(const Site& at, const Convolution& c,
                                                              const PrimitiveDesc& forward,
                                                              Reject reject);

struct InnerProduct {
  MemoryDesc x, w, bias, y;
};
LOCKSTEP_COLD_DECL PrimitiveDesc inner_product_forward(const Site& at, const InnerProduct& p,
                                                       bool relu);
LOCKSTEP_COLD_DECL PrimitiveDesc inner_product_backward_data(const Site& at, const InnerProduct& p,
                                                             const PrimitiveDesc& forward);
/// Without the gradient of the bias: see column_sums.hpp.
LOCKSTEP_COLD_DECL PrimitiveDesc inner_product_backward_weights(const Site& at,
                                                                const InnerProduct& p,
                                                                const PrimitiveDesc& forward);

/// A function of single elements: `from_y` if its gradient is computed from y, else from x.
struct EltwiseFunction {
  dnnl_alg_kind_t which;
  float alpha = 0, beta = 0;
  bool from_y = true;
};

/// Calls of an element-wise function: forward (x, y); backward (y if `from_y`, else x; dy; dx).
struct Eltwise {
  Call forward, backward;
};
LOCKSTEP_COLD_DECL Eltwise eltwise(const Site& at, const EltwiseFunction& f, const MemoryDesc& data,
                                   Scratch& scratch);

/// The gradient through a ReLU: (y, dy, dx).
LOCKSTEP_COLD_DECL Call relu_mask(const Site& at, const MemoryDesc& data, Scratch& scratch);

LOCKSTEP_COLD_DECL PrimitiveDesc softmax_forward(const Site& at, dnnl_alg_kind_t which,
                                                 const MemoryDesc& data, int axis);
LOCKSTEP_COLD_DECL PrimitiveDesc softmax_backward(const Site& at, dnnl_alg_kind_t which,
                                                  const MemoryDesc& data, int axis,
                                                  const PrimitiveDesc& forward);

}  // namespace lockstep::detail::onednn

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cpu/onednn.ipp"
#endif
