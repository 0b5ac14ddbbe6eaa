#pragma once

#include "lockstep/collectives/mpi/mpi_communicator.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace detail {

/// The state of MPI in this process, if it was initialized here.
struct MpiLife {
  std::mutex mutex;
  ::pid_t owner = 0;  ///< forked processes inherit the exit handler, but not MPI
  MPI_Comm at_exit =
      MPI_COMM_NULL;  ///< apart from MPI_COMM_WORLD, where a collective may be pending
  std::atomic<bool> failed{false};
  std::atomic<void (*)()> drain{nullptr};
};
/// Default visibility makes shared libraries with hidden symbols share it.
[[gnu::visibility("default")]] inline MpiLife& mpi_life() {
  static auto* const life = new MpiLife;  // used by the exit handler, so never destroyed
  return *life;
}

bool mpi_is_active() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

void note_mpi_failure() { mpi_life().failed = true; }
void drain_mpi_at_exit(void (*drain)()) { mpi_life().drain = drain; }

/// Waits until all processes are at their exit.
inline bool mpi_peers_are_done() {
  using clock = std::chrono::steady_clock;
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(mpi_life().at_exit, &request) != MPI_SUCCESS) return false;
  const auto limit = clock::now() + std::chrono::seconds(mpi_exit_limit_seconds);
  while (true) {
    int is_done = 0;
    if (MPI_Test(&request, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (is_done != 0) return true;
    if (mpi_life().failed && clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// MPI_Finalize waits for all processes, so one that hangs would keep the others after a failure.
/// A process that exits without it makes mpirun end the job.
inline void finalize_mpi() {
  if (mpi_life().owner != ::getpid() || !mpi_is_active() || !mpi_peers_are_done()) return;
  if (const auto drain = mpi_life().drain.load()) drain();
  MPI_Finalize();
}

inline const char* name_of_thread_level(int level) {
  return level == MPI_THREAD_SINGLE       ? "MPI_THREAD_SINGLE"
         : level == MPI_THREAD_FUNNELED   ? "MPI_THREAD_FUNNELED"
         : level == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
                                          : "an unknown level";
}

inline void initialize_mpi() {
  const std::scoped_lock lock(mpi_life().mutex);
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0) return;
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
  mpi_life().owner = ::getpid();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &mpi_life().at_exit), "MPI_Comm_dup");
  std::atexit(&finalize_mpi);
}

inline void require_mpi() {
  int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized == 0)
    throw UsageError(
        "mpi communicator: MPI is not initialized; call MPI_Init_thread with MPI_THREAD_MULTIPLE "
        "first, or use MpiCommunicator::world()");
  MPI_Finalized(&finalized);
  if (finalized != 0)
    throw UsageError(
        "mpi communicator: MPI was already finalized; keep it until the last group has ended");
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  if (level < MPI_THREAD_MULTIPLE)
    throw UsageError(
        "mpi communicator: MPI runs with {}, but groups are used by several threads; request "
        "MPI_THREAD_MULTIPLE in MPI_Init_thread, and use an MPI library built with it",
        name_of_thread_level(level));
}

}  // namespace detail

MpiCommunicator MpiCommunicator::world() {
  detail::initialize_mpi();
  return MpiCommunicator(MPI_COMM_WORLD);
}

MpiCommunicator::MpiCommunicator(MPI_Comm comm) : comm_(comm) {
  detail::require_mpi();
  if (comm == MPI_COMM_NULL)
    throw UsageError(
        "mpi communicator: the communicator is MPI_COMM_NULL; only its processes may use it");
  int rank = 0, size = 0;
  detail::check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  detail::check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  rank_ = static_cast<std::size_t>(rank);
  size_ = static_cast<std::size_t>(size);
}

}  // namespace lockstep
