/// \file
/// `ls::TextGenerator` and `ls::Sampler`: text from trained language models, token by token. Include
/// predictor.hpp or lockstep.hpp, and a device in host memory, as well.
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/devices/host/attention/cached_attention.hpp"
#include "lockstep/devices/host/position_step.hpp"
#include "lockstep/inference/sampler.hpp"
#include "lockstep/inference/text_generator.hpp"
