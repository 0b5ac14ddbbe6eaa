/// \file
/// Networks with several outputs: losses, metrics and data by name. Include lockstep.hpp and a
/// device as well.
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/data/sources/named_fields.hpp"
#include "lockstep/data/sources/read_fields.hpp"
#include "lockstep/devices/host/heads.hpp"
#include "lockstep/losses/losses_by_output.hpp"
#include "lockstep/metrics/on.hpp"
#include "lockstep/training/checks/heads.hpp"
#include "lockstep/training/named_examples.hpp"
