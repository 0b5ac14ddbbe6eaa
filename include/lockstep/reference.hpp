/// \file
/// The reference device with all its kernels: `ls::Reference<double>`, `ls::Reference<float>`.
/// Requires no library.
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/core/config.hpp"
#include "lockstep/devices/host/kernels.hpp"
#include "lockstep/devices/reference/average_pooling2d.hpp"
#include "lockstep/devices/reference/conv2d.hpp"
#include "lockstep/devices/reference/conv2d_transpose.hpp"
#include "lockstep/devices/reference/conv3d.hpp"
#include "lockstep/devices/reference/dense.hpp"
#include "lockstep/devices/reference/depthwise_conv2d.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/devices/reference/dot_product_attention.hpp"
#include "lockstep/devices/reference/global_average_pooling2d.hpp"
#include "lockstep/devices/reference/max_pooling2d.hpp"
#include "lockstep/devices/reference/recurrent.hpp"
#include "lockstep/devices/reference/softmax.hpp"

#ifdef LOCKSTEP_SEPARATE_COMPILATION
#include "lockstep/devices/compiled_kernels.hpp"
#include "lockstep/training/step/compiled_step.hpp"
namespace lockstep {
LOCKSTEP_KERNELS(extern template, Reference<float>)
LOCKSTEP_HOST_OPTIMIZER_KERNELS(extern template, Reference<float>)
LOCKSTEP_STEP(extern template, Reference<float>)
LOCKSTEP_KERNELS(extern template, Reference<double>)
LOCKSTEP_HOST_OPTIMIZER_KERNELS(extern template, Reference<double>)
LOCKSTEP_STEP(extern template, Reference<double>)
}  // namespace lockstep
#endif
