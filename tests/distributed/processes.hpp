/// \file
/// Jobs of real processes for tests. Invariants: processes are forked while the test has a single
/// thread; no process outlives the test; a job that misses its deadline prints all stacks and
/// fails.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/cluster.hpp"
#include "lockstep/core/error.hpp"

namespace distributed {

namespace ls = lockstep;
using namespace std::chrono_literals;
using std::chrono::milliseconds;
/// Comparable between the processes of a machine.
using Clock = std::chrono::steady_clock;

/// The result of a process' work.
enum class Outcome { none, done, peer_lost, error };

/// Text in shared memory.
template <std::size_t Size>
struct Note {
  char text[Size] = {};
  void operator=(std::string_view s) { text[s.copy(text, Size - 1)] = '\0'; }
  operator std::string() const { return text; }
};

/// A process' report to the test, in shared memory.
struct Report {
  static constexpr std::size_t most = 1 << 21;
  std::atomic<std::uint64_t> steps{0};      ///< finished
  std::atomic<bool> fault_injected{false};  ///< the fault is about to happen
  std::atomic<bool> is_chief{false};        ///< of the generation that made the last step
  std::atomic<Outcome> outcome{Outcome::none};
  Clock::time_point fault_at, reported_at;
  std::size_t lost_rank = 0;
  std::optional<std::uint64_t> last_step;
  Note<128> lost_address;
  Note<1024> how, what;
  std::size_t count = 0;
  double numbers[most];
};

/// A process of the job, from within.
class Here {
 public:
  Here(std::size_t rank_, std::size_t size_, std::string chief_, Report& report_)
      : rank(rank_), size(size_), chief(std::move(chief_)), report(report_) {}

  const std::size_t rank, size;
  const std::string chief;  ///< its address
  Report& report;

  void give(const std::vector<double>& numbers) {
    if (numbers.size() > Report::most) throw ls::Error("too many numbers for a report");
    std::copy(numbers.begin(), numbers.end(), report.numbers);
    report.count = numbers.size();
  }
  /// Runs work() and reports its result. The time is recorded before any destructor runs.
  template <class Work>
  void run_and_report(const Work& work) {
    try {
      work();
      note(Outcome::done, "");
    } catch (const ls::PeerLost& e) {
      report.lost_rank = e.rank();
      report.lost_address = e.address();
      report.how = e.how();
      report.last_step = e.last_step();
      note(Outcome::peer_lost, e.what());
    } catch (const std::exception& e) {
      note(Outcome::error, e.what());
    }
  }
  /// True for the first caller only: one replica injects the fault.
  bool begin_fault() {
    if (report.fault_injected.exchange(true)) return false;
    report.fault_at = Clock::now();
    return true;
  }

 private:
  /// Only the first error is reported.
  void note(Outcome outcome, std::string_view what) {
    if (report.outcome == Outcome::peer_lost || report.outcome == Outcome::error) return;
    report.reported_at = Clock::now();
    report.what = what;
    report.outcome = outcome;
  }
};

/// How a process ended.
struct End {
  bool exited = false;
  int status = -1;  ///< exit code or signal number
  Clock::time_point at{};
};

/// Distinct free ports. As long as this object lives, no other process gets one of them by chance, but
/// each that asks for it may listen there.
class Ports {
 public:
  explicit Ports(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const int file = files_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const int yes = 1;
      REQUIRE(::setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_ANY);  // the processes' addresses differ
      socklen_t length = sizeof address;
      auto* const any = reinterpret_cast<sockaddr*>(&address);
      REQUIRE(::bind(file, any, length) == 0);
      REQUIRE(::getsockname(file, any, &length) == 0);
      ports_.push_back(ntohs(address.sin_port));
    }
  }
  Ports(const Ports&) = delete;
  Ports& operator=(const Ports&) = delete;
  ~Ports() { close(); }
  /// For a process of the job: its parent keeps the ports.
  void close() {
    for (const int file : files_) ::close(file);
    files_.clear();
  }
  std::uint16_t operator[](std::size_t i) const { return ports_[i]; }

