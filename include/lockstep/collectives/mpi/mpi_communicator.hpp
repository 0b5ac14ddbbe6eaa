/// \file
/// The processes that mpirun has started, and the life of MPI in this one. Invariants: MPI is
/// finalized here only if it was initialized here; a process whose peers do not reach their end
/// after a failure does not wait for them for good.
#pragma once

#include <cstddef>

#include "lockstep/collectives/mpi/mpi_calls.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// A communicator, all of whose processes become members of each group that is made of it. It does
/// not own the MPI_Comm.
/// \code
///   const auto world = lockstep::MpiCommunicator::world();
///   lockstep::MpiGroup group(world);
/// \endcode
class MpiCommunicator {
 public:
  /// All processes of this mpirun. Initializes MPI with MPI_THREAD_MULTIPLE if the program has not,
  /// and then finalizes it when the program exits: call this in the thread that will call exit or
  /// return from main. \throws UsageError if MPI was finalized, or was initialized with less than
  /// MPI_THREAD_MULTIPLE; CollectiveError if MPI fails.
  LOCKSTEP_COLD_DECL static MpiCommunicator world();

  /// A communicator of a program that has initialized MPI itself, with MPI_THREAD_MULTIPLE. It
  /// stays valid while groups are constructed. \throws the same, and UsageError for MPI_COMM_NULL
  /// and before MPI is initialized.
  LOCKSTEP_COLD_DECL explicit MpiCommunicator(MPI_Comm comm);

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return size_; }
  MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_;
  std::size_t rank_ = 0, size_ = 0;
};

namespace detail {

/// Notes that a group has ended early, so that the exit of this process waits for its peers for
/// `mpi_exit_limit_seconds` at most. Otherwise it waits as MPI_Finalize does.
LOCKSTEP_COLD_DECL void note_mpi_failure();
inline constexpr int mpi_exit_limit_seconds = 10;

/// `drain` is called before MPI is finalized, when all processes are at their exit.
LOCKSTEP_COLD_DECL void drain_mpi_at_exit(void (*drain)());

/// Whether calls of MPI are possible: it is initialized and not finalized.
LOCKSTEP_COLD_DECL bool mpi_is_active();

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/mpi/mpi_communicator.ipp"
#endif
