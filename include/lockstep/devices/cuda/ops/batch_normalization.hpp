/// \file
/// BatchNormalization on a GPU, alone or with a fused epilogue. Invariants: memory is read once for
/// the statistics and once for the sums of backward; each thread adds eight rows in float, relative
/// to the first of them, and everything else in double, in an order that depends only on the sizes;
/// statistics stay on the GPU; with `synchronized` the members of a group gather theirs and merge
/// them in rank order.
///
///     forward, training:   moments [-> all_gather -> merge] -> normalize
///     forward, inference:  load_statistics -> normalize
///     backward:            sums [-> all_reduce] -> gradient; after inference the sums are 0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/growing_buffer.hpp"
#include "lockstep/devices/cuda/support/batch_normalization_text.hpp"
#include "lockstep/devices/cuda/support/columns.hpp"
#include "lockstep/devices/cuda/support/sums.hpp"
#include "lockstep/layers/normalization/batch_normalization.hpp"

namespace lockstep {

namespace detail::cuda {

/// For the moments of all members of a group, whose number is known only at run time.
struct MomentsBuffer : GrowingBuffer {};

/// The epilogue applied to the normalized rows in the same pass.
enum class NormalizationTail { none, relu, add_relu };

/// Keeps x[0] and, with an addition, y; `saved_once` is the memory called `once` in the text.
template <class Precision, NormalizationTail Tail>
struct BatchNormalizationKernel : KernelTraits {
  using D = BasicCuda<Precision>;
  using Op = BatchNormalizationOp;
  static constexpr bool keeps_y = Tail == NormalizationTail::add_relu, handles_recompute = true,
                        skips_dw = true;
  static constexpr bool keeps_x(const auto&, std::size_t operand) { return operand == 0; }
  static constexpr bool exchanges(const Op& op) { return op.synchronized; }
  static constexpr bool updates_state(const Op&) { return true; }
  static constexpr std::size_t saved_once(const Op& op) {
    return (1 + 4 * op.channels()) * sizeof(double);
  }

  /// How blocks map to rows, and scratch for their partial sums.
  struct Prepared {
    Prepared(const Op& op, std::size_t examples)
        : columns(op.channels()),
          rows(static_cast<std::int64_t>(examples * op.rows())),
          parts(columns.parts(examples * op.rows())) {}
    std::size_t scratch_bytes() const { return columns.scratch_bytes(parts); }
    Columns columns;
    std::int64_t rows;
    int parts;
  };
  static Prepared prepare(const Op& op, typename D::Context&, std::size_t count) {
    return {op, count};
  }

  /// A recomputed forward pass (`step.again`) reuses the statistics.
  static void forward(const Op& op, const Io<D>& io, Prepared& p) {
    double* const once = reinterpret_cast<double*>(io.once);
    if (io.step.training && !io.step.is_recompute)
      find_statistics(op, io, p, once);
    else if (!io.step.is_recompute)
      launch(op, io.device, "load_statistics", over_channels(op), io.state, once);
    if (io.step.count > 0)
      launch(op, io.device, "normalize", over_rows(p), io.x[0], added(io), io.y, io.w, once, p.rows,
             p.parts);
  }

  /// With shared statistics a member without examples still joins the exchange.
  static void backward(const Op& op, const Io<D>& io, Prepared& p) {
    const std::size_t channels = op.channels();
    double* const once = reinterpret_cast<double*>(io.once);
    double* const sums = once + 1 + 2 * channels;  // (2, channels)
    auto* const dx2 = gradient_of_added(io);
    const bool wants_sums = io.step.training || io.dw != nullptr || dx2 != nullptr;
    if (io.step.count > 0 && wants_sums) {
      double* const parts = reinterpret_cast<double*>(io.scratch);
      launch(op, io.device, "sums", over_rows(p), io.x[0], io.y, io.dy, dx2, io.w, once, io.dw,
             parts, p.rows, p.parts, workspace(io.device));
    } else if (io.dw != nullptr) {
      const std::size_t tensors = std::size_t(op.scale) + std::size_t(op.center);
      io.device.clear(reinterpret_cast<std::byte*>(io.dw),
                      tensors * channels * sizeof(typename D::real));
    }
    if (io.dx[0] == nullptr) return;
    if (!io.step.training) {
      clear(io, sums, 2 * channels);
    } else if (is_shared(op, io)) {
      if (io.step.count == 0) clear(io, sums, 2 * channels);
      io.step.group.all_reduce(sums, 2 * channels);
    }
    const bool done = dx2 != nullptr;
    if (io.step.count > 0)
      launch(op, io.device, "gradient", over_rows(p), io.x[0], io.y, done ? dx2 : io.dy, io.dx[0],
             io.w, once, p.rows, p.parts, done ? 1 : 0);
  }

