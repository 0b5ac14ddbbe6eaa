/// \file
/// The shared part of benchmarks with threads and processes: samples, a common start, the header of
/// a report.
#pragma once

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace measure {

using Clock = std::chrono::steady_clock;

inline double micros(Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

/// Samples of a time, in microseconds.
class Samples {
 public:
  void add(double us) { values_.push_back(us); }
  void add(const Samples& other) {
    values_.insert(values_.end(), other.values_.begin(), other.values_.end());
  }
  bool empty() const { return values_.empty(); }
  double min() const { return *std::min_element(values_.begin(), values_.end()); }
  double median() const {
    std::vector<double> v = values_;
    const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
    std::nth_element(v.begin(), middle, v.end());
    return *middle;
  }

 private:
  std::vector<double> values_;
};

/// Binds the calling thread to one of the process' cores, in turn.
inline void bind_to_core(std::size_t thread) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  std::size_t skip = thread % static_cast<std::size_t>(CPU_COUNT(&all));
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &all) && skip-- == 0) {
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
}

/// A barrier for starting threads together. Threads spin, so that no measured time includes a
/// wake-up. With more threads than cores they yield while they spin, otherwise only after a long
/// time: the scheduler may make a thread that yielded wait later, within the measured time.
class StartLine {
 public:
  explicit StartLine(std::size_t threads) : threads_(threads) {}
  void wait() {
    const std::uint64_t start = starts_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      starts_.store(start + 1, std::memory_order_release);
    } else {
      for (int polls = 0; starts_.load(std::memory_order_acquire) == start; ++polls)
        if (polls >= most_polls_) std::this_thread::yield();
    }
  }

 private:
  std::size_t threads_;
  int most_polls_ = threads_ <= std::thread::hardware_concurrency() ? 100'000 : 0;
  alignas(64) std::atomic<std::size_t> arrived_{0};
  alignas(64) std::atomic<std::uint64_t> starts_{0};
};

/// Time of an operation of several threads, from the first start to the last end.
class Together {
 public:
  explicit Together(std::size_t threads) : line_(threads), begin_(threads), end_(threads) {}

  /// Called by each thread with its number; `samples` is touched by thread 0 only.
  template <class Body>
  void time(std::size_t thread, Samples& samples, const Body& body) {
    line_.wait();
    begin_[thread].at = Clock::now();
    body();
    end_[thread].at = Clock::now();
    line_.wait();
    if (thread == 0) samples.add(micros(last(end_) - first(begin_)));
  }

 private:
  struct alignas(64) Mark {
    Clock::time_point at;
    bool operator<(const Mark& o) const { return at < o.at; }
  };
  static Clock::time_point first(const std::vector<Mark>& v) {
    return std::min_element(v.begin(), v.end())->at;
  }
  static Clock::time_point last(const std::vector<Mark>& v) {
    return std::max_element(v.begin(), v.end())->at;
  }

  StartLine line_;
  std::vector<Mark> begin_, end_;
};

/// Share of the machine's CPU time that other processes used during this object's lifetime, in per
/// cent: a high share makes the figures of a run meaningless. Child processes count as own after
/// they have been waited for.
class Neighbours {
 public:
  double percent() const {
    const Ticks now = ticks();
    const double all = now.all - before_.all;
    return all > 0 ? std::max(0.0, 100 * (now.busy - before_.busy - now.own + before_.own) / all)
                   : 0;
  }

 private:
  struct Ticks {
    double all = 0, busy = 0, own = 0;
  };
  static double seconds(const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  }
  static Ticks ticks() {
    Ticks t;
    std::ifstream file("/proc/stat");
    std::string cpu;
    file >> cpu;
    double value = 0;  // user, nice, system, idle, iowait, irq, softirq, steal
    for (int i = 0; i < 8 && file >> value; ++i) {
      t.all += value;
      if (i != 3 && i != 4) t.busy += value;
    }
    rusage children{};
    getrusage(RUSAGE_CHILDREN, &children);
    t.own = (static_cast<double>(std::clock()) / CLOCKS_PER_SEC + seconds(children.ru_utime) +
             seconds(children.ru_stime)) *
            static_cast<double>(sysconf(_SC_CLK_TCK));
    return t;
  }

  Ticks before_ = ticks();
};

/// "2 cores, load 0.10 0.20 0.30": a busy machine makes figures unreliable.
inline std::string machine() {
  std::ifstream file("/proc/loadavg");
  std::string one = "?", five = "?", fifteen = "?";
  file >> one >> five >> fifteen;
  return fmt::format("{} cores, load {} {} {}", std::thread::hardware_concurrency(), one, five,
                     fifteen);
}

}  // namespace measure
