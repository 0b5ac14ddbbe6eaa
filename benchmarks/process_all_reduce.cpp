/// \file
/// Compares the all-reduces between processes on this machine, in turn, in one run: over shared
/// memory, over TCP, by both as on two machines, and by Gloo.
///
/// N processes over loopback, each bound to a core if there are enough. Before each operation every
/// process writes its whole buffer, as backward does; then all meet at a barrier in shared memory
/// and start: polling if there is a core per process, so that no wake-up is measured. A time is
/// from the first start to the last end; `cpu us` is the CPU time of all processes and Gloo's
/// threads per operation, which is more reliable on a busy machine. Rows:
///
/// - `shared, in place`, `shared, copied`: all_reduce of a SharedMemoryGroup, of memory that it has
///   allocated and of other memory. It polls before it sleeps, as a worker does, if there is a core
///   per process.
/// - `TcpGroup, plain`, `TcpGroup, sealed`: with a CRC32C, and with AES-128-GCM as between machines.
/// - `two machines`: a MachineGroup, sealed and in place, of processes that are divided into two halves
///   as if they were on two machines. Only for an even number of at least four.
/// - `gloo ring`: gloo::allreduce over Gloo's TCP connections, unencrypted. Only if the benchmark was
///   built with Gloo.
/// - `memcpy`: each process copies the bytes once, from its buffer to another one.
#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#ifdef BENCHMARK_HAS_GLOO
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#endif
#include <CLI/CLI.hpp>

#include <lockstep/cluster/network/data_connector.hpp>
#include <lockstep/collectives/algorithms/spin.hpp>
#include <lockstep/collectives/machine_group.hpp>
#include <lockstep/collectives/shared_memory/shared_memory_group.hpp>
#include <lockstep/collectives/tcp/tcp_group.hpp>

#include "measure.hpp"
#include "processes.hpp"

namespace ls = lockstep;

namespace {

struct Options {
  std::vector<std::size_t> processes{2, 3, 4};
  std::vector<std::size_t> sizes{16, 1024, 4096, 16384, 65536, 347146};
  int rounds = 200;
  bool binds = true;
};

constexpr std::size_t max_processes = 16;
enum Row : std::size_t { in_place, copied, plain_tcp, sealed_tcp, two_machines, ring, copy, rows };
const char* const names[rows] = {
    "shared, in place", "shared, copied", "TcpGroup, plain", "TcpGroup, sealed",
    "two machines",     "gloo ring",      "memcpy"};

/// State in shared memory: a barrier, and each process' start and end.
struct Shared {
  explicit Shared(std::size_t processes) : line(processes), start(processes) {}

  measure::SleepingLine line;
  measure::StartLine start;
  measure::Clock::time_point begin[max_processes], end[max_processes];
  double cpu_us[max_processes] = {};
};

#ifdef BENCHMARK_HAS_GLOO
/// Gloo's own ring all-reduce, a peer of ours.
class GlooRing {
 public:
  static constexpr bool exists = true;

  GlooRing(const std::string& folder, std::size_t rank, std::size_t size)
      : context_(std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank),
                                                             static_cast<int>(size))) {
    gloo::rendezvous::FileStore files(folder);
    gloo::rendezvous::PrefixStore store("gloo", files);
    auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
    context_->setTimeout(std::chrono::seconds(30));
    context_->connectFullMesh(store, device);
  }

  /// Sets the numbers that `all_reduce` sums.
  void set(float* x, std::size_t n) {
    options_.emplace(context_);
    options_->setAlgorithm(gloo::detail::AllreduceOptionsImpl::RING);
    options_->setOutput(x, n);
    options_->setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
  }
  void all_reduce() { gloo::allreduce(*options_); }

 private:
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::optional<gloo::AllreduceOptions> options_;
};
#else
/// Stands in for Gloo's ring where Gloo is not installed; its row is left out.
struct GlooRing {
  static constexpr bool exists = false;

  GlooRing(const std::string&, std::size_t, std::size_t) {}
  void set(float*, std::size_t) {}
  void all_reduce() {}
};
#endif

/// Loopback connections of their own.
std::shared_ptr<ls::TcpMesh> tcp_mesh(measure::FolderStore& store, const std::string& name,
                                      std::size_t rank, std::size_t size, bool sealed) {
  ls::DataOptions options{
      .rank = rank, .per_peer = 1, .run = name, .key = ls::Secret("the key of a benchmark")};
  options.peers = ls::detail::peers_of(rank, size, ls::detail::Topology::direct);
  ls::DataConnector connector(options);
  const auto deadline = measure::Clock::now() + std::chrono::seconds(30);
  if (!connector.place().empty()) store.set(fmt::format("{}{}", name, rank), connector.place());
  std::map<std::size_t, std::string> places;
  for (std::size_t r = 0; r < rank; ++r)
    places[r] = store.get(fmt::format("{}{}", name, r), deadline).value();
  auto connections = connector.connect(places, deadline, [] {});
  if (!sealed)
    for (ls::DataConnection& connection : connections)
      connection.send_key = connection.receive_key = std::nullopt;
  return std::make_shared<ls::TcpMesh>(
      ls::TcpMesh::Options{.rank = rank, .size = size, .channels = 1}, std::move(connections));
}