 private:
  static constexpr Source source{"batch_normalization", batch_normalization_text,
                                 columns_functions};

  /// x[1] and its gradient; null without an addition.
  static const ActivationOf<D>* added(const Io<D>& io) {
    return Tail == NormalizationTail::add_relu ? io.x[1] : nullptr;
  }
  static ActivationOf<D>* gradient_of_added(const Io<D>& io) {
    return Tail == NormalizationTail::add_relu ? io.dx[1] : nullptr;
  }

  /// Whether statistics are exchanged with other members.
  static bool is_shared(const Op& op, const Io<D>& io) {
    return op.synchronized && io.step.group.size() > 1;
  }

  /// Computes batch statistics, of all members if shared, and updates the running statistics.
  static void find_statistics(const Op& op, const Io<D>& io, const Prepared& p, double* once) {
    const bool shared = is_shared(op, io);
    if (io.step.count > 0)
      launch(op, io.device, "moments", over_rows(p), io.x[0], reinterpret_cast<double*>(io.scratch),
             p.rows, p.parts, once, shared ? nullptr : io.state, op.momentum, workspace(io.device));
    if (!shared) return;
    const std::size_t size = 1 + 2 * op.channels(), members = io.step.group.size();
    if (io.step.count == 0) clear(io, once, size);
    const CUdeviceptr workspace =
        io.device.template handle<MomentsBuffer>().get(io.device, members * size * sizeof(double));
    auto* const all = reinterpret_cast<double*>(workspace);
    io.step.group.all_gather(reinterpret_cast<const std::byte*>(once), size * sizeof(double),
                             reinterpret_cast<std::byte*>(all));
    launch(op, io.device, "merge", over_channels(op), all, static_cast<int>(members), once,
           io.state, op.momentum);
  }
  static void clear(const Io<D>& io, double* p, std::size_t n) {
    io.device.clear(reinterpret_cast<std::byte*>(p), n * sizeof(double));
  }

  static CUdeviceptr workspace(CudaContext& context) {
    return context.handle<SumWorkspace>().get();
  }
  static Grid over_rows(const Prepared& p) { return p.columns.grid(p.parts); }
  static Grid over_channels(const Op& op) { return Grid::over(op.channels(), 32); }

  template <class... Ts>
  static void launch(const Op& op, CudaContext& context, const char* entry, const Grid& grid,
                     const Ts&... arguments) {
    const auto defines = with_activation<Precision>(
        std::array{Define("LANES", Columns(op.channels()).lanes), Define("CHANNELS", op.channels()),
                   Define("EPSILON", op.epsilon), Define("CENTER", op.center),
                   Define("SCALE", op.scale), Define("TAIL", static_cast<int>(Tail))});
    context.launch(context.kernel(source, entry, defines), grid, arguments...);
  }
};

}  // namespace detail::cuda

template <class Precision>
struct Kernel<BatchNormalizationOp, BasicCuda<Precision>>
    : detail::cuda::BatchNormalizationKernel<Precision, detail::cuda::NormalizationTail::none> {
  using library_kernel = Kernel;
};

static_assert(HasKernel<BatchNormalizationOp, Cuda>);

}  // namespace lockstep
