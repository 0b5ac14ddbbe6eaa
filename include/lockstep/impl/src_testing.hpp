/// \file
/// All definitions of the component testing. Include it in exactly one source file of a program, in
/// either form of the library: it replaces functions of the C library.
#pragma once

#include "lockstep/testing/kernel/calls_sockets.ipp"
#include "lockstep/testing/kernel/calls_threads.ipp"
#include "lockstep/testing/kernel/calls_time.ipp"
#include "lockstep/testing/kernel/file.ipp"
#include "lockstep/testing/kernel/scheduler.ipp"
#include "lockstep/testing/kernel/simulation.ipp"
#include "lockstep/testing/kernel/tcp_socket.ipp"
#include "lockstep/testing/run_workers.ipp"
#include "lockstep/testing/simulated_network.ipp"
