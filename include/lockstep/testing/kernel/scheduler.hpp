/// \file
/// Threads, processes and virtual time of a simulation. Invariants: of all simulated threads exactly
/// one runs, the others wait for their turn; a thread gives its turn away only in calls of the
/// simulated kernel; when no thread can run, virtual time moves to the next event.
///
/// \code
///            block                        wake                       pick, by the seed
///   running ───────> blocked ─────────────────────────> runnable ──────────────────────> running
///                       │ its processor time is not used up ^
///                       └──────────> delayed ───────────────┘
/// \endcode
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "lockstep/testing/kernel/sim_time.hpp"

namespace lockstep::testing::detail {

struct SimProcess;

/// Receives events. Targets live as long as the simulation.
class EventTarget {
 public:
  EventTarget() = default;
  EventTarget(const EventTarget&) = delete;
  EventTarget& operator=(const EventTarget&) = delete;
  virtual ~EventTarget() = default;
  virtual void fire(std::uint32_t kind, std::uint64_t a, std::uint64_t b) = 0;
};

/// A thread of a simulated process, which is a real thread.
struct SimThread {
  enum class State { runnable, running, blocked, delayed, finished, dead };

  SimProcess* process = nullptr;
  std::size_t number = 0;  ///< within its process; 0 runs the body
  State state = State::runnable;
  std::atomic<std::uint32_t> turn{0};
  SimTime ready_at = 0;  ///< the end of the processor time that it has used
  SimTime debt = 0;      ///< processor time since it last blocked
  std::uint64_t waits = 0;
  bool timed_out = false;
  bool doomed = false;             ///< killed while it held a lock of the whole program
  const char* waits_for = "";      ///< for reports
  std::vector<const void*> locks;  ///< those that it holds
  std::vector<SimThread*> joiners;
  pthread_t handle{};
  std::function<void()> body{};  ///< of the first thread of a process
  void* (*routine)(void*) = nullptr;
  void* argument = nullptr;
  int exit_rounds = 0;
  int free_calls = 0;  ///< since it last blocked
};

/// A simulated process: one life of a worker.
struct SimProcess {
  std::size_t rank = 0, life = 0;
  int id = 0;
  bool alive = true, frozen = false;
  std::vector<SimThread*> threads;
  std::vector<SimThread*> stopped;  ///< would run if the process were not frozen
  std::set<int> locked_files;       ///< real descriptors with locks
  std::size_t unfinished = 0;
};

/// The machine of a rank. It outlives the lives of its worker.
struct SimMachine {
  SimTime clock_offset = 0;  ///< of its steady clock
  SimTime wall_jump = 0;     ///< of its system clock
  double slowness = 1;
  SimTime link_free = 0;  ///< when its network card has sent what is queued
  std::uint16_t next_port = 32768;
};

/// A queue of blocked threads.
using WaitQueue = std::vector<SimThread*>;

class Scheduler {
 public:
  Scheduler(std::uint64_t seed, std::size_t machines, SimTime limit);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler();

  SimTime now() const { return now_; }
  SimRandom& random() { return random_; }
  SimMachine& machine(std::size_t rank) { return machines_[rank]; }
  std::size_t machine_count() const { return machines_.size(); }
  std::vector<std::unique_ptr<SimProcess>>& processes() { return processes_; }

  /// Called when a process has ended, to close its descriptors.
  std::function<void(SimProcess&)> on_exit{};

  /// Starts the life of a worker. `body` runs in its first thread.
  SimProcess& start(std::size_t rank, std::function<void()> body);
  /// While it is held, the simulation goes on although all bodies have ended.
  void hold() { ++bodies_; }
  void release();
  /// Adds a thread to the caller's process. \return an error number.
  int create(pthread_t* handle, const pthread_attr_t* attributes, void* (*routine)(void*),
             void* argument);
  /// The simulated thread of a handle; null if there is none.
  SimThread* find(pthread_t handle) const;
  /// Ends a process: its threads never run again.
  void kill(SimProcess& process);
  void freeze(SimProcess& process);
  void thaw(SimProcess& process);

