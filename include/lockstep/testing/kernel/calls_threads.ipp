/// \file
/// Threads, locks and waits of the simulated kernel. Each function replaces the C library's: a
/// thread outside of a simulation gets the library's. Locks are the library's own, which are only
/// tried, so that a thread that would wait can give its turn away.
#pragma once

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>

#include "lockstep/testing/kernel/next_call.hpp"
#include "lockstep/testing/kernel/simulation.hpp"

namespace lockstep::testing::detail {
namespace {

void release_lock(const void* lock) {
  auto& locks = this_thread->locks;
  const auto last = std::find(locks.rbegin(), locks.rend(), lock);
  if (last != locks.rend()) locks.erase(std::next(last).base());
  simulation->wake_at(lock, 1);
  if (this_thread->doomed) scheduler->end_doomed();
}

/// Locks by trying. \return 0, ETIMEDOUT or the error of `try_lock`.
template <class TryLock>
int lock_by_trying(const void* lock, SimTime deadline, TryLock try_lock,
                   const pthread_mutex_t* mutex = nullptr) {
  while (true) {
    const int error = try_lock();
    if (error == 0 || error == EOWNERDEAD) this_thread->locks.push_back(lock);
    if (error != EBUSY) return error;
    // A thread outside of the simulation does not wake those inside.
    if (mutex != nullptr &&
        !scheduler->is_simulated(__atomic_load_n(&mutex->__data.__owner, __ATOMIC_RELAXED))) {
      LOCKSTEP_NEXT(usleep)(20);
      continue;
    }
    if (!simulation->wait_at(lock, deadline, "a mutex")) return ETIMEDOUT;
  }
}

int wait_for_condition(pthread_cond_t* condition, pthread_mutex_t* mutex, SimTime deadline) {
  // Between the unlock and the wait no other thread runs.
  simulation->enter_queue(condition);
  LOCKSTEP_NEXT(pthread_mutex_unlock)(mutex);
  release_lock(mutex);
  const bool woken = scheduler->block(deadline, "a condition");
  simulation->leave_queue(condition);
  lock_by_trying(mutex, never, [&] { return LOCKSTEP_NEXT(pthread_mutex_trylock)(mutex); }, mutex);
  return woken ? 0 : ETIMEDOUT;
}

long wait_at_futex(const int* address, int operation, int value, const timespec* time) {
  if (__atomic_load_n(address, __ATOMIC_SEQ_CST) != value) {
    errno = EAGAIN;
    return -1;
  }
  SimTime deadline = never;
  if (time != nullptr && (operation & FUTEX_CMD_MASK) == FUTEX_WAIT)
    deadline = time_after(span_of(*time));
  else if (time != nullptr)
    deadline =
        time_at((operation & FUTEX_CLOCK_REALTIME) != 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC, *time);
  if (simulation->wait_at(address, deadline, "a futex")) return 0;
  errno = ETIMEDOUT;
  return -1;
}

int wait_for_semaphore(sem_t* semaphore, SimTime deadline) {
  scheduler->preempt_sometimes();
  while (LOCKSTEP_NEXT(sem_trywait)(semaphore) != 0) {
    if (errno != EAGAIN) return -1;
    if (simulation->wait_at(semaphore, deadline, "a semaphore")) continue;
    errno = ETIMEDOUT;
    return -1;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::testing::detail

#pragma GCC visibility push(default)
extern "C" {

using lockstep::testing::detail::lock_by_trying;
using lockstep::testing::detail::never;
using lockstep::testing::detail::release_lock;
using lockstep::testing::detail::scheduler;
using lockstep::testing::detail::simulation;
using lockstep::testing::detail::this_thread;
using lockstep::testing::detail::time_at;
using lockstep::testing::detail::wait_for_condition;
using lockstep::testing::detail::wait_for_semaphore;

int pthread_create(pthread_t* handle, const pthread_attr_t* attributes, void* (*routine)(void*),
                   void* argument) noexcept {
  if (!this_thread) return LOCKSTEP_NEXT(pthread_create)(handle, attributes, routine, argument);
  return scheduler->create(handle, attributes, routine, argument);
}

int pthread_join(pthread_t handle, void** result) {
  if (this_thread) {
    auto* const thread = scheduler->find(handle);
    using State = lockstep::testing::detail::SimThread::State;
    while (thread && thread->state != State::finished)
      scheduler->block_in(thread->joiners, never, "the end of a thread");
  }
  return LOCKSTEP_NEXT(pthread_join)(handle, result);
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  if (!this_thread) return LOCKSTEP_NEXT(pthread_mutex_lock)(mutex);
  scheduler->preempt_sometimes();
  const auto try_lock = [=] { return LOCKSTEP_NEXT(pthread_mutex_trylock)(mutex); };
  return lock_by_trying(mutex, never, try_lock, mutex);
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  const int error = LOCKSTEP_NEXT(pthread_mutex_trylock)(mutex);
  if (!this_thread) return error;
  if (error == 0) this_thread->locks.push_back(mutex);
  if (error == EBUSY) scheduler->charge(lockstep::testing::detail::microsecond);
  return error;
}

int pthread_mutex_timedlock(pthread_mutex_t* mutex, const timespec* time) noexcept {
  if (!this_thread) return LOCKSTEP_NEXT(pthread_mutex_timedlock)(mutex, time);
  return lock_by_trying(mutex, time_at(CLOCK_REALTIME, *time),
                        [=] { return LOCKSTEP_NEXT(pthread_mutex_trylock)(mutex); });
}

int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                            const timespec* time) noexcept {
  if (!this_thread) return LOCKSTEP_NEXT(pthread_mutex_clocklock)(mutex, clock, time);
  return lock_by_trying(mutex, time_at(clock, *time),
                        [=] { return LOCKSTEP_NEXT(pthread_mutex_trylock)(mutex); });
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  const int error = LOCKSTEP_NEXT(pthread_mutex_unlock)(mutex);
  if (this_thread && error == 0) release_lock(mutex);
  return error;
}

// These do not draw from the seed: OpenSSL locks them at times that depend on earlier runs.
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  if (!this_thread) return LOCKSTEP_NEXT(pthread_rwlock_rdlock)(lock);
  return lock_by_trying(lock, never, [=] { return LOCKSTEP_NEXT(pthread_rwlock_tryrdlock)(lock); });
}

int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  if (!this_thread) return LOCKSTEP_NEXT(pthread_rwlock_wrlock)(lock);
  return lock_by_trying(lock, never, [=] { return LOCKSTEP_NEXT(pthread_rwlock_trywrlock)(lock); });
}

int pthread_rwlock_tryrdlock(pthread_rwlock_t* lock) noexcept {
  const int error = LOCKSTEP_NEXT(pthread_rwlock_tryrdlock)(lock);
  if (this_thread && error == 0) this_thread->locks.push_back(lock);
  return error;
}

int pthread_rwlock_trywrlock(pthread_rwlock_t* lock) noexcept {
  const int error = LOCKSTEP_NEXT(pthread_rwlock_trywrlock)(lock);
  if (this_thread && error == 0) this_thread->locks.push_back(lock);
  return error;
}

int pthread_rwlock_unlock(pthread_rwlock_t* lock) noexcept {
  const int error = LOCKSTEP_NEXT(pthread_rwlock_unlock)(lock);
  if (!this_thread || error != 0) return error;
  release_lock(lock);
  simulation->wake_at(lock, SIZE_MAX);  // all readers may go on
  return 0;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  if (!this_thread) return LOCKSTEP_NEXT_CONDITION(pthread_cond_wait)(condition, mutex);
  return wait_for_condition(condition, mutex, never);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* time) {
  if (!this_thread) return LOCKSTEP_NEXT_CONDITION(pthread_cond_timedwait)(condition, mutex, time);
  return wait_for_condition(condition, mutex, time_at(CLOCK_REALTIME, *time));
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* time) {
  if (!this_thread) return LOCKSTEP_NEXT(pthread_cond_clockwait)(condition, mutex, clock, time);
  return wait_for_condition(condition, mutex, time_at(clock, *time));
}

int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  if (this_thread) simulation->wake_at(condition, 1);
  return LOCKSTEP_NEXT_CONDITION(pthread_cond_signal)(condition);
}

int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  if (this_thread) simulation->wake_at(condition, SIZE_MAX);
  return LOCKSTEP_NEXT_CONDITION(pthread_cond_broadcast)(condition);
}

