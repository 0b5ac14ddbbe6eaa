/// \file
/// The collective between processes on CPUs, over MPI. Invariants: the additions are those of
/// ThreadGroup, so both give the same bits, whichever algorithms the MPI library has; MPI accesses no
/// memory of the caller; every wait is ended by an abort in any process, by an error of MPI, or at
/// its deadline, and the group cannot be used after that.
#pragma once

#include <memory>

#include "lockstep/collectives/algorithms/process_group.hpp"
#include "lockstep/collectives/mpi/mpi_communicator.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// This process' member of a group of all processes of a communicator. Each group has its own
/// duplicate of the communicator, so groups may be used concurrently.
///
/// MPI carries the messages, and this class adds. MPI's own collectives are not used, although
/// MPI_Allreduce is 1.6 times as fast for 1.4 MB between two processes of a machine
/// (benchmarks/mpi_all_reduce.cpp): the library chooses the order of its additions, the wait in it
/// cannot be ended, and it does not name a missing member. MPI_Iallreduce, which can be polled, is
/// slower than this class.
///
/// A process that dies ends the whole job, since mpirun kills the others. Where the MPI library can
/// go on without a process, its errors are reported as CollectiveError. A member that leaves without
/// `abort` is missed only at the timeout; an exception that destroys it aborts.
///
/// \throws CollectiveTimeout if a wait makes no progress for `timeout`, CollectiveAborted after an
/// abort in any process, CollectiveError if MPI fails, UsageError if the members' calls differ.
/// \code
///   lockstep::MpiGroup group(lockstep::MpiCommunicator::world());
///   group.all_reduce(gradients, n, sums, 2);
/// \endcode
class MpiGroup : public ProcessGroup {
 public:
  /// Polls that take a few hundred microseconds.
  static constexpr int short_spins = 10'000;

  /// All processes of the communicator construct the same groups in the same order.
  /// \throws CollectiveTimeout if one does not within the timeout, CollectiveError if MPI fails.
  LOCKSTEP_COLD_DECL explicit MpiGroup(const MpiCommunicator& of,
                                       const Options& options = {.spins = short_spins});

 private:
  struct Member;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/mpi/mpi_group.ipp"
#endif
