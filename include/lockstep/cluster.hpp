/// \file
/// Training on several machines: MultiWorkerMirrored, and discovery of the job's members. Include a
/// device as well, as with lockstep.hpp. Requires Asio and OpenSSL (lockstep::cluster).
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/cluster/description/cluster_file.hpp"
#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/cluster/resolve.hpp"
#include "lockstep/strategies/multi_worker_mirrored.hpp"
