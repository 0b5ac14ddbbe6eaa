/// \file
/// Clusters in one process, for tests of programs with MultiWorkerMirrored. Include it in addition
/// to cluster.hpp. Requires lockstep::compiled_testing, which only the test program links.
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/testing/run_workers.hpp"
#include "lockstep/testing/simulated_network.hpp"
