/// \file
/// The Cuda device with all its kernels: `ls::Cuda`. NVIDIA's headers are needed to compile it,
/// with any compiler; its libraries are loaded when first used. Link libdl.
#pragma once

#include "lockstep/collectives/cuda_group.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/kernels/activations.hpp"
#include "lockstep/devices/cuda/kernels/add.hpp"
#include "lockstep/devices/cuda/kernels/average_pooling2d.hpp"
#include "lockstep/devices/cuda/kernels/batch_normalization.hpp"
#include "lockstep/devices/cuda/kernels/concatenate.hpp"
#include "lockstep/devices/cuda/kernels/global_pooling2d.hpp"
#include "lockstep/devices/cuda/kernels/max_pooling2d.hpp"
#include "lockstep/devices/cuda/kernels/crossentropy.hpp"
#include "lockstep/devices/cuda/kernels/elementwise_loss.hpp"
#include "lockstep/devices/cuda/kernels/conv2d.hpp"
#include "lockstep/devices/cuda/kernels/conv2d_transpose.hpp"
#include "lockstep/devices/cuda/kernels/dense.hpp"
#include "lockstep/devices/cuda/kernels/depthwise_conv2d.hpp"
#include "lockstep/devices/cuda/kernels/histogram.hpp"
#include "lockstep/devices/cuda/kernels/lamb.hpp"
#include "lockstep/devices/cuda/kernels/metric.hpp"
#include "lockstep/devices/cuda/kernels/pointwise.hpp"
#include "lockstep/devices/cuda/kernels/up_sampling2d.hpp"
#include "lockstep/devices/cuda/kernels/zero_padding2d.hpp"
#include "lockstep/devices/cuda/kernels/rules.hpp"
