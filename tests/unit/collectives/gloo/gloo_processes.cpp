/// A group of real processes, one of which dies, freezes or exits.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/collectives/gloo_group.hpp"
#include "lockstep/collectives/gloo_mesh.hpp"
#include "lockstep/collectives/gloo_store.hpp"
#include "lockstep/core/error.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using lockstep::GlooGroup;
using namespace std::chrono_literals;

/// A store in which each key is a file of a folder.
class FolderStore : public lockstep::GlooStore {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void set(const std::string& key, const std::string& bytes) override {
    const auto draft = file(key + ".draft");
    std::ofstream(draft, std::ios::binary) << bytes;
    std::filesystem::rename(draft, file(key));
  }
  std::optional<std::string> get(const std::string& key, Deadline deadline) override {
    while (true) {
      std::ifstream in(file(key), std::ios::binary);
      if (in)
        return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
      if (Clock::now() > deadline) return std::nullopt;
      std::this_thread::sleep_for(1ms);
    }
  }

 private:
  std::filesystem::path file(std::string name) const {
    for (char& c : name)
      if (c == '/') c = '_';
    return folder_ / name;
  }
  std::filesystem::path folder_;
};

enum class Kind { none, lost, aborted, timed_out, other };

/// A process' report, in memory shared with the test.
struct Report {
  std::atomic<bool> is_ready{false};
  std::atomic<int> rounds{0};
  std::atomic<Kind> kind{Kind::none};
  Clock::time_point at;
  char text[400] = {};
};

struct Plan {
  std::size_t size = 3;
  std::chrono::milliseconds timeout = 60s;
  std::size_t numbers = 100'000;
  std::chrono::milliseconds silence = 2s;
  /// Runs in a second thread, concurrently with the operations.
  std::function<void(GlooGroup&)> second_thread = [](GlooGroup&) {};
};

/// Processes that exchange in an endless loop.
class Processes {
 public:
  explicit Processes(const Plan& plan) : plan_(plan) {
    char folder[] = "/tmp/lockstep_gloo_XXXXXX";
    if (!mkdtemp(folder)) throw lockstep::Error("no folder in /tmp");
    folder_ = folder;
    void* memory = mmap(nullptr, plan.size * sizeof(Report), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw lockstep::Error("no shared memory");
    reports_ = static_cast<Report*>(memory);
    for (std::size_t r = 0; r < plan.size; ++r) new (reports_ + r) Report;
    std::fflush(nullptr);
    for (std::size_t r = 0; r < plan.size; ++r) {
      const pid_t child = fork();
      if (child == 0) run(r);
      children_.push_back(child);
    }
    for (std::size_t r = 0; r < plan.size; ++r)
      if (!within(20s, [&] { return reports_[r].is_ready.load(); }))
        throw lockstep::Error("the processes do not come together");
    std::this_thread::sleep_for(50ms);  // all are within their operations now
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    munmap(reports_, plan_.size * sizeof(Report));
    std::filesystem::remove_all(folder_);
  }

  Clock::time_point signal(std::size_t rank, int number) {
    const auto now = Clock::now();
    kill(children_[rank], number);
    return now;
  }
  const Report& report(std::size_t rank) const { return reports_[rank]; }
  bool has_ended(std::size_t rank, std::chrono::milliseconds limit) const {
    return within(limit, [&] { return reports_[rank].kind != Kind::none; });
  }
  /// Waits for five successful exchanges more than `rounds`.
  bool go_on_after(int rounds) const {
    return within(20s, [&] { return reports_[0].rounds >= rounds + 5; });
  }
  /// The process reported and exited normally, not by a signal.
  bool left_well(std::size_t rank) const {
    siginfo_t info{};
    return within(10s, [&] {
      return waitid(P_PID, static_cast<id_t>(children_[rank]), &info,
                    WEXITED | WNOHANG | WNOWAIT) == 0 &&
             info.si_pid == children_[rank] && info.si_code == CLD_EXITED && info.si_status == 0;
    });
  }

 private:
  template <class Done>
  static bool within(std::chrono::milliseconds limit, const Done& done) {
    const auto end = Clock::now() + limit;
    while (!done())
      if (Clock::now() > end)
        return false;
      else
        std::this_thread::sleep_for(1ms);
    return true;
  }

  [[noreturn]] void run(std::size_t rank) {
    // The signal handlers of the test program would run here otherwise.
    for (const int number : {SIGPIPE, SIGTERM, SIGSEGV, SIGABRT, SIGINT}) ::signal(number, SIG_DFL);
    alarm(60);
    Report& mine = reports_[rank];
    const auto report_end = [&](Kind kind, std::string_view what) {
      mine.at = Clock::now();
      what.copy(mine.text, sizeof mine.text - 1);
      mine.kind = kind;
    };
    {
      std::optional<GlooGroup> group;  // used by both threads
      std::thread second;
      try {
        FolderStore store(folder_);
        group.emplace(form_gloo_mesh({.rank = rank,
                                      .size = plan_.size,
                                      .run = "a test",
                                      .limit = 15s,
                                      .silence = plan_.silence},
                                     store),
                      GlooGroup::Options{.timeout = plan_.timeout});
        std::vector<float> x(plan_.numbers, 1.0f);
        group->all_reduce(x.data(), x.size());
        second = std::thread([&] { plan_.second_thread(*group); });
        mine.is_ready = true;
        while (true) {
          std::fill(x.begin(), x.end(), 1.0f);
          group->all_reduce(x.data(), x.size());
          if (x.front() != static_cast<float>(plan_.size) || x.back() != x.front())
            throw lockstep::Error("a wrong sum");
          ++mine.rounds;
        }
      } catch (const lockstep::CollectiveTimeout& e) {
        report_end(Kind::timed_out, e.what());
      } catch (const lockstep::CollectiveAborted& e) {
        report_end(Kind::aborted, e.what());
      } catch (const lockstep::CollectiveError& e) {
        report_end(Kind::lost, e.what());
      } catch (const std::exception& e) {
        report_end(Kind::other, e.what());
      }
      if (second.joinable()) second.join();
    }
    _exit(0);
  }

  Plan plan_;
  std::filesystem::path folder_;
  Report* reports_ = nullptr;
  std::vector<pid_t> children_;
};

bool contains(const Report& report, std::string_view words) {
  return std::string_view(report.text).find(words) != std::string_view::npos;
}

}  // namespace

