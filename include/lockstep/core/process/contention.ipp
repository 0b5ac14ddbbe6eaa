#pragma once

#include "lockstep/core/process/contention.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "lockstep/core/error.hpp"
#include "lockstep/core/process/threads.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

WaitMode parse_wait_mode(const char* value) {
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty() || text == "auto") return WaitMode::adaptive;
  if (text == "active") return WaitMode::active;
  if (text == "passive") return WaitMode::passive;
  throw UsageError("LOCKSTEP_WAIT_POLICY is {}; it must be auto, active or passive", quote(text));
}

bool waits_passively() {
  const char* policy = std::getenv("LOCKSTEP_WAIT_POLICY");
  return policy != nullptr && policy == std::string_view("passive");
}

/// Reads up to `size` bytes of a file; 0 if it cannot be read. Does not allocate: within steps.
inline std::size_t read_file(const char* path, char* to, std::size_t size) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::size_t count = 0;
  while (count < size) {
    const ssize_t more = ::read(file, to + count, size - count);
    if (more <= 0) break;
    count += static_cast<std::size_t>(more);
  }
  ::close(file);
  return count;
}

std::optional<std::chrono::nanoseconds> read_run_delay(pid_t thread, const char* root) {
  std::array<char, 256> path{}, text{};
  std::snprintf(path.data(), path.size(), "%s/proc/self/task/%d/schedstat", root, thread);
  const std::size_t count = read_file(path.data(), text.data(), text.size() - 1);
  unsigned long long ran = 0, waited = 0;
  if (count == 0 || std::sscanf(text.data(), "%llu %llu", &ran, &waited) != 2) return std::nullopt;
  return std::chrono::nanoseconds(waited);
}

// Lines "cpu3 user nice system idle ...", in hundredths of a second; the first is the sum, "cpu  ...".
std::chrono::nanoseconds idle_time(std::string_view stat, std::string_view cores) {
  std::chrono::nanoseconds sum{0};
  while (stat.starts_with("cpu")) {
    const std::size_t end = stat.find('\n');
    if (end == std::string_view::npos) break;
    std::string_view line = stat.substr(3, end - 3);
    stat.remove_prefix(end + 1);
    const auto next = [&line]() -> std::optional<std::uint64_t> {
      const auto word = line.substr(0, line.find(' '));
      line.remove_prefix(std::min(line.size(), word.size() + 1));
      return whole_number<std::uint64_t>(word);
    };
    const auto core = next();
    if (!core || *core >= cores.size() || cores[*core] != '1') continue;
    for (int skipped = 0; skipped < 3; ++skipped) static_cast<void>(next());
    if (const auto idle = next()) sum += std::chrono::milliseconds(10 * *idle);
  }
  return sum;
}

bool ContentionFilter::update(double share, double seconds) {
  if (!is_contended_) {
    free_ += seconds;
    if (share < contended_share) return false;
    patience_ = free_ < premature ? std::min(2 * patience_, max_patience) : min_patience;
    is_contended_ = true;
    calm_ = 0;
  } else if (share >= calm_share) {
    calm_ = 0;
  } else if ((calm_ += seconds) >= patience_) {
    is_contended_ = false;
    free_ = 0;
  }
  return is_contended_;
}

// Never destroyed: threads may wait until the process ends. Default visibility as for `log_state`.
[[gnu::visibility("default")]] inline Contention& contention_of_process() {
  static Contention* const contention =
      new Contention(parse_wait_mode(std::getenv("LOCKSTEP_WAIT_POLICY")));
  return *contention;
}
Contention& Contention::of_process() { return contention_of_process(); }

void Contention::watch(const std::optional<Cores>& cores) {
  if (mode_ != WaitMode::adaptive) return;
  static thread_local pid_t watched = 0;
  static thread_local bool knows_cores = false;
  const auto thread = static_cast<pid_t>(::syscall(SYS_gettid));
  const bool is_watched = watched == thread;  // differs in a forked child
  if (is_watched && (knows_cores || !cores)) return;
  if (!add(thread, cores ? *cores : Cores())) return;
  watched = thread;
  knows_cores = cores.has_value();
}

bool Contention::sample() {
  if (mode_ != WaitMode::adaptive) return mode_ == WaitMode::passive;
  const Clock::time_point now = Clock::now();
  if (now.time_since_epoch().count() >= due_.load(std::memory_order_relaxed)) take_sample(now);
  return is_contended();
}

std::unique_lock<std::mutex> Contention::lock() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  for (int i = 0; i < 1000 && !lock; ++i) {
    std::this_thread::yield();
    static_cast<void>(lock.try_lock());
  }
  return lock;
}

bool Contention::add(pid_t thread, const Cores& cores) {
  const auto locked = lock();
  if (!locked) return false;
  if (forks() != forks_) threads_.clear();  // those of the parent
  forks_ = forks();
  std::erase_if(threads_, [thread](const Thread& known) { return known.id == thread; });
  threads_.push_back({thread, cores.bits(), read_run_delay(thread), std::nullopt});
  return true;
}

std::chrono::nanoseconds Contention::largest_delay() {
  std::chrono::nanoseconds most{0};
  for (Thread& thread : threads_) {
    const auto delay = read_run_delay(thread.id);
    thread.waited = delay && thread.delay ? *delay - *thread.delay : std::chrono::nanoseconds(0);
    thread.delay = delay;
    most = std::max(most, thread.waited);
  }
  std::erase_if(threads_, [](const Thread& thread) { return !thread.delay; });
  return most;
}

Contention::Contention(WaitMode mode)
    : mode_(mode),
      stat_(stat_bytes(static_cast<std::size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_CONF))))) {}

std::chrono::nanoseconds Contention::largest_contended_delay() {
  const std::string_view stat{stat_.data(), read_file("/proc/stat", stat_.data(), stat_.size())};
  std::chrono::nanoseconds most{0};
  const Thread* last = nullptr;
  for (Thread& thread : threads_) {
    const auto idle = last != nullptr && last->cores == thread.cores
                          ? *last->idle
                          : idle_time(stat, thread.cores);
    if (thread.idle) most = std::max(most, thread.waited - (idle - *thread.idle));
    thread.idle = idle;
    last = &thread;
  }
  return most;
}

void Contention::take_sample(Clock::time_point now) {
  const std::unique_lock locked(mutex_, std::try_to_lock);
  if (!locked || now.time_since_epoch().count() < due_.load(std::memory_order_relaxed)) return;
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  const double window = seconds(now - last_), delay = seconds(largest_delay());
  if (weighs_idle_) {
    const bool contended = filter_.update(seconds(largest_contended_delay()) / window, window);
    contended_flag().store(contended, std::memory_order_relaxed);
    weighs_idle_ = contended;
  } else if (last_ != Clock::time_point{}) {
    static_cast<void>(filter_.update(0, window));
    weighs_idle_ = delay >= ContentionFilter::contended_share * window;
    if (weighs_idle_) static_cast<void>(largest_contended_delay());  // stores the idle times
  }
  last_ = now;
  // /proc/stat counts idle time in units of 10 ms.
  const auto pause = std::chrono::milliseconds(weighs_idle_ ? 200 : 20);
  const Clock::duration cost = Clock::now() - now;
  due_.store((now + std::max<Clock::duration>(pause, 1000 * cost)).time_since_epoch().count(),
             std::memory_order_relaxed);
}

}  // namespace lockstep::detail
