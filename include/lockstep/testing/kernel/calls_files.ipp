/// \file
/// Descriptors of the simulated kernel. A number of the real kernel goes to the C library; what a
/// simulated thread reads from a real descriptor, or locks, takes no virtual time.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <span>
#include <vector>

#include "lockstep/testing/kernel/next_call.hpp"
#include "lockstep/testing/kernel/simulation.hpp"

namespace lockstep::testing::detail {
namespace {

/// Processor time of a system call.
constexpr SimTime call_cost = microsecond;
/// Between two polls of something that only the real kernel knows.
constexpr SimTime real_pause = millisecond;

/// The file of a simulated descriptor; null if the call goes to the C library.
std::shared_ptr<SimFile> simulated(int descriptor) {
  return this_thread != nullptr && descriptor >= Descriptors::first
             ? simulation->files.find(descriptor)
             : nullptr;
}

template <class Result>
Result result_of(Result value) {
  if (value >= 0) return value;
  errno = static_cast<int>(-value);
  return -1;
}

/// Repeats `step` until it no longer returns -EAGAIN, if the call may wait.
template <class Step>
ssize_t transfer(SimFile& file, bool waits, SimTime limit, const char* what, Step step) {
  scheduler->charge(call_cost);
  scheduler->preempt_sometimes();
  const SimTime deadline = limit == never ? never : time_after(limit);
  while (true) {
    const ssize_t n = step();
    if (n != -EAGAIN || !waits || file.nonblocking) return result_of(n);
    if (!scheduler->block_in(file.waiters, deadline, what)) return result_of<ssize_t>(-EAGAIN);
  }
}

ssize_t read_file(SimFile& file, std::span<const iovec> to) {
  return transfer(file, true, never, "input", [&] { return file.read(to, false); });
}
ssize_t write_file(SimFile& file, std::span<const iovec> from) {
  return transfer(file, true, never, "room for output", [&] { return file.write(from); });
}

int set_nonblocking(SimFile& file, bool value) {
  file.nonblocking = value;
  return 0;
}

/// poll: of simulated and real descriptors.
int poll_files(std::span<pollfd> all, SimTime limit) {
  scheduler->charge(call_cost);
  scheduler->preempt_sometimes();
  const SimTime deadline = limit == never ? never : time_after(limit);
  std::vector<std::shared_ptr<SimFile>> files(all.size());
  bool any_real = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    files[i] = simulated(all[i].fd);
    any_real = any_real || (!files[i] && all[i].fd >= 0 && all[i].fd < Descriptors::first);
  }
  bool last = limit == 0;
  while (true) {
    int count = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].revents = 0;
      if (files[i]) {
        const std::uint32_t wanted = static_cast<std::uint16_t>(all[i].events);
        all[i].revents = static_cast<short>(files[i]->ready() & (wanted | EPOLLERR | EPOLLHUP));
      } else if (all[i].fd >= Descriptors::first) {
        all[i].revents = POLLNVAL;
      } else if (all[i].fd >= 0) {
        pollfd real = all[i];
        LOCKSTEP_NEXT(poll)(&real, 1, 0);
        all[i].revents = real.revents;
      }
      if (all[i].revents != 0) ++count;
    }
    if (count > 0 || last) return count;
    for (const auto& file : files)
      if (file) file->waiters.push_back(this_thread);
    const SimTime next = any_real ? std::min(deadline, time_after(real_pause)) : deadline;
    const bool woken = scheduler->block(next, "descriptors");
    for (const auto& file : files)
      if (file) std::erase(file->waiters, this_thread);
    if (any_real) LOCKSTEP_NEXT(usleep)(20);
    last = !woken && next == deadline;
  }
}

int wait_for_events(SimEpoll& set, std::span<epoll_event> to, int milliseconds) {
  scheduler->charge(call_cost);
  scheduler->preempt_sometimes();
  const SimTime deadline = milliseconds < 0 ? never : time_after(milliseconds * millisecond);
  while (true) {
    const int count = set.collect(to);
    if (count > 0 || milliseconds == 0) return count;
    if (!scheduler->block_in(set.waiters, deadline, "events")) return set.collect(to);
  }
}

/// flock: the real kernel's, which is only tried. The lock ends with the process.
int lock_file(int descriptor, int operation) {
  scheduler->charge(call_cost);
  while (true) {
    const int result = LOCKSTEP_NEXT(flock)(descriptor, operation | LOCK_NB);
    auto& locked = this_thread->process->locked_files;
    if (result == 0 && (operation & LOCK_UN) == 0) locked.insert(descriptor);
    if (result == 0 && (operation & LOCK_UN) != 0) locked.erase(descriptor);
    if (result == 0 || errno != EWOULDBLOCK || (operation & LOCK_NB) != 0) return result;
    scheduler->block(time_after(real_pause), "the lock of a file");
  }
}

