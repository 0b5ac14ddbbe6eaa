#pragma once

#include "lockstep/testing/run_workers.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process/contention.hpp"
#include "lockstep/testing/kernel/next_call.hpp"
#include "lockstep/testing/kernel/simulation.hpp"

namespace lockstep::testing {

namespace detail {
namespace {

// A thread that polls would keep the turn from the one that it waits for. The variable is read once
// per process, so it is set before `main`.
[[gnu::constructor]] void wait_passively() { ::setenv("LOCKSTEP_WAIT_POLICY", "passive", 0); }

/// Binds the calling thread, and threads that it starts, to the core that it runs on: of all of them
/// one runs at a time, and a change of threads on one core is the fastest.
class OneCore {
 public:
  OneCore() {
    const int core = ::sched_getcpu();
    cpu_set_t one;
    CPU_ZERO(&one);
    if (core < 0 || core >= CPU_SETSIZE) return;
    CPU_SET(static_cast<std::size_t>(core), &one);
    bound_ = LOCKSTEP_NEXT(sched_getaffinity)(0, sizeof before_, &before_) == 0 &&
             LOCKSTEP_NEXT(sched_setaffinity)(0, sizeof one, &one) == 0;
  }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;
  ~OneCore() {
    if (bound_) LOCKSTEP_NEXT(sched_setaffinity)(0, sizeof before_, &before_);
  }

 private:
  cpu_set_t before_{};
  bool bound_ = false;
};

/// A file with the job's secret, which only this process has.
class SecretFile {
 public:
  SecretFile() : file_(::memfd_create("lockstep-secret", MFD_CLOEXEC)) {
    constexpr std::string_view secret = "the secret of a simulated cluster";
    if (file_ < 0 || ::fchmod(file_, 0600) != 0 ||
        LOCKSTEP_NEXT(write)(file_, secret.data(), secret.size()) !=
            static_cast<ssize_t>(secret.size()))
      throw Error("run_workers: no file in memory can be made for the job's secret: {}",
                  std::strerror(errno));
  }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  ~SecretFile() { LOCKSTEP_NEXT(close)(file_); }
  std::string path() const { return format_text("/proc/self/fd/{}", file_); }

 private:
  int file_;
};

/// A folder for each machine, in which the processes of an elastic job vote: with one folder for all
/// of them, the machines would count as one.
class VoteFolders {
 public:
  explicit VoteFolders(std::size_t machines) {
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::path memory = "/dev/shm";  // as in a real job
    const bool is_writable = ::access(memory.c_str(), W_OK | X_OK) == 0;
    path_ = ((is_writable ? memory : fs::temp_directory_path(error)) / "lockstep-simulated.XXXXXX")
                .string();
    if (error || ::mkdtemp(path_.data()) == nullptr)
      throw Error("run_workers: no folder can be made for the machines' votes: {}",
                  error ? error.message() : std::strerror(errno));
    for (std::size_t i = 0; i < machines; ++i)
      if (!fs::create_directory(of(i), error))
        throw Error("run_workers: {} cannot be created: {}", of(i), error.message());
  }
  VoteFolders(const VoteFolders&) = delete;
  VoteFolders& operator=(const VoteFolders&) = delete;
  ~VoteFolders() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string of(std::size_t machine) const { return format_text("{}/{}", path_, machine); }

 private:
  std::string path_;
};

/// A run of workers, with its faults.
class Run : public EventTarget {
 public:
  Run(std::size_t count, std::function<void(Worker&)> body, Network network,
      const VoteFolders& votes)
      : network_(std::move(network)),
        simulation_(network_.seed, count, network_.limit.count(), options_of(network_)),
        body_(std::move(body)),
        count_(count),
        votes_(votes) {}

  void run() {
    simulation = &simulation_;
    scheduler = &simulation_.threads;
    for (std::size_t rank = 0; rank < count_; ++rank) start(rank);
    for (std::size_t i = 0; i < network_.faults.size(); ++i) {
      if (is_awaited(network_.faults[i].fault)) scheduler->hold();
      scheduler->schedule(network_.faults[i].at.count(), *this, 0, i);
    }
    scheduler->run([](const std::string& line) { log(LogLevel::warning, line); });
    simulation = nullptr;
    scheduler = nullptr;
  }

  void fire(std::uint32_t, std::uint64_t index, std::uint64_t) override {
    const Fault& fault = network_.faults[index].fault;
    apply(fault);
    if (is_awaited(fault)) scheduler->release();
  }

  /// Whether the run goes on until the fault has happened.
  static bool is_awaited(const Fault& fault) {
    return fault.kind == Fault::Kind::restart || fault.kind == Fault::Kind::thaw;
  }

  /// \throws UsageError if a fault names a rank that the job does not have.
  void check(const Fault& fault) const {
    for (const auto* ranks : {&fault.first, &fault.second})
      for (const std::size_t rank : *ranks)
        if (rank >= count_)
          throw UsageError("run_workers: a fault names rank {}, but there are {} workers", rank,
                           count_);
  }

