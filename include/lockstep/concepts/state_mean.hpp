/// \file
/// Averaging of layer state over the slices of a batch, each of which updates its own copy.
#pragma once

#include <cstddef>

namespace lockstep {

/// The mean of state over slices, weighted by their numbers of examples. A device implements
/// \code
///   template <> struct Kernel<StateMean, MyDevice> : KernelTraits {
///     static void weigh(const StateMeanIo<MyDevice>& io);        // sum = count state
///     static void add(Context&, double* y, const double* x, std::size_t n);   // y += x
///     static void write_mean(const StateMeanIo<MyDevice>& io);   // state = sum / count
///   };
/// \endcode
struct StateMean {};

/// `size` elements of state, and of their sums in double, in device memory; `count` examples.
template <class D>
struct StateMeanIo {
  typename D::Context& device;
  typename D::real* state;
  double* sum;
  std::size_t size, count;
};

}  // namespace lockstep
