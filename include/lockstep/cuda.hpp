/// \file
/// The Cuda device with all its kernels: `ls::Cuda`. Any compiler will do, but NVIDIA's headers are
/// required; NVIDIA's libraries are loaded at run time, on first use. Link libdl.
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/collectives/cuda/cuda_group.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/ops/affine_image.hpp"
#include "lockstep/devices/cuda/ops/attention/dot_product_attention.hpp"
#include "lockstep/devices/cuda/ops/augmentation.hpp"
#include "lockstep/devices/cuda/ops/average_pooling2d.hpp"
#include "lockstep/devices/cuda/ops/batch_normalization.hpp"
#include "lockstep/devices/cuda/ops/concatenate.hpp"
#include "lockstep/devices/cuda/ops/convolution/conv2d.hpp"
#include "lockstep/devices/cuda/ops/convolution/conv2d_transpose.hpp"
#include "lockstep/devices/cuda/ops/convolution/conv3d.hpp"
#include "lockstep/devices/cuda/ops/convolution/depthwise_conv2d.hpp"
#include "lockstep/devices/cuda/ops/dense.hpp"
#include "lockstep/devices/cuda/ops/dot.hpp"
#include "lockstep/devices/cuda/ops/dropout.hpp"
#include "lockstep/devices/cuda/ops/embedding.hpp"
#include "lockstep/devices/cuda/ops/fused/batch_normalization_relu.hpp"
#include "lockstep/devices/cuda/ops/fused/conv_relu.hpp"
#include "lockstep/devices/cuda/ops/fused/conv_relu_pool.hpp"
#include "lockstep/devices/cuda/ops/fused/dense_relu.hpp"
#include "lockstep/devices/cuda/ops/global_pooling2d.hpp"
#include "lockstep/devices/cuda/ops/heads.hpp"
#include "lockstep/devices/cuda/ops/lamb.hpp"
#include "lockstep/devices/cuda/ops/max_pooling2d.hpp"
#include "lockstep/devices/cuda/ops/merge.hpp"
#include "lockstep/devices/cuda/ops/metric.hpp"
#include "lockstep/devices/cuda/ops/normalization.hpp"
#include "lockstep/devices/cuda/ops/normalization/group_normalization.hpp"
#include "lockstep/devices/cuda/ops/normalization/layer_normalization.hpp"
#include "lockstep/devices/cuda/ops/normalization/rms_normalization.hpp"
#include "lockstep/devices/cuda/ops/pairwise.hpp"
#include "lockstep/devices/cuda/ops/pointwise.hpp"
#include "lockstep/devices/cuda/ops/position_embedding.hpp"
#include "lockstep/devices/cuda/ops/prelu.hpp"
#include "lockstep/devices/cuda/ops/random_color.hpp"
#include "lockstep/devices/cuda/ops/rearrangement.hpp"
#include "lockstep/devices/cuda/ops/recurrent/mask.hpp"
#include "lockstep/devices/cuda/ops/recurrent/passes.hpp"
#include "lockstep/devices/cuda/ops/resized_image.hpp"
#include "lockstep/devices/cuda/ops/rows.hpp"
#include "lockstep/devices/cuda/ops/softmax.hpp"
#include "lockstep/devices/cuda/ops/tied_dense.hpp"
#include "lockstep/devices/cuda/ops/up_sampling2d.hpp"
#include "lockstep/devices/cuda/passes/change_images.hpp"
#include "lockstep/devices/cuda/passes/gather_rows.hpp"
#include "lockstep/devices/cuda/passes/scores.hpp"
#include "lockstep/devices/cuda/passes/state_mean.hpp"
#include "lockstep/devices/cuda/support/activations.hpp"
#include "lockstep/devices/cuda/support/crossentropy.hpp"
#include "lockstep/devices/cuda/support/elementwise_loss.hpp"
#include "lockstep/devices/cuda/support/histogram.hpp"
#include "lockstep/devices/cuda/support/rules.hpp"

#ifdef LOCKSTEP_SEPARATE_COMPILATION
#include "lockstep/devices/cuda/compiled_kernels.hpp"
namespace lockstep {
LOCKSTEP_CUDA_KERNELS(extern template, Cuda)
LOCKSTEP_CUDA_KERNELS(extern template, CudaBFloat16)
LOCKSTEP_CUDA_KERNELS(extern template, CudaFloat16)
}  // namespace lockstep
#endif
