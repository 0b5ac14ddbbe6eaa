#pragma once

#include "lockstep/collectives/mpi/mpi_transfers.hpp"

#include <chrono>
#include <thread>

#include "lockstep/collectives/mpi/mpi_communicator.hpp"

namespace lockstep::detail {

/// Transfers that MPI may still access.
struct KeptMpiTransfers {
  std::mutex mutex;
  std::vector<std::unique_ptr<MpiTransfers>> transfers;
};
inline KeptMpiTransfers& kept_mpi_transfers() {
  static auto* const kept = new KeptMpiTransfers;  // never destroyed
  return *kept;
}

void MpiTransfers::Release::operator()(MpiTransfers* released) const {
  std::unique_ptr<MpiTransfers> owned(released);
  if (!mpi_is_active()) return;
  if (owned->has_failed)
    owned->cancel_receives();
  else if (owned->creation == MPI_REQUEST_NULL)
    owned->send_notices({.cause = Shutdown::Cause::left});
  {
    const std::scoped_lock lock(kept_mpi_transfers().mutex);
    kept_mpi_transfers().transfers.push_back(std::move(owned));
  }
  drain_mpi_at_exit(&free_finished);
  free_finished();
}

/// MPI reports receives that are pending when it is finalized.
void MpiTransfers::cancel_receives() {
  for (Transfer& transfer : transfers)
    if (transfer.kind == Transfer::Kind::receive && transfer.poll() == MPI_SUCCESS &&
        !transfer.is_done() && MPI_Cancel(&transfer.request) == MPI_SUCCESS)
      transfer.poll();
}

void MpiTransfers::free_finished() {
  const std::scoped_lock lock(kept_mpi_transfers().mutex);
  std::erase_if(kept_mpi_transfers().transfers, [](const auto& kept) {
    if (!kept->is_finished()) return false;
    if (kept->comm != MPI_COMM_NULL) MPI_Comm_free(&kept->comm);
    return true;
  });
}

bool MpiTransfers::is_finished() {
  if (has_failed || creation != MPI_REQUEST_NULL) return false;
  if (size > 1) read_notices();
  bool all_done = notices_read_ + 1 == size;
  const std::scoped_lock lock(notices_mutex_);
  for (std::vector<Transfer>* const all : {&transfers, &notices_})
    for (Transfer& transfer : *all) {
      transfer.poll();
      all_done = all_done && transfer.is_done();
    }
  return all_done;
}

void MpiTransfers::send_notices(const Shutdown& end) {
  if (comm == MPI_COMM_NULL || !mpi_is_active()) return;
  const std::scoped_lock lock(notices_mutex_);
  notice_ = end;
  for (std::size_t r = 0; r < size; ++r) {
    if (r == rank) continue;
    Transfer& transfer = notices_.emplace_back(Transfer{r});
    MPI_Isend(&notice_, sizeof notice_, MPI_BYTE, static_cast<int>(r), notice_tag, comm,
              &transfer.request);  // an error means that r is lost and needs no notice
  }
  // This thread may not call MPI again for a while, and some transports send only in calls.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  for (Transfer& transfer : notices_)
    while (transfer.poll() == MPI_SUCCESS && !transfer.is_done() &&
           std::chrono::steady_clock::now() < limit)
      std::this_thread::yield();
}

Shutdown MpiTransfers::read_notices() {
  while (true) {
    int has_come = 0;
    MPI_Status status;
    Shutdown end;
    if (MPI_Iprobe(MPI_ANY_SOURCE, notice_tag, comm, &has_come, &status) != MPI_SUCCESS ||
        has_come == 0 ||
        MPI_Recv(&end, sizeof end, MPI_BYTE, status.MPI_SOURCE, notice_tag, comm,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return {};
    ++notices_read_;
    if (end.cause == Shutdown::Cause::left) continue;
    has_failed = true;
    return end;
  }
}

}  // namespace lockstep::detail
