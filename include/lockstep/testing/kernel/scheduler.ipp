#pragma once

#include "lockstep/testing/kernel/scheduler.hpp"

#include <dlfcn.h>
#include <link.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>

#include "lockstep/core/format_text.hpp"
#include "lockstep/testing/kernel/next_call.hpp"

namespace lockstep::testing::detail {

thread_local constinit SimThread* this_thread = nullptr;
Scheduler* scheduler = nullptr;

namespace {

constexpr std::uint32_t wake_timed_out = 0, wake_ready = 1;
/// Processor time that a thread uses before others see the time pass.
constexpr SimTime most_debt = 100 * microsecond;
/// One of 16 calls lets another thread run first.
constexpr std::uint64_t preemption = 16;

pthread_key_t exit_key;

/// Runs after the destructors of the thread's thread-local objects: destructors of keys run last,
/// in several rounds.
void on_thread_exit(void* p) {
  auto* const thread = static_cast<SimThread*>(p);
  if (thread != this_thread) return;
  if (++thread->exit_rounds < 3) {
    ::pthread_setspecific(exit_key, thread);
    return;
  }
  scheduler->finish_thread();
}

const int exit_key_error = ::pthread_key_create(&exit_key, on_thread_exit);

void* run_thread(void* p) {
  auto* const thread = static_cast<SimThread*>(p);
  this_thread = thread;
  ::pthread_setspecific(exit_key, thread);
  Scheduler::wait_for_turn(*thread);
  scheduler->add_id(static_cast<pid_t>(LOCKSTEP_NEXT(syscall)(SYS_gettid)));
  if (thread->routine != nullptr) return thread->routine(thread->argument);
  thread->body();
  return nullptr;
}

/// Whether an address belongs to an object of static storage, which all workers share.
bool is_static(const void* address) {
  struct Query {
    std::uintptr_t address;
    bool found = false;
  } query{reinterpret_cast<std::uintptr_t>(address)};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& wanted = *static_cast<Query*>(data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
          if (part.p_type == PT_LOAD && wanted.address >= begin &&
              wanted.address < begin + part.p_memsz)
            wanted.found = true;
        }
        return wanted.found ? 1 : 0;
      },
      &query);
  return query.found;
}

/// Whether a thread is one of OpenMP's, which wait without the C library.
bool is_of_openmp(void* (*routine)(void*)) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(routine), &info) == 0 || info.dli_fname == nullptr)
    return false;
  const std::string_view file(info.dli_fname);
  return file.find("libgomp") != file.npos || file.find("libomp") != file.npos ||
         file.find("libiomp") != file.npos;
}

bool holds_static_lock(const SimThread& thread) {
  return std::any_of(thread.locks.begin(), thread.locks.end(), is_static);
}

}  // namespace

Scheduler::Scheduler(std::uint64_t seed, std::size_t machines, SimTime limit)
    : limit_(limit), random_(seed), machines_(machines) {
  // Each machine has started at another time.
  for (SimMachine& machine : machines_)
    machine.clock_offset = static_cast<SimTime>(random_.below(1'000'000)) * second;
}

Scheduler::~Scheduler() = default;

