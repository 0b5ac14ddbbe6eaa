/// \file
/// Weighted means of layer state (running statistics) over replicas, on every device over host
/// memory: weigh by the number of examples, sum in double, divide.
#pragma once

#include <cstddef>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/state_mean.hpp"

namespace lockstep {

template <HostDevice D>
struct Kernel<StateMean, D> : KernelTraits {
  using library_kernel = Kernel;
  static void weigh(const StateMeanIo<D>& io) {
    for (std::size_t i = 0; i < io.size; ++i)
      io.sum[i] = static_cast<double>(io.count) * static_cast<double>(io.state[i]);
  }
  static void add(typename D::Context&, double* y, const double* x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) y[i] += x[i];
  }
  static void write_mean(const StateMeanIo<D>& io) {
    for (std::size_t i = 0; i < io.size; ++i)
      io.state[i] = static_cast<typename D::real>(io.sum[i] / static_cast<double>(io.count));
  }
};

}  // namespace lockstep