TEST_CASE("when a process is killed, all others detect it within a second") {
  for (const std::size_t numbers : {10u, 400'000u})
    for (const int number : {SIGKILL, SIGSEGV, SIGTERM})
      for (std::size_t victim = 0; victim < 3; ++victim) {
        Plan plan;
        plan.numbers = numbers;
        Processes processes(plan);
        const auto killed = processes.signal(victim, number);
        std::size_t named = 0;
        for (std::size_t r = 0; r < plan.size; ++r) {
          if (r == victim) continue;
          REQUIRE(processes.has_ended(r, 5s));
          const Report& report = processes.report(r);
          INFO(report.text);
          CHECK((report.kind == Kind::lost || report.kind == Kind::aborted));
          CHECK(report.at - killed < 3s);  // three times the promise
          CHECK(processes.left_well(r));
          if (report.kind == Kind::lost && contains(report, "to replica " + std::to_string(victim)))
            ++named;
        }
        CHECK(named >= 1);
      }
}

TEST_CASE("waits for a frozen process end at their deadline and name it") {
  Plan plan;
  plan.timeout = 500ms;
  Processes processes(plan);
  const auto stopped = processes.signal(1, SIGSTOP);
  std::size_t named = 0;
  for (const std::size_t r : {0u, 2u}) {
    REQUIRE(processes.has_ended(r, 5s));
    const Report& report = processes.report(r);
    INFO(report.text);
    CHECK(report.at - stopped >= 450ms);  // its last message may have been sent before the signal
    CHECK(report.at - stopped < 2s);
    CHECK((report.kind == Kind::timed_out || report.kind == Kind::aborted));
    if (report.kind == Kind::timed_out) named += contains(report, "for replica 1");
    CHECK(processes.left_well(r));
  }
  CHECK(named >= 1);
}

TEST_CASE("a process suspended for longer than the silence does not have a dead connection") {
  Plan plan;
  plan.size = 2;
  plan.silence = 1s;
  plan.numbers = 3'000'000;  // more than a connection's buffers can hold
  Processes processes(plan);
  processes.signal(1, SIGSTOP);
  std::this_thread::sleep_for(2s);
  const int before = processes.report(0).rounds;
  processes.signal(1, SIGCONT);
  INFO(processes.report(0).text << processes.report(1).text);
  CHECK(processes.go_on_after(before));
  CHECK(processes.report(0).kind == Kind::none);
  CHECK(processes.report(1).kind == Kind::none);
}

TEST_CASE("time in which all processes were suspended does not count towards the timeout") {
  Plan plan;
  plan.size = 2;
  plan.timeout = 1s;
  Processes processes(plan);
  processes.signal(1, SIGSTOP);
  std::this_thread::sleep_for(50ms);  // now rank 0 waits for rank 1
  processes.signal(0, SIGSTOP);
  std::this_thread::sleep_for(1300ms);
  const int before = processes.report(0).rounds;
  processes.signal(0, SIGCONT);
  std::this_thread::sleep_for(200ms);
  processes.signal(1, SIGCONT);
  INFO(processes.report(0).text << processes.report(1).text);
  CHECK(processes.go_on_after(before));
}

TEST_CASE("an abort from another thread ends a wait for a frozen process immediately") {
  Plan plan;
  plan.size = 2;
  plan.second_thread = [](GlooGroup& group) {
    std::this_thread::sleep_for(1500ms);
    if (group.rank() == 0) group.abort();
  };
  Processes processes(plan);
  const auto stopped = processes.signal(1, SIGSTOP);
  REQUIRE(processes.has_ended(0, 10s));
  const Report& report = processes.report(0);
  INFO(report.text);
  CHECK(report.kind == Kind::aborted);
  CHECK(report.at - stopped >= 300ms);  // until then it waited
  CHECK(report.at - stopped < 5s);
  CHECK(processes.left_well(0));
}

TEST_CASE("an abort in one process ends the operations of all") {
  Plan plan;
  plan.second_thread = [](GlooGroup& group) {
    std::this_thread::sleep_for(100ms);
    if (group.rank() == 1) group.abort();
  };
  Processes processes(plan);
  for (std::size_t r = 0; r < plan.size; ++r) {
    REQUIRE(processes.has_ended(r, 5s));
    INFO(processes.report(r).text);
    CHECK(processes.report(r).kind == Kind::aborted);
    CHECK(processes.left_well(r));
  }
}

TEST_CASE("a process that exits normally counts as lost") {
  Plan plan;
  plan.size = 2;
  plan.second_thread = [](GlooGroup& group) {
    std::this_thread::sleep_for(100ms);
    if (group.rank() == 1) _exit(7);
  };
  Processes processes(plan);
  REQUIRE(processes.has_ended(0, 5s));
  INFO(processes.report(0).text);
  CHECK(processes.report(0).kind == Kind::lost);
  CHECK(contains(processes.report(0), "replica 1"));
  CHECK(processes.left_well(0));
}
