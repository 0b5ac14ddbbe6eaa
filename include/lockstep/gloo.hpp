/// \file
/// Gloo as the data plane between workers. Include it in addition to cluster.hpp. Requires Gloo
/// (lockstep::gloo).
#pragma once

#include "lockstep/cluster.hpp"
#include "lockstep/strategies/gloo_plane.hpp"
