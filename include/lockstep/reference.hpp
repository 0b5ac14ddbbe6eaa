/// \file
/// The reference device with all its kernels: `ls::Reference<double>`, `ls::Reference<float>`.
/// Needs no library.
#pragma once

#include "lockstep/core/config.hpp"
#include "lockstep/devices/host/affine_image.hpp"
#include "lockstep/devices/host/batch_normalization.hpp"
#include "lockstep/devices/host/concatenate.hpp"
#include "lockstep/devices/host/dropout.hpp"
#include "lockstep/devices/host/embedding.hpp"
#include "lockstep/devices/host/gaussian_noise.hpp"
#include "lockstep/devices/host/global_max_pooling2d.hpp"
#include "lockstep/devices/host/lamb.hpp"
#include "lockstep/devices/host/layer_normalization.hpp"
#include "lockstep/devices/host/loss.hpp"
#include "lockstep/devices/host/metric.hpp"
#include "lockstep/devices/host/normalization.hpp"
#include "lockstep/devices/host/optimizer.hpp"
#include "lockstep/devices/host/penalty.hpp"
#include "lockstep/devices/host/pointwise.hpp"
#include "lockstep/devices/host/random_crop.hpp"
#include "lockstep/devices/host/random_cutout.hpp"
#include "lockstep/devices/host/random_flip.hpp"
#include "lockstep/devices/host/spatial_dropout2d.hpp"
#include "lockstep/devices/host/state_mean.hpp"
#include "lockstep/devices/host/up_sampling2d.hpp"
#include "lockstep/devices/host/zero_padding2d.hpp"
#include "lockstep/devices/reference/add.hpp"
#include "lockstep/devices/reference/average_pooling2d.hpp"
#include "lockstep/devices/reference/conv2d.hpp"
#include "lockstep/devices/reference/conv2d_transpose.hpp"
#include "lockstep/devices/reference/dense.hpp"
#include "lockstep/devices/reference/depthwise_conv2d.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/devices/reference/global_average_pooling2d.hpp"
#include "lockstep/devices/reference/max_pooling2d.hpp"
#include "lockstep/devices/reference/softmax.hpp"

#ifdef LOCKSTEP_SEPARATE_COMPILATION
#include "lockstep/devices/compiled_kernels.hpp"
#include "lockstep/training/step/compiled_step.hpp"
namespace lockstep {
LOCKSTEP_KERNELS(extern template, Reference<float>)
LOCKSTEP_STEP(extern template, Reference<float>)
LOCKSTEP_KERNELS(extern template, Reference<double>)
LOCKSTEP_STEP(extern template, Reference<double>)
}  // namespace lockstep
#endif