  void apply(const Fault& fault) {
    const std::size_t rank = fault.first.empty() ? 0 : fault.first[0];
    scheduler->note(static_cast<std::uint64_t>(fault.kind), rank);
    switch (fault.kind) {
      case Fault::Kind::kill:
        return scheduler->kill(newest(rank));
      case Fault::Kind::restart:
        if (!newest(rank).alive) start(rank);
        return;
      case Fault::Kind::freeze:
        return scheduler->freeze(newest(rank));
      case Fault::Kind::thaw:
        return scheduler->thaw(newest(rank));
      case Fault::Kind::cut:
        for (const std::size_t from : fault.first)
          for (const std::size_t to : fault.second) {
            simulation_.network.cut(from, to, true);
            if (fault.factor == 2) simulation_.network.cut(to, from, true);
          }
        return;
      case Fault::Kind::heal:
        return simulation_.network.heal();
      case Fault::Kind::slow:
        scheduler->machine(rank).slowness = fault.factor;
        return;
      case Fault::Kind::jump_clock:
        scheduler->machine(rank).wall_jump += fault.time.count();
        return;
      case Fault::Kind::loss:
        simulation_.network.options().loss = fault.factor;
        return;
      case Fault::Kind::latency:
        simulation_.network.options().latency = fault.time.count();
        return;
      case Fault::Kind::jitter:
        simulation_.network.options().jitter = fault.time.count();
        return;
    }
  }

  Report report() const {
    const Scheduler& threads = simulation_.threads;
    return {.duration = std::chrono::nanoseconds(threads.now()),
            .digest = threads.digest(),
            .packets = simulation_.network.packets,
            .lost = simulation_.network.lost,
            .switches = threads.switches()};
  }
  const std::string& failure() const { return simulation_.threads.failure(); }
  const std::exception_ptr& error() const { return error_; }
  bool has_leftovers() const { return simulation_.threads.has_leftovers(); }

 private:
  static SimNetwork::Options options_of(const Network& network) {
    return {.latency = network.latency.count(),
            .jitter = network.jitter.count(),
            .bytes_per_second = network.bytes_per_second,
            .loss = network.loss};
  }

  SimProcess& newest(std::size_t rank) {
    auto& all = simulation_.threads.processes();
    return **std::find_if(all.rbegin(), all.rend(),
                          [&](const auto& process) { return process->rank == rank; });
  }

  void start(std::size_t rank) {
    const auto& all = simulation_.threads.processes();
    const auto life = static_cast<std::size_t>(std::count_if(
        all.begin(), all.end(), [&](const auto& process) { return process->rank == rank; }));
    auto& worker =
        *workers_.emplace_back(std::make_unique<Worker>(rank, count_, life, environment_of(rank)));
    scheduler->start(rank, [this, &worker] {
      try {
        body_(worker);
      } catch (...) {
        if (!error_) error_ = std::current_exception();
      }
    });
  }

  Environment environment_of(std::size_t rank) const {
    constexpr int port = 12345;
    std::string list;
    for (std::size_t r = 0; r < count_; ++r)
      list +=
          format_text("{}\"{}:{}\"", r == 0 ? "" : ",", Worker(r, count_, 0, {}).address(), port);
    std::map<std::string, std::string> variables{
        {"TF_CONFIG",
         format_text(R"({{"cluster":{{"worker":[{}]}},"task":{{"type":"worker","index":{}}}}})",
                     list, rank)},
        {"LOCKSTEP_JOB_ID", "simulated"},
        {"LOCKSTEP_SECRET_FILE", secret_.path()},
        {"LOCKSTEP_ELASTIC_DIRECTORY", votes_.of(rank)}};
    for (const auto& [name, value] : network_.variables) {
      std::string& own = variables[name] = value;
      constexpr std::string_view place = "{rank}";
      for (std::size_t at = 0; (at = own.find(place, at)) != own.npos;)
        own.replace(at, place.size(), std::to_string(rank));
    }
    return
        [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
          const auto found = variables.find(name);
          return found == variables.end() ? std::nullopt : std::optional(found->second);
        };
  }

  Network network_;
  SecretFile secret_;
  Simulation simulation_;
  std::function<void(Worker&)> body_;
  std::size_t count_;
  const VoteFolders& votes_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::exception_ptr error_;
};

Run* current_run = nullptr;

}  // namespace
}  // namespace detail

std::string Worker::address() const {
  const std::uint32_t ip = detail::SimNetwork::address_of(rank_);
  return format_text("{}.{}.{}.{}", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
}

std::chrono::nanoseconds Worker::time() const {
  return std::chrono::nanoseconds(detail::scheduler->thread_time());
}

void Worker::compute(std::chrono::nanoseconds time) const {
  detail::scheduler->charge(time.count());
}

void Worker::inject(const Fault& fault) const {
  detail::current_run->check(fault);
  detail::current_run->apply(fault);
  detail::scheduler->yield();
}

Report run_workers(std::size_t count, const std::function<void(Worker&)>& body,
                   const Network& network) {
  if (count == 0)
    throw UsageError("run_workers: the number of workers is 0; it must be at least 1");
  if (!lockstep::detail::waits_passively() || !lockstep::detail::is_contended())
    throw UsageError(
        "run_workers: LOCKSTEP_WAIT_POLICY is not 'passive', so that threads would poll; unset it");
  if (detail::scheduler != nullptr)
    throw UsageError("run_workers: a simulation runs already in this process; run one at a time");
  const detail::VoteFolders votes(count);  // removed also if `run` is not
  auto run = std::make_unique<detail::Run>(count, body, network, votes);
  for (const TimedFault& fault : network.faults) run->check(fault.fault);
  {
    const detail::OneCore one_core;
    detail::current_run = run.get();
    run->run();
    detail::current_run = nullptr;
  }
  const Report report = run->report();
  const std::string failure = run->failure();
  const std::exception_ptr error = run->error();
  // Threads that never run again wait for their turn, in memory of this object.
  if (run->has_leftovers()) static_cast<void>(run.release());
  if (error) std::rethrow_exception(error);
  if (!failure.empty()) throw Error("run_workers: {}", failure);
  return report;
}

}  // namespace lockstep::testing