ls::TcpGroup tcp_group(measure::FolderStore& store, const std::string& name, std::size_t rank,
                       std::size_t size, bool sealed, bool polls) {
  return {tcp_mesh(store, name, rank, size, sealed), {.spins = polls ? 10'000 : 0}};
}

bool has_two_machines(std::size_t size) { return size >= 4 && size % 2 == 0; }

/// A group as on two machines; empty if the size has none.
std::optional<ls::MachineGroup> machine_group(measure::FolderStore& store, std::size_t rank,
                                              std::size_t size, bool polls) {
  if (!has_two_machines(size)) return std::nullopt;
  const std::size_t half = size / 2, machine = rank / half, lane = rank % half;
  const auto memory = measure::open_memory(store, lane, half, fmt::format("machine {}", machine));
  const auto mesh = tcp_mesh(store, fmt::format("lane {} machine ", lane), machine, 2, true);
  return ls::MachineGroup(memory, mesh, {{half, half}}, rank,
                          {.spins = polls ? ls::detail::short_spins : 0});
}

double cpu_micros() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

/// Body of each process. \returns false if a sum was wrong.
bool measure_rank(const Options& options, const std::string& folder, Shared& shared,
                  std::size_t rank, std::size_t size) {
  const bool polls = size <= std::thread::hardware_concurrency();
  if (options.binds) measure::bind_to_core(rank);
  measure::FolderStore store(folder);
  ls::SharedMemoryGroup direct(measure::open_memory(store, rank, size), rank, size,
                               {.spins = polls ? ls::detail::short_spins : 0});
  ls::TcpGroup plain_group = tcp_group(store, "plain tcp", rank, size, false, polls),
               sealed_group = tcp_group(store, "sealed tcp", rank, size, true, polls);
  std::optional<ls::MachineGroup> machines = machine_group(store, rank, size, polls);
  GlooRing gloo_ring(folder, rank, size);
  const auto is_measured = [&](std::size_t row) {
    return row == two_machines ? machines.has_value() : row != ring || GlooRing::exists;
  };
  bool is_right = true;
  for (const std::size_t n : options.sizes) {
    std::vector<float> own(n), copied_to(n);
    auto* const shared_x =
        reinterpret_cast<float*>(direct.exchange_allocator()->allocate(n * sizeof(float)));
    auto* const machines_x =
        machines
            ? reinterpret_cast<float*>(machines->exchange_allocator()->allocate(n * sizeof(float)))
            : nullptr;
    gloo_ring.set(own.data(), n);
    measure::Samples us[rows], cpu_us[rows];
    for (int round = -5; round < options.rounds; ++round)
      for (std::size_t row = 0; row < rows; ++row) {
        if (!is_measured(row)) continue;
        float* const x = row == in_place ? shared_x : row == two_machines ? machines_x : own.data();
        for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(rank + 1 + i % 7);
        shared.line.wait();
        if (polls) shared.start.wait();
        const double cpu_before = cpu_micros();
        shared.begin[rank] = measure::Clock::now();
        if (row == in_place || row == copied) {
          direct.all_reduce(x, n);
        } else if (row == plain_tcp) {
          plain_group.all_reduce(x, n);
        } else if (row == sealed_tcp) {
          sealed_group.all_reduce(x, n);
        } else if (row == two_machines) {
          machines->all_reduce(x, n);
        } else if (row == ring) {
          gloo_ring.all_reduce();
        } else {
          std::memcpy(copied_to.data(), x, n * sizeof(float));
        }
        shared.end[rank] = measure::Clock::now();
        shared.cpu_us[rank] = cpu_micros() - cpu_before;
        shared.line.wait();
        if (rank == 0 && round >= 0) {
          cpu_us[row].add(std::accumulate(shared.cpu_us, shared.cpu_us + size, 0.0));
          us[row].add(measure::micros(*std::max_element(shared.end, shared.end + size) -
                                      *std::min_element(shared.begin, shared.begin + size)));
        }
        for (std::size_t i = 0; i < n; ++i)
          is_right =
              is_right &&
              (row == copy ? copied_to[i] == x[i]
                           : x[i] == static_cast<float>(size * (size + 1) / 2 + size * (i % 7)));
        shared.line.wait();
      }
    if (rank == 0)
      for (std::size_t row = 0; row < rows; ++row)
        if (is_measured(row))
          fmt::print("{:9} {:9}  {:17} {:10.1f} {:10.1f} {:10.1f}\n", size, n * sizeof(float),
                     names[row], us[row].median(), us[row].min(), cpu_us[row].median());
    direct.exchange_allocator()->release(reinterpret_cast<std::byte*>(shared_x));
    if (machines) machines->exchange_allocator()->release(reinterpret_cast<std::byte*>(machines_x));
  }
  std::fflush(stdout);
  shared.line.wait();
  return is_right;
}

bool measure_size(const Options& options, std::size_t size) {
  const measure::Shared<Shared> shared(size);
  const measure::TemporaryFolder folder("process_all_reduce");
  return measure::in_processes(size, [&](std::size_t rank) {
    return measure_rank(options, folder.path(), *shared, rank, size);
  });
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Compares the all-reduces between processes of this machine", "process_all_reduce");
  app.add_option("--processes", options.processes, "numbers of processes")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{2}, max_processes));
  app.add_option("--floats", options.sizes, "numbers of elements")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 28));
  app.add_option("--rounds", options.rounds, "operations of each kind")
      ->check(CLI::Range(1, 1 << 30));
  app.add_flag("!--unbound", options.binds, "do not bind the processes to cores");
  CLI11_PARSE(app, argc, argv);

  fmt::print("{}; {} rounds\n", measure::machine(), options.rounds);
  fmt::print("{:>9} {:>9}  {:17} {:>10} {:>10} {:>10}\n", "processes", "bytes", "operation",
             "median us", "min us", "cpu us");
  for (const std::size_t size : options.processes)
    if (!measure_size(options, size)) {
      std::fputs("process_all_reduce: a sum is wrong, or a process failed\n", stderr);
      return 1;
    }
}