  /// Runs until all bodies have ended; called by a thread outside of the simulation. Calls `stuck`
  /// with a sentence if one thread runs for a minute of real time without a system call.
  void run(const std::function<void(const std::string&)>& stuck);
  /// Why the simulation ended early; empty if it did not.
  const std::string& failure() const { return failure_; }
  /// Whether threads are left, which wait for a turn that they never get.
  bool has_leftovers() const;
  std::uint64_t switches() const { return switches_; }

  void schedule(SimTime at, EventTarget& target, std::uint32_t kind, std::uint64_t a = 0,
                std::uint64_t b = 0);
  /// Adds to the digest of the run.
  void note(std::uint64_t a, std::uint64_t b);
  std::uint64_t digest() const { return digest_; }
  std::uint64_t events() const { return notes_; }

  /// Uses processor time.
  void charge(SimTime time);
  /// The time that the calling thread sees, with the processor time that it has used.
  SimTime thread_time() const;
  /// Waits for `wake`, or until `deadline`. \return false if the deadline has passed.
  bool block(SimTime deadline, const char* what);
  /// The same in a queue.
  bool block_in(WaitQueue& queue, SimTime deadline, const char* what);
  void wake(SimThread& thread);
  void wake_all(WaitQueue& queue);
  /// Wakes up to `most` threads, chosen by the seed. \return their number.
  std::size_t wake_some(WaitQueue& queue, std::size_t most);
  /// Lets other threads run first.
  void yield();
  /// The same, sometimes, if the calling thread holds no lock.
  void preempt_sometimes();
  /// Ends the calling thread of a killed process once it holds no lock of the whole program.
  void end_doomed();
  /// Called by a thread that ends, as the last thing that it does with its turn.
  void finish_thread();
  static void wait_for_turn(SimThread& thread);
  void add_id(pid_t thread) { ids_.insert(thread); }
  /// Whether the thread of the real kernel is one of the simulation's.
  bool is_simulated(pid_t thread) const { return ids_.contains(thread); }
  std::string report() const;

 private:
  struct Event {
    SimTime at;
    std::uint64_t order;
    EventTarget* target;
    std::uint32_t kind;
    std::uint64_t a, b;
    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  /// Timeouts and ends of processor time.
  class Wakeups : public EventTarget {
   public:
    explicit Wakeups(Scheduler& scheduler) : scheduler_(scheduler) {}
    void fire(std::uint32_t kind, std::uint64_t a, std::uint64_t b) override;

   private:
    Scheduler& scheduler_;
  };

  /// Ends its threads, except those that hold a lock of the whole program, and closes its files.
  void end_process(SimProcess& process);
  void make_runnable(SimThread& thread);
  /// Gives the turn to the next thread, or to the caller of `run`.
  void hand_over();
  void switch_away(SimThread& thread);
  /// The next thread; null if the simulation has ended.
  SimThread* pick();
  void fail(std::string why);
  static void give_turn(std::atomic<std::uint32_t>& turn);
  static void await(std::atomic<std::uint32_t>& turn);
  /// Gives up after a minute. \return whether the turn has come.
  static bool await_a_minute(std::atomic<std::uint32_t>& turn);
  int launch(SimThread& thread, const pthread_attr_t* attributes);

  SimTime now_ = 0, limit_;
  SimRandom random_;
  std::vector<SimMachine> machines_;
  std::vector<std::unique_ptr<SimProcess>> processes_;
  std::vector<std::unique_ptr<SimThread>> threads_;
  std::vector<SimThread*> runnable_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::atomic<std::uint64_t> calls_{0};  // of the kernel, to notice a thread that makes none
  std::atomic<SimThread*> running_{nullptr};
  std::uint64_t order_ = 0, digest_ = 0xcbf29ce484222325u, notes_ = 0, switches_ = 0;
  std::size_t bodies_ = 0;  // that have not ended, and holds
  Wakeups wakeups_{*this};
  std::atomic<std::uint32_t> ended_{0};
  std::string failure_;
  std::unordered_set<pid_t> ids_;  // of all threads, also of those that have ended
};

/// The simulated thread that runs this code; null outside of a simulation.
extern thread_local constinit SimThread* this_thread;
/// The simulation of this program; null if none runs.
extern Scheduler* scheduler;

}  // namespace lockstep::testing::detail
