/// \file
/// Conversion of convolution weights to cuDNN's order and type. Invariant: the flat buffer's order
/// is (taps x in, out), cuDNN's is (out, taps x in).
///
///     packed:  [ (out, taps x in) of A, rounded up to 256 bytes | bias (out) of A, likewise ]
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/devices/cuda/context.hpp"

namespace lockstep::detail::cuda {

inline constexpr Source weight_order_source{"weight_order", R"cuda(
// DEPTH = taps x in. packed[f, d] = w[d, f], then the bias.
KERNEL(pack)(const float* __restrict__ w, const float* bias, A* packed, A* packed_bias,
             i64 n) {
  FOR_EACH(i, n) {
    const i64 channel = i - (i64)DEPTH * FILTERS;
    if (channel < 0) {
      packed[i] = put<A>(w[i % DEPTH * FILTERS + i / DEPTH]);
      continue;
    }
    packed_bias[channel] = put<A>(bias ? bias[channel] : 0.0f);
  }
}
// w[d, f] = packed[f, d].
KERNEL(unpack)(const A* __restrict__ packed, float* w, i64 n) {
  FOR_EACH(i, n)
    w[i] = get(packed[i % FILTERS * DEPTH + i / FILTERS]);
}
// The epilogue for engines that do not fuse it.
KERNEL(add_bias)(A* y, const float* bias, i64 n, int channels, int relu) {
  FOR_EACH(i, n) {
    const float sum = bias ? get(y[i]) + bias[i % channels] : get(y[i]);
    y[i] = put<A>(relu && sum < 0 ? 0.0f : sum);
  }
}
)cuda"};

/// A step's packed weights, shared by the two passes that read them: the first one packs, then they
/// are `ready`.
struct PackedWeights {
  std::byte* place = nullptr;
  bool ready = false;
};

/// Kernels that convert weights between the two orders.
template <class Precision>
class WeightOrder {
 public:
  using A = typename Precision::activation;

  WeightOrder() = default;
  /// `depth`: taps x in.
  WeightOrder(CudaContext& context, std::int64_t depth, std::int64_t filters)
      : size_(depth * filters), filters_(filters) {
    const std::initializer_list<Define> defines{
        {"ACTIVATION", activation_code<Precision>}, {"DEPTH", depth}, {"FILTERS", filters}};
    pack_ = context.kernel(weight_order_source, "pack", defines);
    unpack_ = context.kernel(weight_order_source, "unpack", defines);
    add_ = context.kernel(weight_order_source, "add_bias", defines);
  }

  /// Bytes of packed weights followed by a bias, each rounded up to 256.
  static constexpr std::size_t bytes(std::size_t weights, std::size_t filters) {
    return rounded(weights) + rounded(filters);
  }
  std::size_t bytes() const {
    return bytes(static_cast<std::size_t>(size_), static_cast<std::size_t>(filters_));
  }
  A* weights(std::byte* packed) const { return reinterpret_cast<A*>(packed); }
  A* bias(std::byte* packed) const { return reinterpret_cast<A*>(packed + bias_at()); }

  /// Packs the weights; with `with_bias` also the bias, or zeros if it is null.
  void pack(CudaContext& context, const float* w, const float* bias, std::byte* to,
            bool with_bias) const {
    const std::int64_t n = size_ + (with_bias ? filters_ : 0);
    context.launch(pack_, Grid::over(static_cast<std::size_t>(n)), w, bias, weights(to),
                   this->bias(to), n);
  }
  /// Converts a gradient back to the flat buffer's order and to float.
  void unpack(CudaContext& context, std::byte* from, float* w) const {
    context.launch(unpack_, Grid::over(static_cast<std::size_t>(size_)),
                   static_cast<const A*>(weights(from)), w, size_);
  }
  /// y += bias, then y = max(y, 0) with `relu`; `n` elements in `channels` channels. `bias` may be
  /// null.
  void add_bias(CudaContext& context, A* y, const float* bias, std::int64_t n, int channels,
                bool relu) const {
    context.launch(add_, Grid::over(static_cast<std::size_t>(n)), y, bias, n, channels,
                   relu ? 1 : 0);
  }

 private:
  static constexpr std::size_t rounded(std::size_t n) { return (n * sizeof(A) + 255) / 256 * 256; }
  /// Offset of the bias in packed weights, in bytes.
  std::size_t bias_at() const { return rounded(static_cast<std::size_t>(size_)); }

  std::int64_t size_ = 0, filters_ = 0;
  CUfunction pack_ = nullptr, unpack_ = nullptr, add_ = nullptr;
};

}  // namespace lockstep::detail::cuda
