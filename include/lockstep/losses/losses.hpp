/// \file
/// All losses.
#pragma once

#include "lockstep/losses/binary_crossentropy.hpp"
#include "lockstep/losses/categorical_crossentropy.hpp"
#include "lockstep/losses/cosine_similarity.hpp"
#include "lockstep/losses/hinge.hpp"
#include "lockstep/losses/huber.hpp"
#include "lockstep/losses/kl_divergence.hpp"
#include "lockstep/losses/log_cosh.hpp"
#include "lockstep/losses/mean_absolute_error.hpp"
#include "lockstep/losses/mean_squared_error.hpp"
#include "lockstep/losses/poisson.hpp"
#include "lockstep/losses/sparse_categorical_crossentropy.hpp"
