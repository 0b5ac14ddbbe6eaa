/// \file
/// The distribution of NCCL's id to all ranks: any process that has it may join.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/collectives/cuda/cuda_group.hpp"
#include "lockstep/collectives/hierarchical_group.hpp"
#include "lockstep/collectives/thread_group.hpp"
#include "lockstep/cuda.hpp"
#include "support/deadline.hpp"
#include "support/gpus_in_name.hpp"
#include "support/recorder.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;

namespace {

/// The calls of the fakes, and the bytes sent between processes.
struct Notes {
  std::mutex mutex;
  std::vector<std::string> ids;                    // of created communicators
  std::map<int, std::vector<std::string>> joined;  // ids joined, by rank
  std::string numbers, secrets;                    // sent between processes
};
Notes* notes = nullptr;

/// A process' member of the group of processes, which records the data and secrets that it sends.
class Spied : public ThreadGroup::Member {
 public:
  using ThreadGroup::Member::Member;
  template <class T>
  void all_reduce(T* p, std::size_t n, double* sums, std::size_t m) {
    Member::all_reduce(p, n, sums, m);
    note(notes->numbers, p, n * sizeof(T));
  }
  template <class T>
  void broadcast(T* p, std::size_t n, std::size_t root) {
    Member::broadcast(p, n, root);
    note(notes->numbers, p, n * sizeof(T));
  }
  template <class T>
  void all_gather(const T* p, std::size_t n, T* out) {
    Member::all_gather(p, n, out);
    note(notes->numbers, out, size() * n * sizeof(T));
  }
  void share_secret(std::byte* p, std::size_t n) {
    Member::share_secret(p, n);
    note(notes->secrets, p, n);
  }

 private:
  static void note(std::string& where, const void* p, std::size_t bytes) {
    const std::scoped_lock lock(notes->mutex);
    where.append(static_cast<const char*>(p), bytes);
  }
};

Nccl fake_nccl() {
  Nccl table;
  table.ncclGetUniqueId = [](ncclUniqueId* id) {
    const std::scoped_lock lock(notes->mutex);
    for (std::size_t i = 0; i < sizeof id->internal; ++i)
      id->internal[i] = static_cast<char>(37 * i + 11 * notes->ids.size() + 1);
    notes->ids.emplace_back(id->internal, sizeof id->internal);
    return ncclSuccess;
  };
  table.ncclCommInitRankConfig = [](ncclComm_t* c, int, ncclUniqueId id, int rank, ncclConfig_t*) {
    const std::scoped_lock lock(notes->mutex);
    notes->joined[rank].emplace_back(id.internal, sizeof id.internal);
    *c = reinterpret_cast<ncclComm_t>(8);
    return ncclSuccess;
  };
  table.ncclCommGetAsyncError = [](ncclComm_t, ncclResult_t* state) {
    return *state = ncclSuccess;
  };
  LOCKSTEP_CUDA_NCCL(LOCKSTEP_RECORD)
  return table;
}

Driver fake_driver() {
  Driver table = testing::gpus_in_name<3>();
  LOCKSTEP_CUDA_DRIVER(LOCKSTEP_RECORD)
  return table;
}

}  // namespace

TEST_CASE("NCCL's id is a secret of the group and is not sent with the data") {
  using Group = CudaGroup<HierarchicalGroup<Spied>>;
  Notes all;
  notes = &all;
  testing::Recorder recorder;
  const Nccl nccl_table = fake_nccl();
  const Driver driver_table = fake_driver();
  const EntryPoints<Nccl>::Override nccls(nccl_table);
  const EntryPoints<Driver>::Override drivers(driver_table);

  // Two processes, of two replicas and of one, and two groups of them.
  const std::vector<std::size_t> replicas{2, 1};
  ThreadGroup between_layers({.size = 2}), between_gradients({.size = 2});
  std::vector<std::unique_ptr<Spied>> processes;
  std::vector<std::unique_ptr<Group>> layers, gradients;
  for (std::size_t p = 0; p < 2; ++p) {
    const ThreadGroup::Options threads{.size = replicas[p]};
    processes.push_back(std::make_unique<Spied>(between_layers, p));
    layers.push_back(std::make_unique<Group>(*processes.back(), replicas, threads));
    processes.push_back(std::make_unique<Spied>(between_gradients, p));
    gradients.push_back(std::make_unique<Group>(*processes.back(), replicas, threads));
  }
  const testing::Deadline deadline("NCCL's id");
  std::array<CudaTransport, 3> ways{};
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      CudaContext context = Cuda{}.open(3, rank);
      const auto scope = context.scope();
      Group::Member of_layers(*layers[rank / 2], rank % 2);
      Group::Member of_gradients(*gradients[rank / 2], rank % 2);
      of_layers.attach(context);
      of_gradients.attach(context);
      ways[rank] = of_layers.transport();
      of_gradients.transport();
      of_gradients.detach();
      of_layers.detach();
    });
  for (std::thread& thread : threads) thread.join();

  CHECK(ways == std::array{CudaTransport::nccl, CudaTransport::nccl, CudaTransport::nccl});
  REQUIRE(all.ids.size() == 2);
  REQUIRE(all.joined.size() == 3);
  for (const auto& [rank, ids] : all.joined) CHECK(ids == all.ids);
  REQUIRE_FALSE(all.numbers.empty());
  for (const std::string& id : all.ids) {
    CHECK(all.secrets.find(id) != std::string::npos);
    for (std::size_t i = 0; i + 8 <= id.size(); i += 8)
      CHECK(all.numbers.find(id.substr(i, 8)) == std::string::npos);
  }
  notes = nullptr;
}
