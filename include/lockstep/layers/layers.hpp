/// \file
/// All layers.
#pragma once

#include "lockstep/layers/activations/elu.hpp"
#include "lockstep/layers/activations/gelu.hpp"
#include "lockstep/layers/activations/leaky_relu.hpp"
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/activations/relu6.hpp"
#include "lockstep/layers/activations/sigmoid.hpp"
#include "lockstep/layers/activations/silu.hpp"
#include "lockstep/layers/activations/softmax.hpp"
#include "lockstep/layers/activations/softplus.hpp"
#include "lockstep/layers/activations/tanh.hpp"
#include "lockstep/layers/add.hpp"
#include "lockstep/layers/average_pooling2d.hpp"
#include "lockstep/layers/batch_normalization.hpp"
#include "lockstep/layers/conv2d.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/dropout.hpp"
#include "lockstep/layers/flatten.hpp"
#include "lockstep/layers/global_average_pooling2d.hpp"
#include "lockstep/layers/max_pooling2d.hpp"
