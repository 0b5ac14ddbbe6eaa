/// \file
/// The reference device with all its kernels: `ls::Reference<double>`, `ls::Reference<float>`.
/// Needs no library.
#pragma once

#include "lockstep/devices/host/batch_normalization.hpp"
#include "lockstep/devices/host/dropout.hpp"
#include "lockstep/devices/host/embedding.hpp"
#include "lockstep/devices/host/global_max_pooling2d.hpp"
#include "lockstep/devices/host/lamb.hpp"
#include "lockstep/devices/host/layer_normalization.hpp"
#include "lockstep/devices/host/loss.hpp"
#include "lockstep/devices/host/metric.hpp"
#include "lockstep/devices/host/normalization.hpp"
#include "lockstep/devices/host/optimizer.hpp"
#include "lockstep/devices/host/penalty.hpp"
#include "lockstep/devices/host/pointwise.hpp"
#include "lockstep/devices/host/zero_padding2d.hpp"
#include "lockstep/devices/reference/add.hpp"
#include "lockstep/devices/reference/average_pooling2d.hpp"
#include "lockstep/devices/reference/conv2d.hpp"
#include "lockstep/devices/reference/dense.hpp"
#include "lockstep/devices/reference/device.hpp"
#include "lockstep/devices/reference/global_average_pooling2d.hpp"
#include "lockstep/devices/reference/max_pooling2d.hpp"
#include "lockstep/devices/reference/softmax.hpp"