int pthread_once(pthread_once_t* control, void (*routine)()) {
  constexpr int done = 2;  // of glibc
  if (!this_thread || __atomic_load_n(control, __ATOMIC_ACQUIRE) == done)
    return LOCKSTEP_NEXT(pthread_once)(control, routine);
  auto& onces = simulation->onces;
  while (std::find(onces.begin(), onces.end(), control) != onces.end())
    simulation->wait_at(control, never, "pthread_once");
  struct Running {
    explicit Running(const void* its) : control(its) { simulation->onces.push_back(control); }
    ~Running() {
      std::erase(simulation->onces, control);
      simulation->wake_at(control, SIZE_MAX);
    }
    const void* control;
  } const running(control);
  return LOCKSTEP_NEXT(pthread_once)(control, routine);
}

int sem_wait(sem_t* semaphore) {
  if (!this_thread) return LOCKSTEP_NEXT(sem_wait)(semaphore);
  return wait_for_semaphore(semaphore, never);
}

int sem_timedwait(sem_t* semaphore, const timespec* time) {
  if (!this_thread) return LOCKSTEP_NEXT(sem_timedwait)(semaphore, time);
  return wait_for_semaphore(semaphore, time_at(CLOCK_REALTIME, *time));
}

int sem_clockwait(sem_t* semaphore, clockid_t clock, const timespec* time) {
  if (!this_thread) return LOCKSTEP_NEXT(sem_clockwait)(semaphore, clock, time);
  return wait_for_semaphore(semaphore, time_at(clock, *time));
}

