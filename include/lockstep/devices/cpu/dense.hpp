/// \file
/// Dense on the CPU: hand-written tiles (DenseTiles), a split over inputs (DenseByInputs), or
/// oneDNN, by the layer's size and the number of threads; forward of a few examples is a loop over
/// rows (DenseRows). Invariant: in float the kernel stays in
/// the flat buffer's layout (inputs, units) in all passes, since oneDNN reaches the same share of
/// the peak with that layout as with its own, without a copy. In bfloat16 the kernel must be
/// converted anyway, and is converted into oneDNN's layout.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/column_sums.hpp"
#include "lockstep/devices/cpu/dense_by_inputs.hpp"
#include "lockstep/devices/cpu/dense_rows.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/elements.hpp"
#include "lockstep/devices/cpu/fused/dense_tiles.hpp"
#include "lockstep/devices/cpu/onednn.hpp"
#include "lockstep/layers/dense.hpp"

namespace lockstep {
namespace detail {

/// The prepared passes of one inner product at one batch size, optionally followed by a ReLU.
/// At most one of tiles_, by_inputs_ and the oneDNN calls is in use, and rows_ takes the place of
/// its forward.
template <class D>
class InnerProductCalls {
 public:
  using T = typename D::real;
  using A = ActivationOf<D>;

  InnerProductCalls() = default;
  /// `tiles` = false leaves the work of DenseTiles to oneDNN, for benchmarks. With ForwardOnly,
  /// backward must not be called.
  template <std::same_as<ForwardOnly>... Only>
  [[gnu::cold]] InnerProductCalls(const DenseOp& op, CpuContext<T>& context, std::size_t count,
                                  bool relu, bool tiles = true, Only... only)
      : relu_(relu) {
    count *= op.rows();
    if (count == 0) return;
    if (std::is_same_v<A, float> && tiles && DenseTiles::fits(op, count, context.threads())) {
      tiles_ = DenseTiles(op, count, relu);
      if (sizeof...(only) == 0) backward_scratch_.add(tiles_.scratch_bytes());
      return;
    }
    if (std::is_same_v<A, float> && DenseRows::fits(op, count, context.threads())) {
      rows_ = DenseRows(op, count, relu);
      if (sizeof...(only) > 0) return;  // backward is one of those below
    }
    const auto scope = context.scope();
    if (std::is_same_v<A, float> && DenseByInputs::fits(op, count, context.threads())) {
      by_inputs_ = DenseByInputs(context.threads(), relu);
      forward_scratch_.add(by_inputs_.scratch_bytes(op, count));
      return;
    }
    prepare(op, {"dense", op.out(), context.engine()}, static_cast<std::ptrdiff_t>(count),
            context.threads(), only...);
  }

  std::size_t scratch_bytes() const {
    return std::max(forward_scratch_.bytes(), backward_scratch_.bytes());
  }

  /// io.y (count, units) = io.x[0] (count, inputs) kernel + bias, then the ReLU, if any.
  void forward(const DenseOp& op, const Io<D>& io) {
    if (io.step.count == 0) return;
    if constexpr (std::is_same_v<A, float>) {
      if (rows_) return rows_.forward(io.x[0], io.w, io.y);
      if (tiles_) return tiles_.forward(io.x[0], io.w, io.y);
      if (by_inputs_)
        return by_inputs_.forward(op, site(op, io), io.step.count * op.rows(), io.x[0], io.w, io.y,
                                  reinterpret_cast<float*>(io.scratch));
    }
    const dnnl_stream_t stream = io.device.stream();
    forward_(stream, io.scratch,
             {io.x[0], pack_forward_.pack(stream, io.scratch, io.w), io.y,
              op.bias ? io.w + op.kernel_size() : nullptr});
    if (relu_)
      rectify(io.device.threads(), io.y, io.y, io.step.count * op.out().size(),
              std::numeric_limits<float>::infinity());
  }

  /// Writes io.dw and io.dx[0], except for one that is null. DenseTiles calls io.update for each block of
  /// weights; the other ways call it once, at the end.
  void backward(const DenseOp& op, const Io<D>& io) {
    if constexpr (std::is_same_v<A, float>)
      if (tiles_ && io.step.count > 0)
        return tiles_.backward(io.x[0], io.w, io.y, io.dy, io.dx[0], io.dw,
                               reinterpret_cast<float*>(io.scratch), io.update);
    gradients(op, io);
    if (io.update) io.update(io.dw, op.weights());
  }

 private:
  static onednn::Site site(const DenseOp& op, const Io<D>& io) {
    return {"dense", op.out(), io.device.engine()};
  }

  /// Finishes dw before it writes dx, which may alias x.
  void gradients(const DenseOp& op, const Io<D>& io) {
    if (io.step.count == 0) {
      if (io.dw != nullptr) std::fill_n(io.dw, op.weights(), T(0));
      return;
    }
    if constexpr (std::is_same_v<A, float>)
      if (by_inputs_)
        return by_inputs_.backward(op, site(op, io), io.step.count * op.rows(), io.x[0], io.w, io.y,
                                   io.dy, io.dx[0], io.dw, reinterpret_cast<float*>(io.scratch));
    const dnnl_stream_t stream = io.device.stream();
    const A* dy = io.dy;
    if (mask_) {
      A* const masked = reinterpret_cast<A*>(io.scratch + masked_);
      mask_(stream, io.scratch, {io.y, io.dy, masked});
      dy = masked;
    }
    if (io.dw != nullptr) {
      backward_weights_(stream, io.scratch, {io.x[0], dy, unpack_.destination(io.scratch, io.dw)});
      unpack_.unpack(stream, io.scratch, io.dw);
    }
    if (op.bias && io.dw != nullptr)
      column_sums(io.device.threads(), dy, io.step.count * op.rows(),
                  static_cast<std::size_t>(op.units), io.dw + op.kernel_size(),
                  io.scratch + bias_sums_);
    if (io.dx[0] != nullptr)
      backward_data_(stream, io.scratch,
                     {io.dx[0], pack_backward_.pack(stream, io.scratch, io.w), dy});
  }

