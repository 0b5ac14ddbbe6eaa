#pragma once

#include "lockstep/collectives/nccl_communicator.hpp"

#include <thread>
#include <utility>

namespace lockstep::detail::cuda {

bool has_nccl() {
  try {
    nccl();
    return true;
  } catch (const DeviceError&) {
    return false;
  }
}

void refuse(ncclResult_t result, const char* what, ncclComm_t communicator) {
  throw CollectiveError("nccl: {} failed: {} ({}); NCCL_DEBUG=WARN shows more", what,
                        nccl().ncclGetErrorString(result), nccl().ncclGetLastError(communicator));
}

template <class F>
void NcclCommunicator::start(const char* what, const F& operations) {
  ncclResult_t result = nccl().ncclGroupStart();
  if (result == ncclSuccess) {
    result = operations();
    const ncclResult_t end = nccl().ncclGroupEnd();
    if (result == ncclSuccess || result == ncclInProgress) result = end;
  }
  settle(result, what);
}

ncclUniqueId NcclCommunicator::make_id() {
  ncclUniqueId id{};
  const ncclResult_t result = nccl().ncclGetUniqueId(&id);
  if (result != ncclSuccess) refuse(result, "making an id", nullptr);
  return id;
}

NcclCommunicator::NcclCommunicator(const ncclUniqueId& id, std::size_t size, std::size_t rank,
                                   std::chrono::nanoseconds timeout,
                                   const std::atomic<bool>& aborted, NcclFamily& family)
    : aborted_(&aborted), timeout_(timeout), family_(&family) {
  family.members.push_back(this);
  try {
    join(id, size, rank);
  } catch (...) {
    leave_family();
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() {
  if (communicator_ != nullptr) {
    if (aborted_->load(std::memory_order_acquire)) {
      end();
    } else {
      registered_.remove_all(communicator_);
      nccl().ncclCommDestroy(communicator_);
    }
  }
  leave_family();
}

void NcclCommunicator::post(Commands& commands, float* p, std::size_t n) {
  exchange(commands, p, n, nullptr, 0, false);
}

void NcclCommunicator::finish(Commands& commands, float* p, std::size_t n, double* sums,
                              std::size_t m) {
  exchange(commands, p, n, sums, m, true);
}

void NcclCommunicator::broadcast(Commands& commands, void* p, std::size_t bytes, std::size_t root) {
  at_once(commands, [&](CUstream stream) {
    start("a broadcast", [&] {
      return nccl().ncclBroadcast(p, p, bytes, ncclUint8, static_cast<int>(root), communicator_,
                                  cuda_stream(stream));
    });
  });
}

void NcclCommunicator::all_gather(Commands& commands, const void* p, std::size_t bytes, void* out) {
  at_once(commands, [&](CUstream stream) {
    start("an all-gather", [&] {
      return nccl().ncclAllGather(p, out, bytes, ncclUint8, communicator_, cuda_stream(stream));
    });
  });
}

bool NcclCommunicator::register_memory() {
  return communicator_ != nullptr && registered_.add(communicator_, family_->memory);
}

void NcclCommunicator::deregister(const void* p) {
  if (communicator_ != nullptr) registered_.remove(communicator_, p);
}

void NcclCommunicator::deregister_memory() {
  if (communicator_ != nullptr) registered_.remove_all(communicator_);
}

void NcclCommunicator::watch(std::chrono::nanoseconds waited) {
  if (communicator_ == nullptr) throw CollectiveAborted("nccl: an exchange was ended");
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl().ncclCommGetAsyncError(communicator_, &state);
  if (asked != ncclSuccess) fail(asked, "asking for errors");
  if (state != ncclSuccess && state != ncclInProgress) fail(state, "an exchange");
  check_wait(waited, "an exchange");
}

void NcclCommunicator::exchange(Commands& commands, float* p, std::size_t n, double* sums,
                                std::size_t m, bool joins) {
  at_once(commands, [&](CUstream stream) {
    computed_.record(stream);
    check(driver().cuStreamWaitEvent(beside_.get(), computed_.get(), 0), "waiting for gradients");
    add(beside_.get(), p, n, ncclFloat32, sums, m);
    if (!joins && !commands.measures()) return;
    reduced_.record(beside_.get());
    check(driver().cuStreamWaitEvent(stream, reduced_.get(), 0), "waiting for an exchange");
  });
}

void NcclCommunicator::add(CUstream stream, void* p, std::size_t n, ncclDataType_t type,
                           double* sums, std::size_t m) {
  start("an all-reduce", [&] {
    ncclResult_t result = ncclSuccess;
    if (n > 0)
      result = nccl().ncclAllReduce(p, p, n, type, ncclSum, communicator_, cuda_stream(stream));
    if (m > 0 && (result == ncclSuccess || result == ncclInProgress))
      result = nccl().ncclAllReduce(sums, sums, m, ncclFloat64, ncclSum, communicator_,
                                    cuda_stream(stream));
    return result;
  });
}

void NcclCommunicator::at_once(Commands& commands, const std::function<void(CUstream)>& run) {
  commands.make_apart(run, "NCCL exchange");
}

void NcclCommunicator::settle(ncclResult_t result, const char* what) {
  const auto begin = Clock::now();
  while (result == ncclInProgress) {
    check_wait(Clock::now() - begin, what);
    std::this_thread::yield();
    const ncclResult_t asked = nccl().ncclCommGetAsyncError(communicator_, &result);
    if (asked != ncclSuccess) result = asked;
  }
  if (result != ncclSuccess) fail(result, what);
}

void NcclCommunicator::check_wait(std::chrono::nanoseconds waited, const char* what) {
  if (aborted_->load(std::memory_order_acquire)) {
    end();
    throw CollectiveAborted("nccl: {} was aborted, since another replica failed", what);
  }
  if (waited > timeout_) {
    end();
    throw CollectiveTimeout(
        "nccl: {} did not end within {} ms; a replica did not come: look for errors of the other "
        "workers, or raise the timeout",
        what, std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count());
  }
}

void NcclCommunicator::fail(ncclResult_t result, const char* what) {
  const ncclComm_t failed = communicator_;
  try {
    refuse(result, what, failed);
  } catch (...) {
    end();
    throw;
  }
}

void NcclCommunicator::end() {
  nccl().ncclGroupStart();
  for (NcclCommunicator* const c : family_->members) {
    c->registered_.forget();  // an abort ends them
    if (c->communicator_ != nullptr) nccl().ncclCommAbort(std::exchange(c->communicator_, nullptr));
  }
  nccl().ncclGroupEnd();
}

void NcclCommunicator::join(const ncclUniqueId& id, std::size_t size, std::size_t rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = nccl().ncclCommInitRankConfig(&communicator_, static_cast<int>(size),
                                                            id, static_cast<int>(rank), &config);
  settle(result, "joining");
}

void NcclFamily::give(std::byte* p) noexcept {
  for (NcclCommunicator* const c : members) c->deregister(p);
  memory.give(p);
}

}  // namespace lockstep::detail::cuda