int control_file(SimFile& file, int descriptor, int command, long argument) {
  switch (command) {
    case F_GETFL:
      return O_RDWR | (file.nonblocking ? O_NONBLOCK : 0);
    case F_SETFL:
      return set_nonblocking(file, (argument & O_NONBLOCK) != 0);
    case F_GETFD:
      return FD_CLOEXEC;
    case F_SETFD:
      return 0;
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
      return simulation->files.add(simulation->files.find(descriptor));
    default:
      return result_of(-EINVAL);
  }
}

int control_any_file(int descriptor, int command, long argument) {
  const auto file = simulated(descriptor);
  if (file) return control_file(*file, descriptor, command, argument);
  return LOCKSTEP_NEXT(fcntl)(descriptor, command, argument);
}

int open_pipe(int descriptors[2], int flags) {
  const auto pipe = std::make_shared<SimPipe>();
  auto& process = *this_thread->process;
  auto reader = std::make_shared<SimPipeEnd>(process, pipe, nullptr);
  auto writer = std::make_shared<SimPipeEnd>(process, nullptr, pipe);
  reader->nonblocking = writer->nonblocking = (flags & O_NONBLOCK) != 0;
  descriptors[0] = simulation->files.add(std::move(reader));
  descriptors[1] = simulation->files.add(std::move(writer));
  return 0;
}

}  // namespace
}  // namespace lockstep::testing::detail

