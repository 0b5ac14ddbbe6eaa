/// \file
/// Wrapper of oneDNN, and the only file that depends on its version, 2.6 or 3.x. It uses the C
/// interface, whose header compiles fast.
///
///     MemoryDesc ---> PrimitiveDesc ---> Call           made once, in a kernel's prepare()
///     (tensors)       (oneDNN chose an    | operator()  in each step: binds pointers, checks the
///                      implementation)    v             team, executes
///                                        dnnl_primitive_execute
///
/// Invariants: running a Call performs no allocation by lockstep; the caller owns all memory,
/// scratchpad included; oneDNN's errors are thrown as DeviceError; a Call runs with exactly the
/// number of threads that it was planned for, or throws.
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/config.hpp"
#include "lockstep/core/numbers/bfloat16.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep::detail::onednn {

// Owners of oneDNN's C handles.
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
using PrimitiveDesc = Owner<dnnl_primitive_desc, dnnl_primitive_desc_destroy>;
using PostOps = Owner<dnnl_post_ops, dnnl_post_ops_destroy>;
using Primitive = Owner<dnnl_primitive, dnnl_primitive_destroy>;

/// The op that oneDNN's objects belong to, for error messages: its name and the shape of its
/// result.
struct Site {
  const char* op;
  Shape result;
  dnnl_engine_t engine = nullptr;

  /// \throws DeviceError unless `status` is success.
  void check(dnnl_status_t status) const {
    if (status != dnnl_success) throw_error(status);
  }
  /// \throws DeviceError unless OpenMP would form a team of `threads` for the calling thread. Run
  /// by a team of another size, a primitive writes only part of its result or deadlocks.
  LOCKSTEP_DECL void check_team(int threads) const;

 private:
  [[noreturn]] LOCKSTEP_COLD_DECL void throw_error(dnnl_status_t status) const;
};

LOCKSTEP_COLD_DECL Engine make_engine();
LOCKSTEP_COLD_DECL Stream make_stream(const Engine& engine);

/// oneDNN's enumerator for T.
template <class T>
constexpr dnnl_data_type_t data_type() {
  constexpr bool is_half = std::is_same_v<T, bfloat16>;
  static_assert(std::is_same_v<T, float> || is_half,
                "lockstep::Cpu: no oneDNN type for this element type; use Float32 or "
                "MixedBFloat16");
  return is_half ? dnnl_bf16 : dnnl_f32;
}

/// Whether oneDNN uses bfloat16 instructions (AVX-512 or AMX) on this machine.
LOCKSTEP_DECL bool has_bfloat16();

/// Type, dimensions and layout of a tensor; empty if the op has no such tensor (e.g. no bias).
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
  /// The layout that the primitive chose for one of its tensors.
  LOCKSTEP_COLD_DECL MemoryDesc(const Site& at, const PrimitiveDesc& pd, dnnl_query_t which);

  /// Null if empty.
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

