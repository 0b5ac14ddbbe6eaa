/// \file
/// The all-reduce of a GlooGroup between processes on this machine, beside Gloo's own, measured in
/// turn in one run.
///
/// N processes over loopback, each bound to a core as long as there is one. Before each operation
/// every process writes its whole buffer, as backward does; then all meet at a line in shared
/// memory and start. A time is from the first begin to the last end; `cpu us` is what all
/// processes and the threads of Gloo took for one operation, which says more on a busy machine.
/// Rows:
///
/// - `GlooGroup`: lockstep::GlooGroup::all_reduce.
/// - `gloo ring`, `gloo bcube`: gloo::allreduce over the same kind of connections.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <CLI/CLI.hpp>

#include <lockstep/collectives/gloo_group.hpp>

#include "measure.hpp"

namespace ls = lockstep;

namespace {

struct Options {
  std::vector<std::size_t> processes{2, 3, 4};
  std::vector<std::size_t> sizes{16, 1024, 4096, 16384, 65536, 347146};
  int rounds = 200;
  bool binds = true;
};

constexpr std::size_t max_processes = 16, rows = 3;
const char* const names[rows] = {"GlooGroup", "gloo ring", "gloo bcube"};

/// What the processes share: a line where they meet asleep, so that who is done first takes no core
/// from Gloo's threads of the others, and when each began and ended.
struct Shared {
  explicit Shared(std::size_t processes) {
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&line, &shared, static_cast<unsigned>(processes));
  }
  void meet() { pthread_barrier_wait(&line); }

  pthread_barrier_t line;
  measure::Clock::time_point begin[max_processes], end[max_processes];
  double cpu_us[max_processes] = {};
};

/// A store in a folder: a key is a file.
class FolderStore : public ls::GlooStore {
 public:
  explicit FolderStore(const std::string& folder) : store_(folder) {}
  void set(const std::string& key, const std::string& bytes) override {
    store_.set(key, std::vector<char>(bytes.begin(), bytes.end()));
  }
  std::optional<std::string> get(const std::string& key, Deadline) override {
    const std::vector<char> bytes = store_.get(key);
    return std::string(bytes.begin(), bytes.end());
  }

 private:
  gloo::rendezvous::FileStore store_;
};

std::shared_ptr<gloo::rendezvous::Context> plain_context(const std::string& folder,
                                                         std::size_t rank, std::size_t size) {
  gloo::rendezvous::FileStore files(folder);
  gloo::rendezvous::PrefixStore store("plain", files);
  auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  auto context =
      std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank), static_cast<int>(size));
  context->setTimeout(std::chrono::seconds(30));
  context->connectFullMesh(store, device);
  return context;
}

double cpu_micros() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

/// What one process does. False if a sum was wrong.
bool measure_rank(const Options& options, const std::string& folder, Shared& shared,
                  std::size_t rank, std::size_t size) {
  if (options.binds) measure::bind_to_core(rank);
  FolderStore store(folder);
  ls::GlooGroup group(ls::form_gloo_mesh({.rank = rank, .size = size, .run = "benchmark"}, store),
                      {});
  const auto context = plain_context(folder, rank, size);
  bool is_right = true;
  for (const std::size_t n : options.sizes) {
    std::vector<float> x(n);
    gloo::AllreduceOptions plain(context);
    plain.setOutput(x.data(), n);
    plain.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    measure::Samples us[rows], cpu_us[rows];
    for (int round = -5; round < options.rounds; ++round)
      for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(rank + 1 + i % 7);
        shared.meet();
        const double cpu_before = cpu_micros();
        shared.begin[rank] = measure::Clock::now();
        if (row == 0) {
          group.all_reduce(x.data(), n);
        } else {
          plain.setAlgorithm(row == 1 ? gloo::detail::AllreduceOptionsImpl::RING
                                      : gloo::detail::AllreduceOptionsImpl::BCUBE);
          gloo::allreduce(plain);
        }
        shared.end[rank] = measure::Clock::now();
        shared.cpu_us[rank] = cpu_micros() - cpu_before;
        shared.meet();
        if (rank == 0 && round >= 0) {
          cpu_us[row].add(std::accumulate(shared.cpu_us, shared.cpu_us + size, 0.0));
          us[row].add(measure::micros(*std::max_element(shared.end, shared.end + size) -
                                      *std::min_element(shared.begin, shared.begin + size)));
        }
        for (std::size_t i = 0; i < n; ++i)
          is_right = is_right && x[i] == static_cast<float>(size * (size + 1) / 2 + size * (i % 7));
        shared.meet();
      }
    if (rank == 0)
      for (std::size_t row = 0; row < rows; ++row)
        std::printf("%9zu %9zu  %-12s %10.1f %10.1f %10.1f\n", size, n * sizeof(float), names[row],
                    us[row].median(), us[row].min(), cpu_us[row].median());
  }
  std::fflush(stdout);
  group.barrier();
  return is_right;
}

bool measure_size(const Options& options, std::size_t size) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  auto* shared = new (memory) Shared(size);
  char folder[] = "/tmp/gloo_all_reduce_XXXXXX";
  if (!mkdtemp(folder)) return false;
  std::fflush(stdout);
  std::vector<pid_t> children;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(300);
      int code = 1;
      try {
        code = measure_rank(options, folder, *shared, rank, size) ? 0 : 1;
      } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
      }
      _exit(code);
    }
    children.push_back(child);
  }
  bool is_right = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    is_right = is_right && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  munmap(memory, sizeof(Shared));
  return is_right;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("The all-reduce of a GlooGroup beside Gloo's own", "gloo_all_reduce");
  app.add_option("--processes", options.processes, "numbers of processes")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{2}, max_processes));
  app.add_option("--floats", options.sizes, "numbers of elements")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 28));
  app.add_option("--rounds", options.rounds, "operations of each kind")
      ->check(CLI::Range(1, 1 << 30));
  app.add_flag("!--unbound", options.binds, "leave the processes to the system's scheduler");
  CLI11_PARSE(app, argc, argv);

  std::printf("%s; %d rounds\n", measure::machine().c_str(), options.rounds);
  std::printf("%9s %9s  %-12s %10s %10s %10s\n", "processes", "bytes", "operation", "median us",
              "min us", "cpu us");
  for (const std::size_t size : options.processes)
    if (!measure_size(options, size)) {
      std::fputs("gloo_all_reduce: a sum is wrong, or a process failed\n", stderr);
      return 1;
    }
}