 private:
  std::vector<int> files_;
  std::vector<std::uint16_t> ports_;
};

/// The tasks of a job that are no workers: rank 0 may be a chief, the last ranks parameter servers.
struct OtherTasks {
  bool chief = false;
  std::size_t servers = 0;
};

/// A job of `size` processes on this machine, each with its TF_CONFIG, that run `work`. The
/// output of each rank goes to a file.
class Processes {
 public:
  using Work = std::function<void(Here&)>;

  /// `machines`: the addresses are those of several hosts, so that the processes see machines of
  /// `size` / `machines` processes each.
  Processes(std::size_t size, const Work& work, milliseconds limit = 60s, std::size_t machines = 1,
            OtherTasks others = {})
      : deadline_(Clock::now() + limit), work_(work), limit_(limit), ports_(size) {
    // A joined thread may still be listed for a moment.
    for (int i = 0; i < 2000 && threads_of_this_process() > most_threads; ++i)
      std::this_thread::sleep_for(1ms);
    REQUIRE(threads_of_this_process() <= most_threads);
    // Orphans of the processes become children of the test.
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    char folder[] = "/tmp/lockstep_job_XXXXXX";
    REQUIRE(::mkdtemp(folder));
    folder_ = folder;
    bytes_ = size * sizeof(Report);
    void* const memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    reports_ = static_cast<Report*>(memory);
    for (std::size_t rank = 0; rank < size; ++rank) {
      addresses_.push_back(fmt::format("127.0.0.{}:{}", 1 + rank * machines / size, ports_[rank]));
      cluster_.add(others.chief && rank == 0       ? ls::TaskType::chief
                   : rank + others.servers >= size ? ls::TaskType::ps
                                                   : ls::TaskType::worker,
                   addresses_.back());
    }
    ends_.resize(size);
    children_.resize(size);
    for (std::size_t rank = 0; rank < size; ++rank) {
      ::new (reports_ + rank) Report;
      start(rank);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes() {
    kill_all();
    ::munmap(reports_, bytes_);
    std::filesystem::remove_all(folder_);
  }

  /// Starts a process again that has ended; it gets the same address and a new report.
  void restart(std::size_t rank) {
    REQUIRE(has_ended(rank));
    ends_[rank].reset();
    Report& report = reports_[rank];
    report.outcome = Outcome::none;
    report.steps = 0;
    report.is_chief = false;
    report.count = 0;
    start(rank);
  }

  std::size_t size() const { return children_.size(); }
  Report& report(std::size_t rank) { return reports_[rank]; }
  const std::string& address(std::size_t rank) const { return addresses_[rank]; }
  std::vector<double> numbers(std::size_t rank) const {
    return {reports_[rank].numbers, reports_[rank].numbers + reports_[rank].count};
  }
  void signal(std::size_t rank, int number) { ::kill(children_[rank], number); }

  /// Waits until `done()`. Prints the stacks of all processes and returns false at the job's
  /// deadline.
  template <class Done>
  bool until(const Done& done) {
    while (!done()) {
      collect();
      if (Clock::now() > deadline_) {
        show_stacks();
        return false;
      }
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }
  bool has_ended(std::size_t rank) {
    collect();
    return ends_[rank].has_value();
  }
  /// Waits until all processes except `without` have ended; false at the deadline.
  bool all_end(const std::vector<std::size_t>& without = {}) {
    return until([&] {
      collect();
      for (std::size_t r = 0; r < size(); ++r)
        if (!ends_[r] && std::find(without.begin(), without.end(), r) == without.end())
          return false;
      return true;
    });
  }
  const End& end(std::size_t rank) const { return ends_[rank].value(); }

  /// Call after all have ended: true if none of their child processes is left.
  bool has_no_orphans() {
    collect();
    return ::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD;
  }

  /// The output of all processes.
  std::string logs() const {
    std::string result;
    for (std::size_t rank = 0; rank < size(); ++rank) {
      std::ifstream in(log_of(rank));
      result += fmt::format("--- rank {}\n", rank);
      result.append(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    return result;
  }

 private:
  // The thread sanitizer adds a thread when the program starts its first one.
#if defined(__SANITIZE_THREAD__)
  static constexpr std::size_t most_threads = 2;
#else
  static constexpr std::size_t most_threads = 1;
#endif

  void start(std::size_t rank) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ports_.close();
      run(rank, children_.size(), cluster_, work_, limit_);
    }
    children_[rank] = child;
  }
  static std::size_t threads_of_this_process() {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return static_cast<std::size_t>(std::distance(tasks, {}));
  }
  std::filesystem::path log_of(std::size_t rank) const {
    return folder_ / fmt::format("rank_{}.log", rank);
  }

  [[noreturn]] void run(std::size_t rank, std::size_t size, const ls::ClusterSpec& cluster,
                        const Work& work, milliseconds limit) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(static_cast<unsigned>(limit / 1s + 30));
    // Children must not run the handlers of the test program.
    for (const int number : {SIGSEGV, SIGABRT, SIGTERM, SIGINT, SIGFPE, SIGILL})
      ::signal(number, SIG_DFL);
    const int log = ::open(log_of(rank).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    ::setenv("TF_CONFIG", cluster.tf_config(cluster.task(rank)).c_str(), 1);
    ::setenv("LOCKSTEP_SECRET", "a secret of this test, and of no other", 1);
    Here here(rank, size, addresses_[0], reports_[rank]);
    here.run_and_report([&] { work(here); });
    std::fflush(nullptr);
    ::_exit(here.report.outcome == Outcome::done ? 0 : 3);
  }

  void collect() {
    for (std::size_t r = 0; r < children_.size(); ++r) {
      int status = 0;
      if (ends_[r] || ::waitpid(children_[r], &status, WNOHANG) != children_[r]) continue;
      ends_[r] = WIFEXITED(status) ? End{true, WEXITSTATUS(status), Clock::now()}
                                   : End{false, WTERMSIG(status), Clock::now()};
    }
  }
  void kill_all() {
    for (std::size_t r = 0; r < children_.size(); ++r) {
      if (ends_[r]) continue;
      ::kill(children_[r], SIGKILL);
      ::waitpid(children_[r], nullptr, 0);
      ends_[r] = End{false, SIGKILL, Clock::now()};
    }
  }
  /// Stops all processes first: while a debugger holds one, the others would declare it lost.
  void show_stacks() {
    for (std::size_t r = 0; r < children_.size(); ++r)
      if (!ends_[r]) ::kill(children_[r], SIGSTOP);
    for (std::size_t r = 0; r < children_.size(); ++r) {
      if (ends_[r]) continue;
      std::fprintf(stderr, "rank %zu has not ended; its stacks:\n", r);
      const std::string command =
          fmt::format("timeout 20 gdb -p {} -batch -ex 'thread apply all bt 25' 1>&2 2>/dev/null",
                      children_[r]);
      if (std::system(command.c_str()) != 0) std::fprintf(stderr, "(none: there is no gdb)\n");
    }
    std::fprintf(stderr, "%s", logs().c_str());
    kill_all();
  }

  Clock::time_point deadline_;
  Work work_;
  milliseconds limit_;
  Ports ports_;
  ls::ClusterSpec cluster_;
  std::filesystem::path folder_;
  std::size_t bytes_ = 0;
  Report* reports_ = nullptr;
  std::vector<std::string> addresses_;
  std::vector<pid_t> children_;
  std::vector<std::optional<End>> ends_;
};

/// Prints count, median, 99th percentile and maximum.
inline void print_times(const char* what, std::vector<milliseconds> times) {
  std::sort(times.begin(), times.end());
  if (times.empty()) return;
  std::printf("%s: %zu reports, median %lld ms, 99 %% %lld ms, most %lld ms\n", what, times.size(),
              static_cast<long long>(times[times.size() / 2].count()),
              static_cast<long long>(times[times.size() * 99 / 100].count()),
              static_cast<long long>(times.back().count()));
}

}  // namespace distributed
