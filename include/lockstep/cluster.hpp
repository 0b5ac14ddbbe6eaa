/// \file
/// Training in many processes: MultiWorkerMirrored, and how a process learns who is in its job. Add
/// a device, as with lockstep.hpp. Links Gloo, and needs Asio and OpenSSL: lockstep::cluster.
#pragma once

#include "lockstep/cluster/cluster_file.hpp"
#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/cluster/resolve.hpp"
#include "lockstep/strategies/multi_worker_mirrored.hpp"