#pragma GCC visibility push(default)
extern "C" {

/// Defined if the program has the undefined-behaviour sanitizer, which tests memory with a pipe.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the sanitizer's
[[gnu::weak]] void __ubsan_handle_dynamic_type_cache_miss(void*, std::uintptr_t, std::uintptr_t);

int close(int descriptor) {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(close)(descriptor);
  if (descriptor >= Descriptors::first) {
    scheduler->charge(call_cost);
    return result_of(simulation->files.close(descriptor));
  }
  this_thread->process->locked_files.erase(descriptor);
  return LOCKSTEP_NEXT(close)(descriptor);
}

int dup(int descriptor) noexcept {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  return file ? simulation->files.add(file) : LOCKSTEP_NEXT(dup)(descriptor);
}

ssize_t read(int descriptor, void* to, std::size_t n) {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(read)(descriptor, to, n);
  const iovec part{to, n};
  return read_file(*file, {&part, 1});
}

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the C library's
ssize_t __read_chk(int descriptor, void* to, std::size_t n, std::size_t) {
  return read(descriptor, to, n);
}

ssize_t write(int descriptor, const void* from, std::size_t n) {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(write)(descriptor, from, n);
  const iovec part{const_cast<void*>(from), n};
  return write_file(*file, {&part, 1});
}

ssize_t readv(int descriptor, const iovec* parts, int count) {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(readv)(descriptor, parts, count);
  return read_file(*file, {parts, static_cast<std::size_t>(count)});
}

ssize_t writev(int descriptor, const iovec* parts, int count) {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(writev)(descriptor, parts, count);
  return write_file(*file, {parts, static_cast<std::size_t>(count)});
}

int fcntl(int descriptor, int command, ...) {
  va_list list;
  va_start(list, command);
  const long argument = va_arg(list, long);
  va_end(list);
  return lockstep::testing::detail::control_any_file(descriptor, command, argument);
}

int fcntl64(int descriptor, int command, ...) {
  va_list list;
  va_start(list, command);
  const long argument = va_arg(list, long);
  va_end(list);
  return lockstep::testing::detail::control_any_file(descriptor, command, argument);
}

int ioctl(int descriptor, unsigned long request, ...) noexcept {
  using namespace lockstep::testing::detail;
  va_list list;
  va_start(list, request);
  void* const argument = va_arg(list, void*);
  va_end(list);
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(ioctl)(descriptor, request, argument);
  if (request == FIONBIO) return set_nonblocking(*file, *static_cast<int*>(argument) != 0);
  if (const auto* socket = dynamic_cast<SimSocket*>(file.get()); socket && request == FIONREAD) {
    *static_cast<int*>(argument) = static_cast<int>(socket->readable());
    return 0;
  }
  return result_of(-ENOTTY);
}

int poll(pollfd* all, nfds_t count, int milliseconds) {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(poll)(all, count, milliseconds);
  return poll_files({all, count}, milliseconds < 0 ? never : milliseconds * millisecond);
}

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the C library's
int __poll_chk(pollfd* all, nfds_t count, int milliseconds, std::size_t) {
  return poll(all, count, milliseconds);
}

int ppoll(pollfd* all, nfds_t count, const timespec* time, const sigset_t* mask) {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(ppoll)(all, count, time, mask);
  return poll_files({all, count}, time == nullptr ? never : span_of(*time));
}

int epoll_create1(int flags) noexcept {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(epoll_create1)(flags);
  return simulation->files.add(std::make_shared<SimEpoll>(*this_thread->process));
}

int epoll_create(int size) noexcept {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(epoll_create)(size);
  return epoll_create1(0);
}

int epoll_ctl(int set, int operation, int descriptor, epoll_event* event) noexcept {
  using namespace lockstep::testing::detail;
  const auto file = simulated(set);
  if (!file) return LOCKSTEP_NEXT(epoll_ctl)(set, operation, descriptor, event);
  auto* const epoll = dynamic_cast<SimEpoll*>(file.get());
  const auto watched = simulated(descriptor);
  if (epoll == nullptr) return result_of(-EINVAL);
  if (!watched) return result_of(descriptor < Descriptors::first ? -EPERM : -EBADF);
  return result_of(epoll->control(operation, descriptor, watched, event));
}

int epoll_wait(int set, epoll_event* events, int most, int milliseconds) {
  using namespace lockstep::testing::detail;
  const auto file = simulated(set);
  if (!file) return LOCKSTEP_NEXT(epoll_wait)(set, events, most, milliseconds);
  auto* const epoll = dynamic_cast<SimEpoll*>(file.get());
  if (epoll == nullptr || most <= 0) return result_of(-EINVAL);
  return wait_for_events(*epoll, {events, static_cast<std::size_t>(most)}, milliseconds);
}

int epoll_pwait(int set, epoll_event* events, int most, int milliseconds, const sigset_t* mask) {
  using namespace lockstep::testing::detail;
  if (!simulated(set)) return LOCKSTEP_NEXT(epoll_pwait)(set, events, most, milliseconds, mask);
  return epoll_wait(set, events, most, milliseconds);
}

int eventfd(unsigned value, int flags) noexcept {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(eventfd)(value, flags);
  auto counter =
      std::make_shared<SimCounter>(*this_thread->process, value, (flags & EFD_SEMAPHORE) != 0);
  counter->nonblocking = (flags & EFD_NONBLOCK) != 0;
  return simulation->files.add(std::move(counter));
}

int eventfd_write(int descriptor, eventfd_t value) {
  using namespace lockstep::testing::detail;
  if (!simulated(descriptor)) return LOCKSTEP_NEXT(eventfd_write)(descriptor, value);
  return write(descriptor, &value, sizeof value) == sizeof value ? 0 : -1;
}

int eventfd_read(int descriptor, eventfd_t* value) {
  using namespace lockstep::testing::detail;
  if (!simulated(descriptor)) return LOCKSTEP_NEXT(eventfd_read)(descriptor, value);
  return read(descriptor, value, sizeof *value) == sizeof *value ? 0 : -1;
}

int timerfd_create(clockid_t clock, int flags) noexcept {
  using namespace lockstep::testing::detail;
  if (!this_thread) return LOCKSTEP_NEXT(timerfd_create)(clock, flags);
  auto timer = std::make_shared<SimTimer>(*this_thread->process, clock);
  timer->nonblocking = (flags & TFD_NONBLOCK) != 0;
  return simulation->files.add(std::move(timer));
}

int timerfd_settime(int descriptor, int flags, const itimerspec* time,
                    itimerspec* before) noexcept {
  using namespace lockstep::testing::detail;
  const auto file = simulated(descriptor);
  if (!file) return LOCKSTEP_NEXT(timerfd_settime)(descriptor, flags, time, before);
  auto* const timer = dynamic_cast<SimTimer*>(file.get());
  if (timer == nullptr) return result_of(-EINVAL);
  if (before != nullptr) *before = {timespec_of(timer->interval()), timespec_of(timer->left())};
  const bool armed = time->it_value.tv_sec != 0 || time->it_value.tv_nsec != 0;
  timer->set(!armed                             ? never
             : (flags & TFD_TIMER_ABSTIME) != 0 ? time_at(timer->clock, time->it_value)
                                                : time_after(span_of(time->it_value)),
             span_of(time->it_interval));
  return 0;
}

int pipe2(int descriptors[2], int flags) noexcept {
  using namespace lockstep::testing::detail;
  return this_thread ? open_pipe(descriptors, flags) : LOCKSTEP_NEXT(pipe2)(descriptors, flags);
}

int pipe(int descriptors[2]) noexcept {
  using namespace lockstep::testing::detail;
  const bool is_real = !this_thread || &__ubsan_handle_dynamic_type_cache_miss != nullptr;
  return is_real ? LOCKSTEP_NEXT(pipe)(descriptors) : open_pipe(descriptors, 0);
}

int flock(int descriptor, int operation) noexcept {
  using namespace lockstep::testing::detail;
  return this_thread ? lock_file(descriptor, operation)
                     : LOCKSTEP_NEXT(flock)(descriptor, operation);
}

}  // extern "C"
#pragma GCC visibility pop
