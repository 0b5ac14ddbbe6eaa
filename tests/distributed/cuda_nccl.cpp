/// \file
/// Workers with one GPU each, which the host emulates: how they join an NCCL communicator, with a fake
/// that only records the id, and what they exchange by which connections, with one that computes.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "distributed/golden.hpp"
#include "distributed/host_nccl.hpp"
#include "distributed/processes.hpp"
#include "golden/mirrored.hpp"
#include "lockstep/checkpoints.hpp"
#include "lockstep/cuda.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/strategies/multi_worker_mirrored.hpp"
#include "support/host_gpu.hpp"
#include "support/temporary_folder.hpp"

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

/// Runs work() in a process with a GPU and NCCL; `computes`: not only the ids are recorded.
template <class Work>
void with_nccl(Here& own, const Work& work, bool computes = false) {
  here = &own;
  HostNccl::be(own.rank, own.size);
  static const cuda::Driver driver_table =
      computes ? HostNccl::table(driver_with_own_gpu()) : driver_with_own_gpu();
  static const cuda::Nccl nccl_table = computes ? HostNccl::table(noting_nccl()) : noting_nccl();
  const cuda::EntryPoints<cuda::Driver>::Override drivers(driver_table);
  const cuda::EntryPoints<cuda::Nccl>::Override nccls(nccl_table);
  own.run_and_report(work);
}

/// Two workers that exchange over NCCL: equal to Keras, and to each other.
struct WorkersOverNccl {
  template <class Train>
  void operator()(const golden::GoldenFile& file, const std::string& prefix, const Train& train,
                  const golden::Limits& limits, bool) const {
    if (prefix != "uneven/") return;
    const golden::Trained like = train(ls::OneDevice<ls::Reference<float>>{});
    const HostNccl nccl;
    Processes job(
        2,
        [&](Here& own) {
          with_nccl(
              own, [&] { own.give(flat(train(ls::MultiWorkerMirrored<Cuda>{.replicas = 1}))); },
              true);
        },
        300s);
    all_give_the_same(job);
    golden::is_as_keras(trained_from(job.numbers(0), like), file, prefix, limits);
    CHECK(job.has_no_orphans());
  }
};

/// 66 KB of weights, and 64 KB of predictions for 64 examples: more than goes over the rendezvous.
struct Wide : ls::Sequential<ls::Input<64>, ls::Dense<256>> {};
auto wide_model(auto strategy) {
  return ls::Model{Wide{}, std::move(strategy), ls::MeanSquaredError{},
                   ls::SGD{.learning_rate = 0.05}};
}
auto wide_data() {
  std::vector<float> x(64 * 64), y(64 * 256);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 101;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(i * 53 % 97) / 97;
  return ls::tensors(x, ls::shape(64), y, ls::shape(256)) | ls::batch(64);
}

/// Trains two epochs, predicts, evaluates, and continues in a new model from the checkpoint.
template <class Strategy>
std::vector<double> train_and_continue(const Strategy& strategy, const std::string& folder) {
  const auto data = wide_data();
  std::vector<double> all;
  const auto fit = [&](auto& model, int epochs) {
    const auto history = model.fit(data, {.epochs = epochs,
                                          .verify_every = 1,
                                          .checkpoint = {.directory = folder},
                                          .progress = ls::ProgressStyle::none});
    for (const double loss : history["loss"]) all.push_back(loss);
  };
  {
    auto model = wide_model(strategy);
    fit(model, 2);
    const auto predictions = model.predict(data);
    all.insert(all.end(), predictions.elements().begin(), predictions.elements().end());
    all.push_back(model.evaluate(data)["loss"]);
  }
  auto next = wide_model(strategy);
  fit(next, 3);
  const auto weights = next.weights("dense/kernel");
  all.insert(all.end(), weights.begin(), weights.end());
  return all;
}

/// The sockets of this process, and whether it shares a memory file with others, as data planes do.
std::vector<double> connections() {
  double sockets = 0, memories = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    sockets += std::filesystem::read_symlink(entry, closed).string().starts_with("socket:");
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    memories += line.find("/memfd:lockstep") != std::string::npos;
  return {sockets, memories};
}

