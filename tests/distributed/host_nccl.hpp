/// \file
/// NCCL between processes whose GPUs are emulated on the host (HostGpu): the ranks exchange through
/// memory that they share, in the order of calls. Invariants: each process has one replica; a call
/// whose peer has died leaves its stream unfinished until the communicator is aborted, as NCCL does.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <thread>

#include "lockstep/devices/cuda/libraries/driver.hpp"
#include "lockstep/devices/cuda/libraries/nccl.hpp"
#include "support/host_gpu.hpp"

namespace distributed {

/// Construct it before the processes are forked, at most one at a time.
class HostNccl {
 public:
  HostNccl() {
    void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    shared = ::new (memory) Shared;
  }
  HostNccl(const HostNccl&) = delete;
  HostNccl& operator=(const HostNccl&) = delete;
  ~HostNccl() { ::munmap(shared, sizeof(Shared)); }

  /// Call it first in a process of the job. `rank` is that of its replica.
  static void be(std::size_t rank, std::size_t size) {
    own_rank = rank;
    ranks = size;
  }
  /// Dies by SIGKILL. The others' pending calls are then never finished.
  [[noreturn]] static void die() {
    shared->is_dead[own_rank] = true;
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
  }
  /// Bytes that this process has broadcast or gathered.
  static std::size_t bytes_copied() { return copied; }

  /// Replaces the functions of `table` that join, exchange and abort.
  static lockstep::detail::cuda::Nccl table(lockstep::detail::cuda::Nccl table) {
    table.ncclGetUniqueId = [](ncclUniqueId* id) {
      *id = {};
      id->internal[0] = static_cast<char>(made++);
      return ncclSuccess;
    };
    table.ncclCommInitRankConfig = [](ncclComm_t* c, int, ncclUniqueId id, int, ncclConfig_t*) {
      *c = reinterpret_cast<ncclComm_t>(&shared->communicators[static_cast<int>(id.internal[0])]);
      return ncclSuccess;
    };
    table.ncclCommAbort = [](ncclComm_t) { return stuck = false, ncclSuccess; };
    table.ncclAllReduce = [](const void* from, void* to, std::size_t n, ncclDataType_t type,
                             ncclRedOp_t, ncclComm_t c, cudaStream_t) {
      type == ncclFloat64 ? add<double>(c, from, to, n) : add<float>(c, from, to, n);
      return ncclSuccess;
    };
    table.ncclBroadcast = [](const void* from, void* to, std::size_t n, ncclDataType_t, int root,
                             ncclComm_t c, cudaStream_t) {
      copied += n;
      exchange(c, from, n, [=](Communicator& all, std::size_t at, std::size_t bytes) {
        std::memcpy(static_cast<std::byte*>(to) + at, all.parts[root], bytes);
      });
      return ncclSuccess;
    };
    table.ncclAllGather = [](const void* from, void* to, std::size_t n, ncclDataType_t,
                             ncclComm_t c, cudaStream_t) {
      copied += n;
      exchange(c, from, n, [=](Communicator& all, std::size_t at, std::size_t bytes) {
        for (std::size_t r = 0; r < ranks; ++r)
          std::memcpy(static_cast<std::byte*>(to) + r * n + at, all.parts[r], bytes);
      });
      return ncclSuccess;
    };
    return table;
  }
  /// The same for the driver: a stream is unfinished while a call waits for a dead peer.
  static lockstep::detail::cuda::Driver table(lockstep::detail::cuda::Driver table) {
    query = table.cuStreamQuery;
    table.cuStreamQuery = [](CUstream s) { return stuck ? CUDA_ERROR_NOT_READY : query(s); };
    return table;
  }

 private:
  static constexpr std::size_t most_ranks = 4, part_bytes = std::size_t{64} << 10;
  struct Communicator {
    std::atomic<std::uint64_t> arrived[most_ranks];
    alignas(64) std::byte parts[most_ranks][part_bytes];
  };
  struct Shared {
    std::atomic<bool> is_dead[most_ranks];
    Communicator communicators[16];
  };

  /// A barrier of all ranks. \return false if one is dead and has not arrived.
  static bool meet(Communicator& c) {
    const std::uint64_t mine = ++c.arrived[own_rank];
    for (std::size_t r = 0; r < ranks; ++r)
      while (c.arrived[r] < mine) {
        if (shared->is_dead[r]) return false;
        std::this_thread::yield();
      }
    return true;
  }
  /// Shares from[0..bytes) in parts, and calls read(communicator, offset, size) for each.
  template <class Read>
  static void exchange(ncclComm_t c, const void* from, std::size_t bytes, const Read& read) {
    testing::HostGpu::call([=] {
      Communicator& all = *reinterpret_cast<Communicator*>(c);
      for (std::size_t at = 0; at < bytes && !stuck; at += part_bytes) {
        const std::size_t part = std::min(part_bytes, bytes - at);
        std::memcpy(all.parts[own_rank], static_cast<const std::byte*>(from) + at, part);
        const bool all_came = meet(all);
        if (all_came) read(all, at, part);
        stuck = !all_came || !meet(all);
      }
    });
  }
  template <class T>
  static void add(ncclComm_t c, const void* from, void* to, std::size_t n) {
    exchange(c, from, n * sizeof(T), [=](Communicator& all, std::size_t at, std::size_t bytes) {
      T* const sum = reinterpret_cast<T*>(static_cast<std::byte*>(to) + at);
      for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
        T x = 0;
        for (std::size_t r = 0; r < ranks; ++r) x += reinterpret_cast<const T*>(all.parts[r])[i];
        sum[i] = x;
      }
    });
  }

  static inline Shared* shared = nullptr;
  static inline std::size_t own_rank = 0, ranks = 1, copied = 0;
  static inline int made = 0;
  static inline std::atomic<bool> stuck = false;
  static inline CUresult (*query)(CUstream) = nullptr;
};

}  // namespace distributed