int sem_post(sem_t* semaphore) noexcept {
  const int result = LOCKSTEP_NEXT(sem_post)(semaphore);
  if (this_thread) simulation->wake_at(semaphore, 1);
  return result;
}

int sched_yield() noexcept {
  if (!this_thread) return LOCKSTEP_NEXT(sched_yield)();
  scheduler->charge(lockstep::testing::detail::microsecond);
  scheduler->yield();
  return 0;
}

// A simulated machine has one core, and its threads are not bound.
int sched_getaffinity(pid_t process, std::size_t size, cpu_set_t* cores) noexcept {
  if (!this_thread) return LOCKSTEP_NEXT(sched_getaffinity)(process, size, cores);
  CPU_ZERO_S(size, cores);
  CPU_SET_S(0, size, cores);
  return 0;
}

int sched_setaffinity(pid_t process, std::size_t size, const cpu_set_t* cores) noexcept {
  return this_thread ? 0 : LOCKSTEP_NEXT(sched_setaffinity)(process, size, cores);
}

int pthread_setaffinity_np(pthread_t thread, std::size_t size, const cpu_set_t* cores) noexcept {
  return this_thread ? 0 : LOCKSTEP_NEXT(pthread_setaffinity_np)(thread, size, cores);
}

pid_t getpid() noexcept { return this_thread ? this_thread->process->id : LOCKSTEP_NEXT(getpid)(); }

/// std::random_device::operator(), so that the seed decides these numbers as well.
unsigned lockstep_random_device(void* device) asm("_ZNSt13random_device9_M_getvalEv");
unsigned lockstep_random_device(void* device) {
  if (this_thread) return static_cast<unsigned>(simulation->entropy.next());
  static std::atomic<void*> known{nullptr};
  return lockstep::testing::detail::next_definition<unsigned(void*)>(
      known, [] { return ::dlsym(RTLD_NEXT, "_ZNSt13random_device9_M_getvalEv"); })(device);
}

/// Reads six arguments, as the C library's does, of which the caller may have passed fewer.
[[gnu::no_sanitize_address]] long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  const auto forward = [&] {
    return LOCKSTEP_NEXT(syscall)(number, arguments[0], arguments[1], arguments[2], arguments[3],
                                  arguments[4], arguments[5]);
  };
  if (!this_thread || number != SYS_futex) return forward();
  auto* const address = reinterpret_cast<int*>(arguments[0]);
  const int operation = static_cast<int>(arguments[1]);
  switch (operation & FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
      return lockstep::testing::detail::wait_at_futex(
          address, operation, static_cast<int>(arguments[2]),
          reinterpret_cast<const timespec*>(arguments[3]));
    case FUTEX_WAKE:
    case FUTEX_WAKE_BITSET: {
      const auto most = static_cast<std::size_t>(static_cast<std::uint32_t>(arguments[2]));
      const std::size_t count = simulation->wake_at(address, most);
      return static_cast<long>(count) + (count < most ? std::max(forward(), 0L) : 0L);
    }
    default:
      return forward();
  }
}

}  // extern "C"
#pragma GCC visibility pop
