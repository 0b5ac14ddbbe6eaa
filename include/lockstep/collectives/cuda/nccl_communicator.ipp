#pragma once

#include "lockstep/collectives/cuda/nccl_communicator.hpp"

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

void throw_nccl_error(ncclResult_t result, const char* what, ncclComm_t communicator) {
  throw CollectiveError("nccl: {} failed: {} ({}); NCCL_DEBUG=WARN shows more", what,
                        nccl().ncclGetErrorString(result), nccl().ncclGetLastError(communicator));
}

template <class F>
void NcclCommunicator::call_grouped(const char* what, const F& operations) {
  ncclResult_t result = nccl().ncclGroupStart();
  if (result == ncclSuccess) {
    result = operations();
    const ncclResult_t end = nccl().ncclGroupEnd();
    if (result == ncclSuccess || result == ncclInProgress) result = end;
  }
  wait_result(result, what);
}

ncclUniqueId NcclCommunicator::make_id() {
  ncclUniqueId id{};
  const ncclResult_t result = nccl().ncclGetUniqueId(&id);
  if (result != ncclSuccess) throw_nccl_error(result, "creating an id", nullptr);
  return id;
}

NcclCommunicator::NcclCommunicator(const ncclUniqueId& id, std::size_t size, std::size_t rank,
                                   std::chrono::nanoseconds timeout,
                                   const std::atomic<bool>& aborted, NcclDeviceState& device)
    : aborted_(&aborted), timeout_(timeout), device_(&device) {
  device.communicators.push_back(this);
  try {
    join(id, size, rank);
  } catch (...) {
    remove_from_device();
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() {
  if (communicator_ != nullptr) {
    if (aborted_->load(std::memory_order_acquire)) {
      abort_all();
    } else {
      registered_.remove_all(communicator_);
      nccl().ncclCommDestroy(communicator_);
    }
  }
  remove_from_device();
}

void NcclCommunicator::post(Commands& commands, float* p, std::size_t n) {
  exchange(commands, p, n, nullptr, 0, false);
}

void NcclCommunicator::finish(Commands& commands, float* p, std::size_t n, double* sums,
                              std::size_t m) {
  exchange(commands, p, n, sums, m, true);
}

void NcclCommunicator::broadcast(Commands& commands, void* p, std::size_t bytes, std::size_t root) {
  call_in_stream_order(commands, [&](CUstream stream) {
    call_grouped("a broadcast", [&] {
      return nccl().ncclBroadcast(p, p, bytes, ncclUint8, static_cast<int>(root), communicator_,
                                  cuda_stream(stream));
    });
  });
}

void NcclCommunicator::all_gather(Commands& commands, const void* p, std::size_t bytes, void* out) {
  call_in_stream_order(commands, [&](CUstream stream) {
    call_grouped("an all-gather", [&] {
      return nccl().ncclAllGather(p, out, bytes, ncclUint8, communicator_, cuda_stream(stream));
    });
  });
}

bool NcclCommunicator::register_memory() {
  return communicator_ != nullptr && registered_.add(communicator_, device_->memory);
}

void NcclCommunicator::deregister(const void* p) {
  if (communicator_ != nullptr) registered_.remove(communicator_, p);
}

void NcclCommunicator::deregister_memory() {
  if (communicator_ != nullptr) registered_.remove_all(communicator_);
}

void NcclCommunicator::poll(std::chrono::nanoseconds waited) {
  if (communicator_ == nullptr) throw CollectiveAborted("nccl: an exchange was aborted");
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl().ncclCommGetAsyncError(communicator_, &state);
  if (asked != ncclSuccess) fail(asked, "polling for errors");
  if (state != ncclSuccess && state != ncclInProgress) fail(state, "an exchange");
  check_wait(waited, "an exchange");
}

void NcclCommunicator::exchange(Commands& commands, float* p, std::size_t n, double* sums,
                                std::size_t m, bool joins) {
  call_in_stream_order(commands, [&](CUstream stream) {
    computed_.record(stream);
    check(driver().cuStreamWaitEvent(exchange_stream_.get(), computed_.get(), 0),
          "waiting for gradients");
    add(exchange_stream_.get(), p, n, ncclFloat32, sums, m);
    if (!joins && !commands.is_profiling()) return;
    reduced_.record(exchange_stream_.get());
    check(driver().cuStreamWaitEvent(stream, reduced_.get(), 0), "waiting for an exchange");
  });
}

void NcclCommunicator::add(CUstream stream, void* p, std::size_t n, ncclDataType_t type,
                           double* sums, std::size_t m) {
  call_grouped("an all-reduce", [&] {
    ncclResult_t result = ncclSuccess;
    if (n > 0)
      result = nccl().ncclAllReduce(p, p, n, type, ncclSum, communicator_, cuda_stream(stream));
    if (m > 0 && (result == ncclSuccess || result == ncclInProgress))
      result = nccl().ncclAllReduce(sums, sums, m, ncclFloat64, ncclSum, communicator_,
                                    cuda_stream(stream));
    return result;
  });
}

void NcclCommunicator::call_in_stream_order(Commands& commands,
                                            const std::function<void(CUstream)>& run) {
  commands.run_uncaptured(run, "NCCL exchange");
}

void NcclCommunicator::wait_result(ncclResult_t result, const char* what) {
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
    abort_all();
    throw CollectiveAborted("nccl: {} was aborted because another replica failed", what);
  }
  if (waited > timeout_) {
    abort_all();
    throw CollectiveTimeout(
        "nccl: {} did not finish within {} ms; a replica did not arrive: check the other workers "
        "for errors, or raise the timeout",
        what, std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count());
  }
}

void NcclCommunicator::fail(ncclResult_t result, const char* what) {
  const ncclComm_t failed = communicator_;
  try {
    throw_nccl_error(result, what, failed);
  } catch (...) {
    abort_all();
    throw;
  }
}

void NcclCommunicator::abort_all() {
  nccl().ncclGroupStart();
  for (NcclCommunicator* const c : device_->communicators) {
    c->registered_.clear();  // an abort ends them
    if (c->communicator_ != nullptr) nccl().ncclCommAbort(std::exchange(c->communicator_, nullptr));
  }
  nccl().ncclGroupEnd();
}

void NcclCommunicator::join(const ncclUniqueId& id, std::size_t size, std::size_t rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = nccl().ncclCommInitRankConfig(&communicator_, static_cast<int>(size),
                                                            id, static_cast<int>(rank), &config);
  wait_result(result, "joining");
}

void NcclDeviceState::free(std::byte* p) noexcept {
  for (NcclCommunicator* const c : communicators) c->deregister(p);
  memory.free(p);
}

}  // namespace lockstep::detail::cuda
