/// \file
/// All definitions of the component gloo. Include it in exactly one source file of a program whose
/// units all define LOCKSTEP_SEPARATE_COMPILATION; see src.hpp.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error \
    "lockstep/impl/src_gloo.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/collectives/gloo_channel.ipp"
#include "lockstep/collectives/gloo_exec.ipp"
#include "lockstep/collectives/gloo_group.ipp"
#include "lockstep/collectives/gloo_links.ipp"
#include "lockstep/collectives/gloo_loop.ipp"
#include "lockstep/collectives/gloo_mesh.ipp"
#include "lockstep/collectives/gloo_pairs.ipp"
#include "lockstep/collectives/gloo_proof.ipp"
#include "lockstep/collectives/gloo_sigpipe.ipp"
#include "lockstep/strategies/gloo_plane.ipp"