void Scheduler::give_turn(std::atomic<std::uint32_t>& turn) {
  turn.store(1, std::memory_order_release);
  LOCKSTEP_NEXT(syscall)(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void Scheduler::await(std::atomic<std::uint32_t>& turn) {
  while (turn.exchange(0, std::memory_order_acquire) == 0)
    LOCKSTEP_NEXT(syscall)(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
}

bool Scheduler::await_a_minute(std::atomic<std::uint32_t>& turn) {
  const timespec minute{60, 0};
  if (turn.exchange(0, std::memory_order_acquire) != 0) return true;
  LOCKSTEP_NEXT(syscall)(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, 0, &minute, nullptr, 0);
  return turn.exchange(0, std::memory_order_acquire) != 0;
}

void Scheduler::wait_for_turn(SimThread& thread) { await(thread.turn); }

void Scheduler::schedule(SimTime at, EventTarget& target, std::uint32_t kind, std::uint64_t a,
                         std::uint64_t b) {
  if (at != never) events_.push({std::max(at, now_), ++order_, &target, kind, a, b});
}

void Scheduler::note(std::uint64_t a, std::uint64_t b) {
  for (const std::uint64_t word : {static_cast<std::uint64_t>(now_), a, b})
    digest_ = (digest_ ^ word) * 0x100000001b3u;
  ++notes_;
}

int Scheduler::launch(SimThread& thread, const pthread_attr_t* attributes) {
  thread.number = thread.process->threads.size();
  const int error = LOCKSTEP_NEXT(pthread_create)(&thread.handle, attributes, run_thread, &thread);
  if (error != 0) return error;
  thread.process->threads.push_back(&thread);
  ++thread.process->unfinished;
  make_runnable(thread);
  return 0;
}

SimProcess& Scheduler::start(std::size_t rank, std::function<void()> body) {
  auto& process = *processes_.emplace_back(std::make_unique<SimProcess>());
  process.rank = rank;
  process.life = static_cast<std::size_t>(std::count_if(
      processes_.begin(), processes_.end() - 1, [&](const auto& p) { return p->rank == rank; }));
  // Also differs from those of earlier simulations, whose killed workers still own what they had.
  static int next_id = 1'000'000;
  process.id = next_id++;
  auto& thread = *threads_.emplace_back(std::make_unique<SimThread>());
  thread.process = &process;
  thread.body = std::move(body);
  ++bodies_;
  if (const int error = launch(thread, nullptr); error != 0) {
    --bodies_;
    process.alive = false;
    fail(format_text("rank {}: no thread can be started ({})", rank, std::strerror(error)));
  } else {
    ::pthread_detach(thread.handle);
  }
  return process;
}

int Scheduler::create(pthread_t* handle, const pthread_attr_t* attributes, void* (*routine)(void*),
                      void* argument) {
  if (is_of_openmp(routine)) {
    fail(format_text(
        "rank {} starts threads of OpenMP, which do not wait for their turn; give the device one "
        "thread, as Cpu{{.threads = 1}} does",
        this_thread->process->rank));
    block(never, "OpenMP");
  }
  auto& thread = *threads_.emplace_back(std::make_unique<SimThread>());
  thread.process = this_thread->process;
  thread.routine = routine;
  thread.argument = argument;
  const int error = launch(thread, attributes);
  if (error != 0)
    threads_.pop_back();
  else
    *handle = thread.handle;
  return error;
}

SimThread* Scheduler::find(pthread_t handle) const {
  // A handle is used again after its thread has been joined, so the newest counts.
  for (auto i = threads_.rbegin(); i != threads_.rend(); ++i)
    if (::pthread_equal((*i)->handle, handle) != 0) return i->get();
  return nullptr;
}

void Scheduler::make_runnable(SimThread& thread) {
  thread.state = SimThread::State::runnable;
  if (thread.process->frozen)
    thread.process->stopped.push_back(&thread);
  else
    runnable_.push_back(&thread);
}

void Scheduler::wake(SimThread& thread) {
  if (thread.state != SimThread::State::blocked) return;
  if (thread.ready_at <= now_) return make_runnable(thread);
  thread.state = SimThread::State::delayed;
  schedule(thread.ready_at, wakeups_, wake_ready, reinterpret_cast<std::uintptr_t>(&thread));
}

void Scheduler::Wakeups::fire(std::uint32_t kind, std::uint64_t a, std::uint64_t b) {
  auto& thread = *reinterpret_cast<SimThread*>(a);
  if (kind == wake_ready) {
    if (thread.state == SimThread::State::delayed) scheduler_.make_runnable(thread);
  } else if (thread.state == SimThread::State::blocked && thread.waits == b) {
    thread.timed_out = true;
    scheduler_.wake(thread);
  }
}

bool Scheduler::block(SimTime deadline, const char* what) {
  SimThread& thread = *this_thread;
  thread.ready_at = now_ + std::exchange(thread.debt, 0);
  thread.state = SimThread::State::blocked;
  thread.timed_out = false;
  thread.waits_for = what;
  thread.free_calls = 0;
  ++thread.waits;
  if (deadline != never)
    schedule(deadline, wakeups_, wake_timed_out, reinterpret_cast<std::uintptr_t>(&thread),
             thread.waits);
  switch_away(thread);
  return !thread.timed_out;
}

bool Scheduler::block_in(WaitQueue& queue, SimTime deadline, const char* what) {
  queue.push_back(this_thread);
  const bool woken = block(deadline, what);
  std::erase(queue, this_thread);
  return woken;
}

void Scheduler::wake_all(WaitQueue& queue) {
  for (SimThread* thread : queue) wake(*thread);
}

std::size_t Scheduler::wake_some(WaitQueue& queue, std::size_t most) {
  std::erase_if(queue, [](const SimThread* t) { return t->state != SimThread::State::blocked; });
  std::size_t count = 0;
  for (; count < most && !queue.empty(); ++count) {
    const auto chosen = queue.begin() + static_cast<std::ptrdiff_t>(random_.below(queue.size()));
    SimThread* const thread = *chosen;
    queue.erase(chosen);
    wake(*thread);
  }
  return count;
}

void Scheduler::charge(SimTime time) {
  calls_.fetch_add(1, std::memory_order_relaxed);
  SimThread& thread = *this_thread;
  const double slowness = machines_[thread.process->rank].slowness;
  thread.debt += slowness == 1 ? time : static_cast<SimTime>(static_cast<double>(time) * slowness);
  if (thread.debt < most_debt || (!thread.locks.empty() && thread.debt < 100 * most_debt)) return;
  block(now_ + thread.debt, "its processor time");
}

SimTime Scheduler::thread_time() const { return now_ + this_thread->debt; }

void Scheduler::yield() {
  make_runnable(*this_thread);
  switch_away(*this_thread);
}

void Scheduler::preempt_sometimes() {
  if (this_thread->locks.empty() && random_.below(preemption) == 0) yield();
}

void Scheduler::switch_away(SimThread& thread) {
  SimThread* const next = pick();
  if (next == &thread) {
    thread.state = SimThread::State::running;
    return;
  }
  ++switches_;
  if (next == nullptr) {
    give_turn(ended_);
  } else {
    next->state = SimThread::State::running;
    give_turn(next->turn);
  }
  await(thread.turn);
}

void Scheduler::hand_over() {
  SimThread* const next = pick();
  ++switches_;
  if (next == nullptr) return give_turn(ended_);
  next->state = SimThread::State::running;
  give_turn(next->turn);
}

SimThread* Scheduler::pick() {
  calls_.fetch_add(1, std::memory_order_relaxed);
  while (failure_.empty()) {
    while (!events_.empty() && events_.top().at <= now_) {
      const Event event = events_.top();
      events_.pop();
      event.target->fire(event.kind, event.a, event.b);
    }
    if (bodies_ == 0) return nullptr;
    if (!runnable_.empty()) {
      const std::size_t i = random_.below(runnable_.size());
      SimThread* const next = runnable_[i];
      runnable_[i] = runnable_.back();
      runnable_.pop_back();
      running_.store(next, std::memory_order_relaxed);
      return next;
    }
    if (events_.empty()) {
      fail("no thread can run, and nothing is on its way");
    } else if (events_.top().at > limit_) {
      fail("the limit of virtual time has passed");
    } else {
      now_ = events_.top().at;
    }
  }
  return nullptr;
}

void Scheduler::release() { --bodies_; }

void Scheduler::fail(std::string why) {
  if (failure_.empty()) failure_ = std::move(why) + report();
}

void Scheduler::run(const std::function<void(const std::string&)>& stuck) {
  if (bodies_ == 0) return;
  hand_over();
  for (std::uint64_t before = 0; !await_a_minute(ended_);) {
    const std::uint64_t calls = calls_.load(std::memory_order_relaxed);
    const SimThread* const thread = running_.load(std::memory_order_relaxed);
    if (calls == before && thread != nullptr)
      stuck(format_text(
          "run_workers: thread {} of rank {} runs for a minute without a system call; if it polls a "
          "variable, no other thread can change it",
          thread->number, thread->process->rank));
    before = calls;
  }
}

void Scheduler::finish_thread() {
  SimThread& thread = *this_thread;
  SimProcess& process = *thread.process;
  thread.state = SimThread::State::finished;
  --process.unfinished;
  if (thread.number == 0 && process.alive) end_process(process);
  for (SimThread* joiner : thread.joiners) wake(*joiner);
  this_thread = nullptr;
  hand_over();
}

void Scheduler::kill(SimProcess& process) {
  if (!process.alive) return;
  thaw(process);
  end_process(process);
  if (this_thread != nullptr && this_thread->process == &process) end_doomed();
}

void Scheduler::end_process(SimProcess& process) {
  process.alive = false;
  for (SimThread* thread : process.threads) {
    if (thread->state == SimThread::State::finished) continue;
    if (holds_static_lock(*thread))
      thread->doomed = true;
    else
      thread->state = SimThread::State::dead;
  }
  std::erase_if(runnable_, [](SimThread* t) { return t->state == SimThread::State::dead; });
  if (on_exit) on_exit(process);
  --bodies_;
}

void Scheduler::end_doomed() {
  SimThread& thread = *this_thread;
  if (thread.process->alive || (thread.doomed && holds_static_lock(thread))) return;
  thread.state = SimThread::State::dead;
  switch_away(thread);
}

void Scheduler::freeze(SimProcess& process) {
  if (!process.alive || process.frozen) return;
  process.frozen = true;
  --bodies_;  // the others need not wait for it
  std::erase_if(runnable_, [&](SimThread* thread) {
    if (thread->process != &process) return false;
    process.stopped.push_back(thread);
    return true;
  });
}

void Scheduler::thaw(SimProcess& process) {
  if (!process.frozen) return;
  process.frozen = false;
  ++bodies_;
  for (SimThread* thread : std::exchange(process.stopped, {}))
    if (thread->state == SimThread::State::runnable) runnable_.push_back(thread);
}

bool Scheduler::has_leftovers() const {
  return std::any_of(threads_.begin(), threads_.end(), [](const auto& thread) {
    return thread->state != SimThread::State::finished;
  });
}

std::string Scheduler::report() const {
  std::string lines = format_text("; {} ns of virtual time have passed. The threads are:", now_);
  std::size_t count = 0;
  for (const auto& thread : threads_) {
    const auto state = thread->state;
    if (state == SimThread::State::finished || state == SimThread::State::dead) continue;
    if (++count > 100) continue;
    lines += format_text("\n  rank {}, thread {}: {}{}", thread->process->rank, thread->number,
                         state == SimThread::State::blocked   ? "waits for "
                         : state == SimThread::State::delayed ? "computes"
                                                              : "can run",
                         state == SimThread::State::blocked ? thread->waits_for : "");
    if (thread->process->frozen) lines += " (frozen)";
  }
  if (count > 100) lines += format_text("\n  and {} more", count - 100);
  return lines;
}

}  // namespace lockstep::testing::detail
