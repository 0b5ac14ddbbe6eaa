/// \file
/// The pending transfers of one member of a group. Invariants: MPI accesses only memory that is
/// owned here, never the caller's. Memory lives until MPI has finished with it, for good if it never
/// does, since a send to a lost process can be neither completed nor cancelled. A communicator is
/// freed when all its messages were received: each member sends each other one exactly one notice,
/// its last message. After a failure it is kept, since messages that nobody received remain.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/collectives/algorithms/shutdown.hpp"
#include "lockstep/collectives/mpi/mpi_calls.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// The transfers of one operation, those of its notices, and their memory.
class MpiTransfers {
 public:
  enum Tag : int { frame_tag, data_tag, notice_tag };
  struct Transfer {
    std::size_t peer = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    enum class Kind { send, sent_frame, receive } kind = Kind::send;
    bool is_copy = false;  ///< sends a copy of the caller's data
    /// Where data that were received in memory of this object go; null if they stay there.
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
    bool is_done() const { return request == MPI_REQUEST_NULL; }
    /// \return the error code of MPI.
    int poll() {
      int is_done = 0;
      return MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
    }
  };

  MpiTransfers(std::size_t own_rank, std::size_t members) : rank(own_rank), size(members) {}
  MpiTransfers(const MpiTransfers&) = delete;
  MpiTransfers& operator=(const MpiTransfers&) = delete;

  /// Deletes the transfers and frees the communicator, now or when MPI has finished with them.
  struct Release {
    LOCKSTEP_COLD_DECL void operator()(MpiTransfers* transfers) const;
  };
  using Owner = std::unique_ptr<MpiTransfers, Release>;

  /// Sends all other members the cause of the end, or that this one has left. Callable from any
  /// thread, once.
  LOCKSTEP_COLD_DECL void send_notices(const Shutdown& end);
  /// Reads the notices that have arrived. \return the first failure, or `none`.
  LOCKSTEP_DECL Shutdown read_notices();

  const std::size_t rank, size;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request creation = MPI_REQUEST_NULL;  ///< of `comm`
  std::vector<Transfer> transfers;          ///< of the current operation, by index
  AlignedBuffer frames;                     ///< received from each member
  AlignedBuffer memory;                     ///< of the algorithms
  std::deque<AlignedBuffer> copies;         ///< of the caller's data

  std::atomic<bool> has_failed{false};

 private:
  /// Whether MPI has finished with the memory, and all messages of the communicator were received.
  LOCKSTEP_COLD_DECL bool is_finished();
  LOCKSTEP_COLD_DECL static void free_finished();
  LOCKSTEP_COLD_DECL void cancel_receives();

  std::mutex notices_mutex_;
  Shutdown notice_{};
  std::vector<Transfer> notices_;
  std::size_t notices_read_ = 0;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/mpi/mpi_transfers.ipp"
#endif
