/// \file
/// The collective between processes on CPUs, over MPI. Invariants: the additions are those of
/// ThreadGroup, so both give the same bits, whichever algorithms the MPI library has; MPI accesses no
/// memory of the caller; every wait is ended by an abort in any process, by an error of MPI, or at
/// its deadline, and the group cannot be used after that.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "lockstep/collectives/collective_call.hpp"
#include "lockstep/collectives/mpi_channel.hpp"
#include "lockstep/collectives/mpi_communicator.hpp"
#include "lockstep/collectives/sum_members.hpp"
#include "lockstep/collectives/sum_parts.hpp"
#include "lockstep/collectives/typed_collective.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/exchange_progress.hpp"

namespace lockstep {

/// This process' member of a group of all processes of a communicator. Its operations are called by
/// one thread at a time, `abort`, `lose` and `progress` by any. Copies are the same member. Each
/// group has its own duplicate of the communicator, so groups may be used concurrently.
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
///   lockstep::MpiGroup group(lockstep::MpiCommunicator::world(), {});
///   group.all_reduce(gradients, n, sums, 2);
/// \endcode
class MpiGroup : public detail::TypedCollective<MpiGroup> {
 public:
  /// Options, equal in all members except for the polls.
  struct Options {
    std::chrono::nanoseconds timeout = std::chrono::seconds(30);  ///< without progress
    SumOrder order = SumOrder::ranks;
    /// Polls before a member sleeps; use 0 if the processes have more threads than cores.
    int spins = detail::MpiChannel::short_spins;
  };

  /// All processes of the communicator construct the same groups in the same order.
  /// \throws CollectiveTimeout if one does not within the timeout, CollectiveError if MPI fails.
  LOCKSTEP_COLD_DECL MpiGroup(const MpiCommunicator& of, const Options& options);

  std::size_t rank() const { return channel_->rank(); }
  std::size_t size() const { return channel_->size(); }
  /// Ends the operations of this group in all processes.
  LOCKSTEP_COLD_DECL void abort();
  /// The same because member `member` was lost, which the errors of all processes then name.
  LOCKSTEP_COLD_DECL void lose(std::size_t member);
  /// The finished parts of operations, and the member that a current wait is for.
  ExchangeProgress progress() const { return channel_->progress(); }

  /// Returns when all members have called it.
  LOCKSTEP_DECL void barrier();

 private:
  friend class detail::TypedCollective<MpiGroup>;
  LOCKSTEP_DECL void reduce(std::byte* p, detail::Elements elements, detail::SumParts sum,
                            double* sums, std::size_t m);
  LOCKSTEP_DECL void send(std::byte* p, detail::Elements elements, std::size_t root);
  LOCKSTEP_DECL void gather(const std::byte* p, detail::Elements elements, std::byte* out);

  std::shared_ptr<detail::MpiChannel> channel_;
};

static_assert(AllReduces<MpiGroup, float> && AllReducesWithSums<MpiGroup, float> &&
              Broadcasts<MpiGroup, float> && AllGathers<MpiGroup, float> && Barriers<MpiGroup>);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/mpi_group.ipp"
#endif
