/// \file
/// Element-wise ops, one after the other, as one pass on a GPU: an activation with the Dropout
/// behind it, and a sum with the activation behind it. Invariants: the numbers are those of the two
/// ops, without a rounding between them, and in backward to the last bit but one; what was dropped
/// is drawn again in backward.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/layer.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/ops/dropout.hpp"
#include "lockstep/devices/cuda/ops/pointwise.hpp"
#include "lockstep/layers/activations/leaky_relu.hpp"
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/add.hpp"

namespace lockstep {

/// y = dropout(activation(x)).
template <class Activation>
struct ActivationDropoutOp {
  static constexpr std::size_t draws_with = 1;  // the noise is that of the Dropout's name
  Activation activation;
  DropoutOp dropout;
  constexpr Shape out() const { return dropout.out(); }
  bool operator==(const ActivationDropoutOp&) const = default;
};

/// y = activation(x + x2), where the derivative is a function of y.
template <class Activation>
struct AddActivationOp {
  static_assert(Activation::from_y);
  AddOp add;
  Activation activation;
  constexpr Shape out() const { return add.out(); }
  bool operator==(const AddActivationOp&) const = default;
};

namespace detail::cuda {

inline constexpr char activation_dropout_text[] = R"cuda(
KERNEL(forward)(const A* x, A* y, Stream stream, i64 count) {
  each_group(count, stream, [&](i64 at, int most, const u32x4& words) {
    Four v = read(x + at, most);
    for (int k = 0; k < 4; ++k)
      v.at[k] = put<A>(words.word[k] >= THRESHOLD ? value(get(v.at[k])) * SCALE : 0.0f);
    write(y + at, v, most);
  });
}

KERNEL(backward)(const A* known, const A* dy, A* dx, Stream stream, i64 count) {
  each_group(count, stream, [&](i64 at, int most, const u32x4& words) {
    const Four seen = read(known + at, most);
    Four d = read(dy + at, most);
    for (int k = 0; k < 4; ++k) {
      // The activation's own result, where that is what its derivative takes.
      const float v = get(seen.at[k]) * KNOWN_SCALE;
      d.at[k] = put<A>(words.word[k] >= THRESHOLD ? get(d.at[k]) * SCALE * derivative(v) : 0.0f);
    }
    write(dx + at, d, most);
  });
}
)cuda";

inline constexpr char add_activation_text[] = R"cuda(
KERNEL(forward)(const A* x, const A* x2, A* y, i64 n) {
  FOR_EACH(i, n) y[i] = put<A>(value(get(x[i]) + get(x2[i])));
}
// Either result may be null.
KERNEL(backward)(const A* y, const A* dy, A* dx, A* dx2, i64 n) {
  FOR_EACH(i, n) {
    const A d = put<A>(get(dy[i]) * derivative(get(y[i])));
    if (dx) dx[i] = d;
    if (dx2) dx2[i] = d;
  }
}
)cuda";

}  // namespace detail::cuda

template <Pointwise Activation, class Precision>
  requires HasCudaText<Activation>
struct Kernel<ActivationDropoutOp<Activation>, BasicCuda<Precision>> : KernelTraits {
  using Op = ActivationDropoutOp<Activation>;
  using D = BasicCuda<Precision>;
  using Alone = Kernel<Activation, D>;
  static constexpr bool keeps_x = Alone::keeps_x, keeps_y = Alone::keeps_y,
                        in_place = Alone::in_place;
  /// Where a derivative ends at 0 it is lost by two bytes that are scaled and scaled back.
  static constexpr bool fits(const Op&) {
    return sizeof(typename Precision::activation) == 4 || !Activation::from_y ||
           std::is_same_v<Activation, ReLUOp> || std::is_same_v<Activation, LeakyReLUOp>;
  }

  [[gnu::noinline]] static void forward(const Op& op, const Io<D>& io) {
    if (!drops(op, io)) return Alone::forward(op.activation, io);
    if (io.step.count == 0) return;
    io.device.launch(kernel(op, io, "forward"), grid(op, io), io.x, io.y,
                     detail::cuda::stream_of(io), static_cast<std::int64_t>(io.step.count));
  }
  [[gnu::noinline]] static void backward(const Op& op, const Io<D>& io) {
    if (!drops(op, io)) return Alone::backward(op.activation, io);
    if (io.step.count == 0 || io.dx == nullptr) return;
    io.device.launch(kernel(op, io, "backward"), grid(op, io), Activation::from_y ? io.y : io.x,
                     io.dy, io.dx, detail::cuda::stream_of(io),
                     static_cast<std::int64_t>(io.step.count));
  }

 private:
  static bool drops(const Op& op, const Io<D>& io) {
    return io.step.training && op.dropout.rate > 0;
  }
  static detail::cuda::Grid grid(const Op& op, const Io<D>& io) {
    return detail::cuda::Grid::over(io.step.count * ((op.out().size() + 3) / 4));
  }
  static constexpr detail::cuda::JoinedText text{detail::cuda::groups_functions,
                                                 detail::cuda::activation_dropout_text};
  static CUfunction kernel(const Op& op, const Io<D>& io, const char* entry) {
    using detail::cuda::with_define;
    static constexpr detail::cuda::Source source{"activation_dropout", text,
                                                 CudaText<Activation>::functions};
    const float rate = op.dropout.rate;
    auto defines = with_define(
        detail::cuda::with_activation<Precision>(CudaText<Activation>::defines(op.activation)),
        {"SIZE", op.out().size()});
    const float scale = 1 / (1 - rate);
    return io.device.kernel(
        source, entry,
        with_define(with_define(with_define(defines, {"THRESHOLD", detail::cuda::threshold(rate)}),
                                {"SCALE", scale}),
                    {"KNOWN_SCALE", Activation::from_y ? 1 - rate : 1.0f}));
  }
};

template <Pointwise Activation, class Precision>
  requires HasCudaText<Activation>
struct Kernel<AddActivationOp<Activation>, BasicCuda<Precision>> : KernelTraits {
  using Op = AddActivationOp<Activation>;
  using D = BasicCuda<Precision>;
  static constexpr bool keeps_y = true, in_place = true;

  [[gnu::noinline]] static void forward(const Op& op, const Io<D>& io) {
    const std::size_t n = io.step.count * op.out().size();
    if (n == 0) return;
    io.device.launch(kernel(op, io, "forward"), detail::cuda::Grid::over(n), io.x, io.x2, io.y,
                     static_cast<std::int64_t>(n));
  }
  [[gnu::noinline]] static void backward(const Op& op, const Io<D>& io) {
    const std::size_t n = io.step.count * op.out().size();
    if (n == 0 || (io.dx == nullptr && io.dx2 == nullptr)) return;
    io.device.launch(kernel(op, io, "backward"), detail::cuda::Grid::over(n), io.y, io.dy, io.dx,
                     io.dx2, static_cast<std::int64_t>(n));
  }

 private:
  static CUfunction kernel(const Op& op, const Io<D>& io, const char* entry) {
    static constexpr detail::cuda::Source source{
        "add_activation", detail::cuda::add_activation_text, CudaText<Activation>::functions};
    return io.device.kernel(
        source, entry,
        detail::cuda::with_activation<Precision>(CudaText<Activation>::defines(op.activation)));
  }
};

}  // namespace lockstep
