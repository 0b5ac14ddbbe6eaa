/// \file
/// TiedDense on the CPU in float: three products of oneDNN in the layout of the matrix.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/onednn.hpp"
#include "lockstep/devices/host/tied_dense.hpp"
#include "lockstep/layers/tied_dense.hpp"

namespace lockstep {

template <class P>
  requires std::is_same_v<ActivationOf<BasicCpu<P>>, float>
struct Kernel<TiedDenseOp, BasicCpu<P>> : KernelTraits {
  using library_kernel = Kernel;
  using D = BasicCpu<P>;
  static constexpr bool keeps_x = true;

  static void forward(const TiedDenseOp& op, const Io<D>& io) {
    const auto [rows, columns, vectors] = sizes(op, io);
    multiply(op, io, 'N', 'T', vectors, rows, columns, io.x[0], columns, io.w, columns, io.y);
  }
  static void backward(const TiedDenseOp& op, const Io<D>& io) {
    const auto [rows, columns, vectors] = sizes(op, io);
    if (vectors == 0) {
      std::fill_n(io.dw, op.weights(), 0.0f);
      return;
    }
    multiply(op, io, 'T', 'N', rows, columns, vectors, io.dy, rows, io.x[0], columns, io.dw);
    if (io.dx[0] != nullptr)
      multiply(op, io, 'N', 'N', vectors, columns, rows, io.dy, rows, io.w, columns, io.dx[0]);
  }

 private:
  struct Sizes {
    dnnl_dim_t rows, columns, vectors;
  };
  static Sizes sizes(const TiedDenseOp& op, const Io<D>& io) {
    return {op.rows, op.columns, static_cast<dnnl_dim_t>(io.step.count * op.vectors())};
  }
  /// c (m, n) = op(a) (m, k) op(b) (k, n), row-major; 'T' transposes, as in BLAS.
  static void multiply(const TiedDenseOp& op, const Io<D>& io, char transpose_a, char transpose_b,
                       dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, const float* a,
                       dnnl_dim_t row_of_a, const float* b, dnnl_dim_t row_of_b, float* c) {
    if (m == 0) return;
    const detail::onednn::Site site{"tied_dense", op.out(), io.device.engine()};
    site.check_team(io.device.threads());
    site.check(
        dnnl_sgemm(transpose_a, transpose_b, m, n, k, 1.0f, a, row_of_a, b, row_of_b, 0.0f, c, n));
  }
};

}  // namespace lockstep
