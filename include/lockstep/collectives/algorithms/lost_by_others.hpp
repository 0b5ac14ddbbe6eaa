/// \file
/// The error of a process that the others have declared lost.
#pragma once

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// The other processes have ended the operation because they have lost this one, which may still
/// receive from some of them. The cause is the verdict of the rendezvous.
class LostByOthers : public CollectiveAborted {
 public:
  using CollectiveAborted::CollectiveAborted;
};

}  // namespace lockstep::detail
