/// \file
/// What a device does for state that the slices of a batch change, each by its own examples.
#pragma once

#include <cstddef>

namespace lockstep {

/// The mean of state over slices, weighted by their examples. A device has
/// \code
///   template <> struct Kernel<StateMean, MyDevice> : KernelTraits {
///     static void weigh(const StateMeanIo<MyDevice>& io);   // sum = count state
///     static void add(Context&, double* y, const double* x, std::size_t n);   // y += x
///     static void write_mean(const StateMeanIo<MyDevice>& io);    // state = sum / count
///   };
/// \endcode
struct StateMean {};

/// `size` elements of state, and of sums in double, in the device's memory; `count` examples.
template <class D>
struct StateMeanIo {
  typename D::Context& device;
  typename D::real* state;
  double* sum;
  std::size_t size, count;
};

}  // namespace lockstep