/// Lays out the buffers in a kernel's scratch memory, each aligned to 64 bytes.
class Scratch {
 public:
  /// Reserves `bytes`; returns the buffer's offset.
  std::size_t add(std::size_t bytes) {
    const std::size_t offset = bytes_;
    bytes_ += (bytes + 63) / 64 * 64;
    return offset;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

/// A tensor argument of a primitive: DNNL_ARG_..., and its descriptor.
struct Argument {
  int index;
  const MemoryDesc& desc;
};

/// A primitive with its memory objects: created once, bound to pointers and executed in each step.
class Call {
 public:
  Call() = default;
  /// Arguments whose descriptor is empty are skipped. Reserves the scratchpad in `scratch`.
  LOCKSTEP_COLD_DECL Call(const Site& at, const PrimitiveDesc& pd,
                          std::initializer_list<Argument> arguments, Scratch& scratch);
  explicit operator bool() const { return state_ != nullptr; }

  /// Binds `pointers` to the arguments in the constructor's order, skipping null, and executes.
  /// \throws DeviceError if oneDNN fails or the OpenMP team has changed.
  LOCKSTEP_DECL void operator()(dnnl_stream_t stream, std::byte* scratch,
                                std::initializer_list<const void*> pointers);

 private:
  struct State;
  struct Delete {
    LOCKSTEP_COLD_DECL void operator()(State* state) const;
  };
  std::unique_ptr<State, Delete> state_;
};

/// Primitive attributes: scratchpad supplied by the caller; with `relu`, a ReLU as post-op, which
/// maps NaN to 0.
LOCKSTEP_COLD_DECL Attributes attributes(const Site& at, bool relu = false);

/// A copy of a tensor into another layout or type.
LOCKSTEP_COLD_DECL Call reorder(const Site& at, const MemoryDesc& from, const MemoryDesc& to,
                                Scratch& scratch);

/// Conversion between the caller's layout and type of the weights and those of a pass, through a
/// copy in scratch. Does nothing if the two are equal.
class LayoutChange {
 public:
  LayoutChange() = default;
  LOCKSTEP_COLD_DECL LayoutChange(const Site& at, const MemoryDesc& from, const MemoryDesc& to,
                                  Scratch& scratch);
  /// Returns `w` in the layout of the pass: a copy, or `w` itself.
  const void* pack(dnnl_stream_t stream, std::byte* scratch, const void* w) {
    if (!copy_) return w;
    copy_(stream, scratch, {w, scratch + packed_});
    return scratch + packed_;
  }
  /// The buffer for the pass to write its weight gradient to.
  void* destination(std::byte* scratch, void* dw) const { return copy_ ? scratch + packed_ : dw; }
  /// Converts the gradient in that buffer into `dw`.
  void unpack(dnnl_stream_t stream, std::byte* scratch, void* dw) {
    if (copy_) copy_(stream, scratch, {scratch + packed_, dw});
  }

 private:
  Call copy_;
  std::size_t packed_ = 0;
};

/// oneDNN's name of the chosen implementation, such as "jit:avx2".
LOCKSTEP_DECL std::string_view name_of(const_dnnl_primitive_desc_t pd);
/// Whether oneDNN chose its reference implementation, which is very slow.
LOCKSTEP_DECL bool is_slow(const PrimitiveDesc& pd);

/// Predicate on implementation names: true to skip one if there is an alternative.
using Reject = bool (*)(std::string_view name);
inline bool reject_none(std::string_view) { return false; }

/// Tensors and geometry of a convolution, shared by its three passes. As in oneDNN, `dilates` is
/// the dilation minus 1.
struct Convolution {
  MemoryDesc x, w, bias, y;
  dnnl_dims_t strides, dilates, before, after;
};

/// Training forward pass, with an optional ReLU as post-op.
LOCKSTEP_COLD_DECL PrimitiveDesc convolution_forward(const Site& at, const Convolution& c,
                                                     bool relu, Reject reject);
LOCKSTEP_COLD_DECL PrimitiveDesc convolution_backward_data(const Site& at, const Convolution& c,
                                                           const PrimitiveDesc& forward,
                                                           Reject reject);
/// Computes dw only; for the bias gradient see column_sums.hpp.
LOCKSTEP_COLD_DECL PrimitiveDesc convolution_backward_weights(const Site& at, const Convolution& c,
                                                              const PrimitiveDesc& forward,
                                                              Reject reject);

/// Tensors of an inner product, shared by its three passes.
struct InnerProduct {
  MemoryDesc x, w, bias, y;
};
LOCKSTEP_COLD_DECL PrimitiveDesc inner_product_forward(const Site& at, const InnerProduct& p);
LOCKSTEP_COLD_DECL PrimitiveDesc inner_product_backward_data(const Site& at, const InnerProduct& p,
                                                             const PrimitiveDesc& forward);
/// Computes dw only; for the bias gradient see column_sums.hpp.
LOCKSTEP_COLD_DECL PrimitiveDesc inner_product_backward_weights(const Site& at,
                                                                const InnerProduct& p,
                                                                const PrimitiveDesc& forward);

/// An element-wise function of oneDNN. `from_y`: backward computes the derivative from y, otherwise
/// from x.
struct EltwiseFunction {
  dnnl_alg_kind_t which;
  float alpha = 0, beta = 0;
  bool from_y = true;
};

/// Calls of an element-wise function. Arguments: forward (x, y); backward (y if `from_y`, else x;
/// dy; dx).
struct Eltwise {
  Call forward, backward;
};
LOCKSTEP_COLD_DECL Eltwise eltwise(const Site& at, const EltwiseFunction& f, const MemoryDesc& data,
                                   Scratch& scratch);

/// The forward pass alone.
LOCKSTEP_COLD_DECL Call eltwise_forward(const Site& at, const EltwiseFunction& f,
                                        const MemoryDesc& data, Scratch& scratch);

/// The backward pass of a ReLU: dx = dy where y is positive or NaN, otherwise 0 dy. Arguments: (y,
/// dy, dx).
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
