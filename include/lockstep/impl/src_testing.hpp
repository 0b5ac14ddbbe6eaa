/// \file
/// All definitions of the component testing. Include it in exactly one source file of a program
/// whose units all define LOCKSTEP_SEPARATE_COMPILATION; see src.hpp.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error \
    "lockstep/impl/src_testing.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/testing/kernel/calls_sockets.ipp"
#include "lockstep/testing/kernel/calls_threads.ipp"
#include "lockstep/testing/kernel/calls_time.ipp"
#include "lockstep/testing/kernel/file.ipp"
#include "lockstep/testing/kernel/scheduler.ipp"
#include "lockstep/testing/kernel/sim_network.ipp"
#include "lockstep/testing/kernel/simulation.ipp"
#include "lockstep/testing/kernel/tcp_socket.ipp"
#include "lockstep/testing/run_workers.ipp"
#include "lockstep/testing/simulated_network.ipp"
