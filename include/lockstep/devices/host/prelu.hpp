/// \file
/// PReLU on every device over host memory. Invariant: the gradient of alpha is summed in double.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/host/double_sums.hpp"
#include "lockstep/layers/activations/prelu.hpp"

namespace lockstep {
namespace detail {

/// The place of each element's alpha, and the sums of its gradient.
template <class T>
class PReLUPlaces {
 public:
  explicit PReLUPlaces(const PReLUOp& op) : sums(op.weights()) {
    place.reserve(op.in.size());
    for (std::size_t i = 0; i < op.in.size(); ++i) {
      std::size_t at = 0, rest = i;
      for (int axis = op.in.rank - 1; axis >= 0; --axis) {
        const auto extent = static_cast<std::size_t>(op.in[axis]);
        at += rest % extent * op.step(axis);
        rest /= extent;
      }
      place.push_back(at);
    }
  }
  std::size_t scratch_bytes() const { return 0; }

  std::vector<std::size_t> place;  // by element of an example
  DoubleSums<T> sums;
};

}  // namespace detail

template <HostDevice D>
struct Kernel<PReLUOp, D> : KernelTraits {
  using library_kernel = Kernel;
  using T = typename D::real;
  using A = ActivationOf<D>;
  static constexpr bool keeps_x = true, skips_dw = true;
  using Prepared = detail::PReLUPlaces<T>;

  static Prepared prepare(const PReLUOp& op, typename D::Context&, std::size_t) {
    return Prepared(op);
  }

  static void forward(const PReLUOp& op, const Io<D>& io, Prepared& alpha) {
    const std::size_t size = op.in.size();
    for (std::size_t n = 0; n < io.step.count; ++n)
      for (std::size_t i = 0; i < size; ++i) {
        const T x = T(io.x[0][n * size + i]);
        io.y[n * size + i] = A(x > 0 ? x : io.w[alpha.place[i]] * x);
      }
  }

  static void backward(const PReLUOp& op, const Io<D>& io, Prepared& alpha) {
    const std::size_t size = op.in.size();
    double* const dw = alpha.sums.begin(io.dw);
    for (std::size_t n = 0; n < io.step.count; ++n)
      for (std::size_t i = 0; i < size; ++i) {
        const T x = T(io.x[0][n * size + i]), dy = T(io.dy[n * size + i]);
        if (dw && !(x > 0)) dw[alpha.place[i]] += static_cast<double>(x) * static_cast<double>(dy);
        // 0 at 0, and NaN at NaN.
        if (io.dx[0] != nullptr)
          io.dx[0][n * size + i] = A(dy * (x > 0 ? T(1) : x < 0 ? io.w[alpha.place[i]] : T(0) * x));
      }
    alpha.sums.end(io.dw);
  }
};

}  // namespace lockstep