/// The connections of two workers whose model is open.
template <class Plane>
std::vector<std::vector<double>> connections_of_job(const char* transport) {
  Processes job(2, [&](Here& own) {
    ::setenv("LOCKSTEP_TRANSPORT", transport, 1);
    with_nccl(own, [&] {
      const auto model = wide_model(ls::MultiWorkerMirrored<Cuda, Plane>{.replicas = 1});
      own.give(connections());
      const auto other = wide_model(ls::MultiWorkerMirrored<Cuda, Plane>{.replicas = 1});
    });
  });
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  for (std::size_t rank = 0; rank < 2; ++rank) REQUIRE(job.report(rank).outcome == Outcome::done);
  return {job.numbers(0), job.numbers(1)};
}

}  // namespace

TEST_CASE("workers that exchange over NCCL train the small CNN as Keras does") {
  const testing::HostGpu gpu;
  golden::meets_small_cnn<Cuda>(WorkersOverNccl{});
}

TEST_CASE("workers over NCCL train, predict, evaluate and continue as one GPU does") {
  const testing::HostGpu gpu;
  const HostNccl nccl;
  const TemporaryFolder folder;
  Processes alone(
      1, [&](Here& own) { own.give(train_and_continue(ls::OneDevice<Cuda>{}, folder / "one")); },
      300s);
  all_give_the_same(alone);
  Processes job(
      2,
      [&](Here& own) {
        with_nccl(
            own,
            [&] {
              auto numbers =
                  train_and_continue(ls::MultiWorkerMirrored<Cuda>{.replicas = 1}, folder / "two");
              numbers.push_back(static_cast<double>(HostNccl::bytes_copied()));
              own.give(numbers);
            },
            true);
      },
      300s);
  all_give_the_same(job);
  const std::vector<double> one = alone.numbers(0), two = job.numbers(0);
  // Losses of two epochs, predictions, a loss, those of the continued run, weights.
  REQUIRE(one.size() == 2 + 64 * 256 + 1 + 3 + 64 * 256);
  REQUIRE(two.size() == one.size() + 1);
  for (std::size_t i = 0; i < one.size(); ++i) {
    CAPTURE(i);
    REQUIRE(std::abs(one[i] - two[i]) <= 1e-5 * (1 + std::abs(one[i])));
  }
  CHECK(two[1] < two[0]);  // it learns
  // The predictions of a worker, and the checkpoint, have gone over NCCL.
  CHECK(two.back() >= 32 * 256 * 4 + 64 * 256 * 4);
}

TEST_CASE("workers that exchange over NCCL have no connections for data, and no shared memory") {
  const testing::HostGpu gpu;
  const auto numbers = connections_of_job<ls::StorePlane>("auto");
  CHECK(numbers[0][0] <= 2);  // the chief's port, and the worker
  CHECK(numbers[1][0] == 1);  // the chief
  CHECK(numbers[0][1] + numbers[1][1] == 0);
  CHECK(
      std::is_same_v<ls::MultiWorkerMirrored<Cuda>, ls::MultiWorkerMirrored<Cuda, ls::StorePlane>>);
  // These numbers count the connections of other planes.
  CHECK(connections_of_job<ls::Tcp>("tcp")[1][0] > 1);
  CHECK(connections_of_job<ls::Tcp>("auto")[1][1] > 0);
}

TEST_CASE("a worker over NCCL that dies is named, in a step and in an exchange of small data") {
  const testing::HostGpu gpu;
  for (const bool in_step : {true, false}) {
    CAPTURE(in_step);
    const HostNccl nccl;
    Processes job(
        2,
        [&](Here& own) {
          with_nccl(
              own,
              [&] {
                auto model = wide_model(ls::MultiWorkerMirrored<Cuda>{.replicas = 1});
                const auto die = [&] {
                  if (own.rank == 1 && own.begin_fault()) HostNccl::die();
                };
                const auto after_step = [&](std::size_t, const ls::Logs&) {
                  if (in_step) die();
                };
                model.fit(wide_data(),
                          {.epochs = 3,
                           .callbacks = {ls::LambdaCallback{.on_train_batch_end = after_step}},
                           .progress = ls::ProgressStyle::none});
                die();
                model.job_replica_weights_sha256();
              },
              true);
        },
        120s);
    REQUIRE(job.all_end());
    CAPTURE(job.logs());
    const Report& report = job.report(0);
    CAPTURE(report.what.text);
    REQUIRE(job.report(1).fault_injected);
    REQUIRE(report.outcome == Outcome::peer_lost);
    CHECK(report.lost_rank == 1);
    CHECK(std::string(report.how).find("closed its connection") != std::string::npos);
    CHECK(report.reported_at - job.report(1).fault_at < 3s);
    CHECK(job.has_no_orphans());
  }
}

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
