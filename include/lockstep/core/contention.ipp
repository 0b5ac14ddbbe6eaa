#pragma once

#include "lockstep/core/contention.hpp"

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
#include "lockstep/core/quote.hpp"
#include "lockstep/core/threads.hpp"

namespace lockstep::detail {

WaitMode parse_wait_mode(const char* value) {
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty() || text == "auto") return WaitMode::adaptive;
  if (text == "active") return WaitMode::active;
  if (text == "passive") return WaitMode::passive;
  throw UsageError("LOCKSTEP_WAIT_POLICY is {}; it must be auto, active or passive", quote(text));
}

std::optional<std::chrono::nanoseconds> read_run_delay(pid_t thread, const char* root) {
  std::array<char, 256> path{}, text{};  // on the stack: called within steps, which do not allocate
  std::snprintf(path.data(), path.size(), "%s/proc/self/task/%d/schedstat", root, thread);
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  const ssize_t count = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  unsigned long long ran = 0, waited = 0;
  if (count <= 0 || std::sscanf(text.data(), "%llu %llu", &ran, &waited) != 2) return std::nullopt;
  return std::chrono::nanoseconds(waited);
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
  static Contention* const contention = [] {
    const WaitMode mode = parse_wait_mode(std::getenv("LOCKSTEP_WAIT_POLICY"));
    contended_flag().store(mode == WaitMode::passive, std::memory_order_relaxed);
    return new Contention(mode);
  }();
  return *contention;
}
Contention& Contention::of_process() { return contention_of_process(); }

void Contention::watch() {
  if (mode_ != WaitMode::adaptive) return;
  static thread_local pid_t watched = 0;
  const auto thread = static_cast<pid_t>(::syscall(SYS_gettid));
  if (watched == thread) return;  // differs in a forked child
  add(thread);
  watched = thread;
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

void Contention::add(pid_t thread) {
  const auto locked = lock();
  if (!locked) return;
  if (forks() != forks_) threads_.clear();  // those of the parent
  forks_ = forks();
  threads_.push_back({thread, read_run_delay(thread)});
}

void Contention::take_sample(Clock::time_point now) {
  const std::unique_lock locked(mutex_, std::try_to_lock);
  if (!locked || now.time_since_epoch().count() < due_.load(std::memory_order_relaxed)) return;
  std::chrono::nanoseconds most{0};
  for (Thread& thread : threads_) {
    const auto delay = read_run_delay(thread.id);
    if (delay && thread.delay) most = std::max(most, *delay - *thread.delay);
    thread.delay = delay;
  }
  std::erase_if(threads_, [](const Thread& thread) { return !thread.delay; });
  if (last_ != Clock::time_point{}) {
    const double window = std::chrono::duration<double>(now - last_).count();
    const double delayed = std::chrono::duration<double>(most).count();
    contended_flag().store(filter_.update(delayed / window, window), std::memory_order_relaxed);
  }
  last_ = now;
  const Clock::duration cost = Clock::now() - now;
  const auto pause = std::max<Clock::duration>(std::chrono::milliseconds(20), 1000 * cost);
  due_.store((now + pause).time_since_epoch().count(), std::memory_order_relaxed);
}

}  // namespace lockstep::detail