  /// Creates oneDNN's calls and lays out scratch. With activations of another type than the
  /// weights, each pass converts the kernel in scratch, from or to `plain`.
  template <class... Only>
  [[gnu::noinline, gnu::cold]] void prepare(const DenseOp& op, const onednn::Site& at,
                                            std::ptrdiff_t n, [[maybe_unused]] int threads,
                                            Only...) {
    using onednn::Call, onednn::MemoryDesc;
    constexpr dnnl_data_type_t type = onednn::data_type<A>(), real = onednn::data_type<T>();
    constexpr dnnl_format_tag_t layout = std::is_same_v<A, T> ? dnnl_ba : dnnl_format_tag_any;
    const MemoryDesc plain(at, real, {op.units, op.inputs}, dnnl_ba);
    onednn::InnerProduct p{
        .x = {at, type, {n, op.inputs}, dnnl_ab},
        .w = {at, type, {op.units, op.inputs}, layout},
        .bias = op.bias ? MemoryDesc(at, real, {op.units}, dnnl_a) : MemoryDesc(),
        .y = {at, type, {n, op.units}, dnnl_ab}};
    const auto forward = onednn::inner_product_forward(at, p);
    const MemoryDesc w(at, forward, dnnl_query_weights_md);
    forward_ = Call(
        at, forward,
        {{DNNL_ARG_SRC, p.x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, p.y}, {DNNL_ARG_BIAS, p.bias}},
        forward_scratch_);
    pack_forward_ = onednn::LayoutChange(at, plain, w, forward_scratch_);
    if constexpr (sizeof...(Only) == 0) prepare_backward(op, at, p, forward, plain, threads);
  }

  [[gnu::noinline, gnu::cold]] void prepare_backward(const DenseOp& op, const onednn::Site& at,
                                                     onednn::InnerProduct& p,
                                                     const onednn::PrimitiveDesc& forward,
                                                     const onednn::MemoryDesc& plain, int threads) {
    using onednn::Call, onednn::MemoryDesc;
    constexpr dnnl_data_type_t real = onednn::data_type<T>();
    const auto layout = std::is_same_v<A, T> ? dnnl_ba : dnnl_format_tag_any;
    const auto data = onednn::inner_product_backward_data(at, p, forward);
    const MemoryDesc w_back(at, data, dnnl_query_weights_md);
    backward_data_ = Call(
        at, data, {{DNNL_ARG_DIFF_SRC, p.x}, {DNNL_ARG_WEIGHTS, w_back}, {DNNL_ARG_DIFF_DST, p.y}},
        backward_scratch_);
    pack_backward_ = onednn::LayoutChange(at, plain, w_back, backward_scratch_);

    p.w = {at, real, {op.units, op.inputs}, layout};
    const auto weights = onednn::inner_product_backward_weights(at, p, forward);
    const MemoryDesc dw(at, weights, dnnl_query_diff_weights_md);
    backward_weights_ = Call(
        at, weights, {{DNNL_ARG_SRC, p.x}, {DNNL_ARG_DIFF_DST, p.y}, {DNNL_ARG_DIFF_WEIGHTS, dw}},
        backward_scratch_);
    bias_sums_ =
        backward_scratch_.add(column_sums_bytes(threads, static_cast<std::size_t>(op.units)));
    unpack_ = onednn::LayoutChange(at, dw, plain, backward_scratch_);
    if (relu_) {
      mask_ = onednn::relu_mask(at, p.y, backward_scratch_);
      masked_ = backward_scratch_.add(p.y.bytes());
    }
  }

  DenseRows rows_;
  DenseTiles tiles_;
  DenseByInputs by_inputs_;
  onednn::Call forward_, mask_, backward_weights_, backward_data_;
  onednn::LayoutChange pack_forward_, unpack_, pack_backward_;
  onednn::Scratch forward_scratch_, backward_scratch_;
  std::size_t masked_ = 0, bias_sums_ = 0;  // offsets in scratch, bytes
  bool relu_ = false;
};

}  // namespace detail

template <class P>
struct Kernel<DenseOp, BasicCpu<P>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  using Prepared = detail::InnerProductCalls<D>;
  static constexpr bool keeps_x = true, dx_in_place = true, updates = true, skips_dw = true;

  template <std::same_as<ForwardOnly>... Only>
  static Prepared prepare(const DenseOp& op, typename D::Context& context, std::size_t count,
                          Only... only) {
    return Prepared(op, context, count, false, true, only...);
  }
  static void forward(const DenseOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.forward(op, io);
  }
  static void backward(const DenseOp& op, const Io<D>& io, Prepared& prepared) {
    prepared.backward(op, io);
  }
};

static_assert(HasKernel<DenseOp, Cpu> && HasKernel<DenseOp, CpuBFloat16>);

}  // namespace lockstep
