/// \file
/// The Cpu device with all its kernels: `ls::Cpu`. Requires libdnnl and libgomp (lockstep::cpu).
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cpu/add.hpp"
#include "lockstep/devices/cpu/attention/dot_product_attention.hpp"
#include "lockstep/devices/cpu/average_pooling2d.hpp"
#include "lockstep/devices/cpu/batch_normalization.hpp"
#include "lockstep/devices/cpu/conv2d.hpp"
#include "lockstep/devices/cpu/conv2d_transpose.hpp"
#include "lockstep/devices/cpu/conv3d.hpp"
#include "lockstep/devices/cpu/dense.hpp"
#include "lockstep/devices/cpu/depthwise_conv2d.hpp"
#include "lockstep/devices/cpu/device.hpp"
#include "lockstep/devices/cpu/fused/batch_normalization_relu.hpp"
#include "lockstep/devices/cpu/fused/conv_relu.hpp"
#include "lockstep/devices/cpu/fused/conv_relu_pool.hpp"
#include "lockstep/devices/cpu/fused/dense_relu.hpp"
#include "lockstep/devices/cpu/fused/softmax_crossentropy.hpp"
#include "lockstep/devices/cpu/max_pooling2d.hpp"
#include "lockstep/devices/cpu/pointwise.hpp"
#include "lockstep/devices/cpu/recurrent/passes.hpp"
#include "lockstep/devices/cpu/smooth_activations.hpp"
#include "lockstep/devices/cpu/softmax.hpp"
#include "lockstep/devices/cpu/tied_dense.hpp"
#include "lockstep/devices/cpu/up_sampling2d.hpp"
#include "lockstep/devices/cpu/updates/muon.hpp"
#include "lockstep/devices/cpu/updates/optimizer.hpp"
#include "lockstep/devices/host/kernels.hpp"

#ifdef LOCKSTEP_SEPARATE_COMPILATION
#include "lockstep/devices/cpu/compiled_kernels.hpp"
#include "lockstep/training/step/compiled_step.hpp"
namespace lockstep {
LOCKSTEP_CPU_FLOAT_KERNELS(extern template)
LOCKSTEP_STEP(extern template, Cpu)
LOCKSTEP_CPU_BFLOAT16_KERNELS(extern template)
LOCKSTEP_STEP(extern template, CpuBFloat16)
}  // namespace lockstep
#endif
