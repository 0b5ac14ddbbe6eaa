/// \file
/// `ls::Predictor` and the layers: all that a program needs that runs trained networks. Independent
/// of the device: include <lockstep/cpu.hpp> or <lockstep/reference.hpp> as well. For training
/// include <lockstep/lockstep.hpp>.
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/inference/predictor.hpp"
#include "lockstep/layers/layers.hpp"
#include "lockstep/model/bidirectional.hpp"
#include "lockstep/model/frozen.hpp"
#include "lockstep/model/parallel.hpp"
#include "lockstep/model/recompute.hpp"
#include "lockstep/model/repeat.hpp"
#include "lockstep/model/residual.hpp"
#include "lockstep/model/sequential.hpp"
#include "lockstep/model/shared.hpp"
#include "lockstep/model/statement_graph.hpp"
#include "lockstep/model/swiglu.hpp"
