/// \file
/// How workers with one GPU each join an NCCL communicator. The host stands in for the GPUs, and a
/// fake NCCL only records the id with which a rank joins.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "distributed/processes.hpp"
#include "lockstep/cuda.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/strategies/multi_worker_mirrored.hpp"
#include "support/host_gpu.hpp"

using namespace distributed;
using ls::Cuda;
namespace cuda = lockstep::detail::cuda;

namespace {

/// The state of this process.
Here* here = nullptr;
std::size_t made = 0;                        // ids
std::vector<std::string> joined;             // with these ids
void (*when_making)(std::size_t) = nullptr;  // called before the n-th id is made

cuda::Driver driver_with_own_gpu() {
  cuda::Driver table = cuda::driver();
  table.cuDeviceGetUuid = [](CUuuid* uuid, CUdevice) {
    *uuid = {};
    uuid->bytes[0] = static_cast<char>(here->rank + 1);
    return CUDA_SUCCESS;
  };
  return table;
}

cuda::Nccl noting_nccl() {
  cuda::Nccl table;
  table.ncclGetErrorString = [](ncclResult_t) { return "an error"; };
  table.ncclGetLastError = [](ncclComm_t) { return ""; };
  table.ncclGetUniqueId = [](ncclUniqueId* id) {
    if (when_making != nullptr) when_making(made);
    ++made;
    for (std::size_t i = 0; i < sizeof id->internal; ++i)
      id->internal[i] = static_cast<char>(7 * i + 100 * made + 31 * here->rank);
    return ncclSuccess;
  };
  table.ncclCommInitRankConfig = [](ncclComm_t* c, int, ncclUniqueId id, int, ncclConfig_t*) {
    joined.emplace_back(id.internal, sizeof id.internal);
    *c = reinterpret_cast<ncclComm_t>(8);
    return ncclSuccess;
  };
  table.ncclCommGetAsyncError = [](ncclComm_t, ncclResult_t* state) {
    return *state = ncclSuccess;
  };
  table.ncclCommDestroy = [](ncclComm_t) { return ncclSuccess; };
  table.ncclCommAbort = [](ncclComm_t) { return ncclSuccess; };
  table.ncclGroupStart = [] { return ncclSuccess; };
  table.ncclGroupEnd = [] { return ncclSuccess; };
  return table;
}

struct Net : ls::Sequential<ls::Input<4>, ls::Dense<3>> {};
auto open_model() {
  return ls::Model{Net{}, ls::MultiWorkerMirrored<Cuda>{.replicas = 1}, ls::MeanSquaredError{},
                   ls::SGD{}};
}

/// Runs work() in a process with a GPU and NCCL.
template <class Work>
void with_nccl(Here& own, const Work& work) {
  here = &own;
  static const cuda::Driver driver_table = driver_with_own_gpu();
  static const cuda::Nccl nccl_table = noting_nccl();
  const cuda::EntryPoints<cuda::Driver>::Override drivers(driver_table);
  const cuda::EntryPoints<cuda::Nccl>::Override nccls(nccl_table);
  own.run_and_report(work);
}

}  // namespace

TEST_CASE("all ranks of a job join with the id of rank 0, a new one for each model") {
  const testing::HostGpu gpu;
  Processes job(3, [](Here& own) {
    with_nccl(own, [&] {
      {
        const auto first = open_model();
        const auto second = open_model();
      }
      const auto third = open_model();  // a new job: the previous one has ended
      std::vector<double> numbers{static_cast<double>(made)};
      for (const std::string& id : joined) numbers.insert(numbers.end(), id.begin(), id.end());
      own.give(numbers);
    });
  });
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CAPTURE(rank, job.report(rank).what.text);
    REQUIRE(job.report(rank).outcome == Outcome::done);
    std::vector<double> numbers = job.numbers(rank);
    REQUIRE(numbers.size() == 1 + 3 * 128);
    CHECK(numbers[0] == (rank == 0 ? 3 : 0));
    for (std::size_t i = 0; i < 3 * 128; ++i) {
      const auto expected = static_cast<signed char>(7 * (i % 128) + 100 * (i / 128 + 1));
      REQUIRE(numbers[1 + i] == expected);
    }
  }
}

TEST_CASE("when rank 0 dies before its id is shared, all others name it") {
  const testing::HostGpu gpu;
  Processes job(3, [](Here& own) {
    when_making = [](std::size_t n) {
      if (n == 1 && here->begin_fault()) ::kill(::getpid(), SIGKILL);
    };
    with_nccl(own, [] {
      const auto first = open_model();
      const auto second = open_model();
    });
  });
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  REQUIRE(job.report(0).fault_injected);
  for (const std::size_t rank : {1u, 2u}) {
    const Report& report = job.report(rank);
    CAPTURE(rank, report.what.text);
    REQUIRE(report.outcome == Outcome::peer_lost);
    CHECK(report.lost_rank == 0);
    CHECK(report.reported_at - job.report(0).fault_at < 3s);
  }
}
