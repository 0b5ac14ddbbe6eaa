/// \file
/// Runs the contract of collectives in the processes that mpirun has started. Invariant: all of them
/// run the same tests with the same outcomes of run_members, so that they stay in step.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "lockstep/collectives/mpi/mpi_communicator.hpp"
#include "lockstep/collectives/mpi/mpi_group.hpp"
#include "unit/collectives/members.hpp"

namespace ranks {

inline const lockstep::MpiCommunicator& world() {
  static const auto all = lockstep::MpiCommunicator::world();
  return all;
}

/// The number of processes, before MPI is initialized: a program run by hand has one.
inline std::size_t processes() {
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* const value = std::getenv(name)) return std::strtoul(value, nullptr, 10);
  return 1;
}

/// Maps a file that rank 0 creates and removes. Called by all processes in the same order.
inline void* map_between_ranks(std::size_t bytes) {
  std::array<char, 64> name{};
  int file = -1;
  if (world().rank() == 0) {
    constexpr std::string_view pattern = "/dev/shm/lockstep_ranks_XXXXXX";
    pattern.copy(name.data(), pattern.size());
    file = ::mkstemp(name.data());
    if (file < 0 || ::ftruncate(file, static_cast<::off_t>(bytes)) != 0)
      throw std::runtime_error("no file in /dev/shm");
  }
  MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  if (world().rank() != 0) file = ::open(name.data(), O_RDWR);
  void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world().rank() == 0) ::unlink(name.data());
  return p;
}

inline const bool maps_between_ranks = (contract::map_shared = &map_between_ranks, true);

/// A communicator of the first `size` processes.
class First {
 public:
  explicit First(std::size_t size) {
    const bool is_member = world().rank() < size;
    MPI_Comm_split(MPI_COMM_WORLD, is_member ? 0 : 1, static_cast<int>(world().rank()), &comm_);
  }
  First(const First&) = delete;
  First& operator=(const First&) = delete;
  ~First() { MPI_Comm_free(&comm_); }
  MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// The maker of a group of the first `size` processes.
template <lockstep::SumOrder sum_order = lockstep::SumOrder::ranks, int spins = 0>
class Members {
 public:
  static inline const std::size_t max_size = processes();
  static constexpr lockstep::SumOrder order = sum_order;
  static constexpr bool can_end = true;
  /// The timeout also limits how much later than another a process may construct its group.
  static constexpr std::chrono::milliseconds timeout_under_load{400};

  explicit Members(std::size_t size, std::chrono::milliseconds timeout = std::chrono::minutes(1))
      : size_(size), comm_(size) {
    if (size > max_size) throw std::logic_error("mpirun has started too few processes");
    MPI_Barrier(MPI_COMM_WORLD);
    if (own_rank() < size)
      own_.emplace(lockstep::MpiCommunicator(comm_.get()),
                   lockstep::MpiGroup::Options{.timeout = timeout, .order = order, .spins = spins});
  }
  std::size_t size() const { return size_; }
  std::size_t own_rank() const { return world().rank(); }
  lockstep::MpiGroup& member(std::size_t rank) {
    if (rank != own_rank() || !own_) throw std::logic_error("another process has this member");
    return *own_;
  }
  std::vector<contract::ReportedError> gather(const contract::ReportedError& report) const {
    std::vector<contract::ReportedError> all(max_size);
    MPI_Allgather(&report, sizeof report, MPI_BYTE, all.data(), sizeof report, MPI_BYTE,
                  MPI_COMM_WORLD);
    return all;
  }
  /// The last member aborts: the others learn it through MPI.
  void abort_all() {
    if (own_rank() + 1 == size_) own_->abort();
  }

 private:
  std::size_t size_;
  First comm_;
  std::optional<lockstep::MpiGroup> own_;
};

}  // namespace ranks
