/// \file
/// Conv3D on the reference device, with the loops of Conv2D.
#pragma once

#include "lockstep/devices/reference/conv2d.hpp"
#include "lockstep/layers/convolution/conv3d.hpp"

namespace lockstep {

template <class T>
struct Kernel<Conv3DOp, Reference<T>> : detail::ReferenceConvolution<Conv3DOp, T> {
  using library_kernel = Kernel;
};

static_assert(HasKernel<Conv3DOp, Reference<double>>);

}  // namespace lockstep
