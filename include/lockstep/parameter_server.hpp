/// \file
/// Parameter servers: the strategy ParameterServer. Include lockstep.hpp and a device as well.
/// Requires Asio and OpenSSL (lockstep::cluster).
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/cluster.hpp"
#include "lockstep/strategies/parameter_server.hpp"
#include "lockstep/training/asynchronous/asynchronous_steps.hpp"
#include "lockstep/training/asynchronous/distant_tables.hpp"
#include "lockstep/training/step/served.hpp"
