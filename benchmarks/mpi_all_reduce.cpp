/// \file
/// Compares the all-reduces between processes that mpirun has started, in turn, in one run.
///
/// Without mpirun the program starts itself in `--processes` processes on this machine. Each is bound
/// to a core if there are enough. Before each operation every process writes its whole buffer, as
/// backward does; then all meet at MPI_Barrier and start. A time is from the first start to the last
/// end, so compare processes of one machine only. Rows:
///
/// - `MPI_Allreduce`: of the MPI library, in place. Nothing but its end ends the wait in it.
/// - `MPI_Iallreduce`: the same, polled, as it would have to be used in order to be ended by an abort
///   or a timeout: on a copy, since MPI keeps the buffer of an operation that was given up.
/// - `MpiGroup`, `SharedMemoryGroup`: their all_reduce.
/// - `memcpy`: each process copies the bytes once, from its buffer to another one.
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/collectives/algorithms/spin.hpp>
#include <lockstep/collectives/shared_memory/shared_memory_group.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/core/process/cores.hpp>
#include <lockstep/mpi.hpp>

#include "measure.hpp"

namespace ls = lockstep;

namespace {

struct Options {
  int processes = 2;
  std::vector<std::size_t> sizes{1, 16384, 347146};
  int rounds = 200;
  bool binds = true;
};

enum Row : std::size_t { blocking, polled, group_row, shared_row, copy, rows };
const char* const names[rows] = {"MPI_Allreduce", "MPI_Iallreduce", "MpiGroup", "SharedMemoryGroup",
                                 "memcpy"};

/// Replaces this program by mpirun, which starts it again.
[[noreturn]] void start_with_mpirun(int processes, int argc, char** argv) {
  ::setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
  ::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);  // the program binds itself
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  std::string count = std::to_string(processes), mpirun = "mpirun", option = "-n";
  std::vector<char*> arguments{mpirun.data(), option.data(), count.data()};
  arguments.insert(arguments.end(), argv, argv + argc);
  arguments.push_back(nullptr);
  ::execvp("mpirun", arguments.data());
  std::perror("mpi_all_reduce: mpirun");
  std::exit(1);
}

std::shared_ptr<ls::SharedMemory> open_memory(const ls::MpiCommunicator& world) {
  const ls::SharedMemory::Options options{.bytes = ls::SharedMemoryGroup::bytes(world.size(), 1)};
  std::array<char, 256> place{};
  std::shared_ptr<ls::SharedMemory> memory;
  if (world.rank() == 0) {
    memory = ls::SharedMemory::create(options);
    memory->place().copy(place.data(), place.size() - 1);
  }
  MPI_Bcast(place.data(), static_cast<int>(place.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  return memory ? memory : ls::SharedMemory::open(place.data(), options);
}

void all_reduce_polled(std::vector<float>& x, std::vector<float>& copied) {
  std::memcpy(copied.data(), x.data(), x.size() * sizeof(float));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, copied.data(), static_cast<int>(x.size()), MPI_FLOAT, MPI_SUM,
                 MPI_COMM_WORLD, &request);
  for (int is_done = 0; is_done == 0;) MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
  std::memcpy(x.data(), copied.data(), x.size() * sizeof(float));
}

/// From the first start to the last end among the processes, in us. Clocks of one machine agree.
double elapsed_micros(measure::Clock::time_point begin, measure::Clock::time_point end) {
  double first = -measure::micros(begin.time_since_epoch()),
         last = measure::micros(end.time_since_epoch()), ends[2] = {first, last};
  MPI_Allreduce(MPI_IN_PLACE, ends, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return ends[1] + ends[0];
}

/// \returns false if a sum was wrong.
bool measure_size(const Options& options, const ls::MpiCommunicator& world, ls::MpiGroup& group,
                  ls::SharedMemoryGroup& shared, std::size_t n) {
  std::vector<float> x(n), copied(n);
  measure::Samples us[rows];
  const std::size_t size = world.size();
  bool is_right = true;
  for (int round = -5; round < options.rounds; ++round)
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(world.rank() + 1 + i % 7);
      MPI_Barrier(MPI_COMM_WORLD);
      const auto begin = measure::Clock::now();
      if (row == blocking)
        MPI_Allreduce(MPI_IN_PLACE, x.data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
      else if (row == polled)
        all_reduce_polled(x, copied);
      else if (row == group_row)
        group.all_reduce(x.data(), n);
      else if (row == shared_row)
        shared.all_reduce(x.data(), n);
      else
        std::memcpy(copied.data(), x.data(), n * sizeof(float));
      const double took = elapsed_micros(begin, measure::Clock::now());
      if (round >= 0) us[row].add(took);
      for (std::size_t i = 0; i < n && is_right; ++i)
        is_right = row == copy ? copied[i] == x[i]
                               : x[i] == static_cast<float>(size * (size + 1) / 2 + size * (i % 7));
    }
  if (world.rank() == 0)
    for (std::size_t row = 0; row < rows; ++row)
      fmt::print("{:9} {:9}  {:17} {:10.1f} {:10.1f}\n", size, n * sizeof(float), names[row],
                 us[row].median(), us[row].min());
  std::fflush(stdout);
  return is_right;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Compares the all-reduce of an MpiGroup with MPI's", "mpi_all_reduce");
  app.add_option("--processes", options.processes, "number of processes, unless mpirun has it")
      ->check(CLI::Range(2, 256));
  app.add_option("--floats", options.sizes, "numbers of elements")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 28));
  app.add_option("--rounds", options.rounds, "operations of each kind")
      ->check(CLI::Range(1, 1 << 30));
  app.add_flag("!--unbound", options.binds, "do not bind the processes to cores");
  CLI11_PARSE(app, argc, argv);

  if (!std::getenv("OMPI_COMM_WORLD_SIZE") && !std::getenv("PMI_SIZE"))
    start_with_mpirun(options.processes, argc, argv);
  try {
    const auto world = ls::MpiCommunicator::world();
    const bool has_cores = world.size() <= static_cast<std::size_t>(ls::detail::usable_cores());
    if (options.binds) measure::bind_to_core(world.rank());
    ls::MpiGroup group(world, {.spins = has_cores ? ls::MpiGroup::short_spins : 0});
    ls::SharedMemoryGroup shared(open_memory(world), world.rank(), world.size(),
                                 {.spins = has_cores ? ls::detail::short_spins : 0});
    if (world.rank() == 0) {
      char version[MPI_MAX_LIBRARY_VERSION_STRING];
      int length = 0;
      MPI_Get_library_version(version, &length);
      fmt::print("{}; {}; {} rounds\n", measure::machine(),
                 std::string(version, std::find(version, version + length, ',')), options.rounds);
      fmt::print("{:>9} {:>9}  {:17} {:>10} {:>10}\n", "processes", "bytes", "operation",
                 "median us", "min us");
    }
    for (const std::size_t n : options.sizes)
      if (!measure_size(options, world, group, shared, n))
        throw ls::Error("a sum of {} elements is wrong", n);
  } catch (const std::exception& e) {
    std::fputs(fmt::format("mpi_all_reduce: {}\n", e.what()).c_str(), stderr);
    return 1;
  }
}
