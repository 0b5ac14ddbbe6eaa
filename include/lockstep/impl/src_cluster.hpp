/// \file
/// All definitions of the component cluster. Include it in exactly one source file of a program
/// whose units all define LOCKSTEP_SEPARATE_COMPILATION; see src.hpp.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error \
    "lockstep/impl/src_cluster.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/cluster/cluster_file.ipp"
#include "lockstep/cluster/environment.ipp"
#include "lockstep/cluster/host_port.ipp"
#include "lockstep/cluster/mpi.ipp"
#include "lockstep/cluster/rendezvous/chief.ipp"
#include "lockstep/cluster/rendezvous/chief_address.ipp"
#include "lockstep/cluster/rendezvous/clock.ipp"
#include "lockstep/cluster/rendezvous/connection.ipp"
#include "lockstep/cluster/rendezvous/control.ipp"
#include "lockstep/cluster/rendezvous/data_address.ipp"
#include "lockstep/cluster/rendezvous/file_limit.ipp"
#include "lockstep/cluster/rendezvous/frames.ipp"
#include "lockstep/cluster/rendezvous/interfaces.ipp"
#include "lockstep/cluster/rendezvous/listener.ipp"
#include "lockstep/cluster/rendezvous/log_thread.ipp"
#include "lockstep/cluster/rendezvous/lookup.ipp"
#include "lockstep/cluster/rendezvous/member.ipp"
#include "lockstep/cluster/rendezvous/member_registry.ipp"
#include "lockstep/cluster/rendezvous/messages.ipp"
#include "lockstep/cluster/rendezvous/psk.ipp"
#include "lockstep/cluster/rendezvous/rendezvous.ipp"
#include "lockstep/cluster/rendezvous/round_trip.ipp"
#include "lockstep/cluster/rendezvous/secret.ipp"
#include "lockstep/cluster/rendezvous/signature.ipp"
#include "lockstep/cluster/rendezvous/source_allowlist.ipp"
#include "lockstep/cluster/rendezvous/stall.ipp"
#include "lockstep/cluster/rendezvous/store.ipp"
#include "lockstep/cluster/rendezvous/stranger_log.ipp"
#include "lockstep/cluster/rendezvous/timer.ipp"
#include "lockstep/cluster/rendezvous/worker.ipp"
#include "lockstep/cluster/resolve.ipp"
#include "lockstep/cluster/resolved_cluster.ipp"
#include "lockstep/cluster/settings.ipp"
#include "lockstep/cluster/slurm.ipp"
#include "lockstep/cluster/slurm_lists.ipp"
#include "lockstep/cluster/source.ipp"
#include "lockstep/cluster/spec.ipp"
#include "lockstep/cluster/stragglers.ipp"
#include "lockstep/cluster/tf_config.ipp"
#include "lockstep/cluster/timeouts.ipp"
#include "lockstep/cluster/torchrun.ipp"
#include "lockstep/strategies/job_group.ipp"
#include "lockstep/strategies/shared_job.ipp"
#include "lockstep/strategies/worker_job.ipp"
#include "lockstep/strategies/worker_place.ipp"

#ifndef LOCKSTEP_IN_PARTS
#include "lockstep/impl/cluster_gloo.hpp"
#endif
