/// \file
/// Executes the grid of a kernel compiled for the host. Blocks run sequentially in random order,
/// and so do the threads of a block, which exposes missing barriers. Invariants: threads of a
/// kernel without barriers run to completion one by one; threads of one with barriers are fibers,
/// each with its own stack, that switch at barriers; one grid runs at a time.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

namespace testing {

struct HostIndex {
  unsigned x, y, z;
};
/// The built-in variables of a kernel; same layout as in the prologue.
struct HostThread {
  HostIndex thread, block, block_size, grid_size;
  void (*block_barrier)();
  void (*warp_barrier)();
  unsigned char* slots;
};

/// A compiled entry point.
struct HostFunction {
  void (*call)(void**) = nullptr;
  const int* sizes = nullptr;  // number of arguments, then their sizes in bytes
  HostThread** thread = nullptr;
  bool synchronizes = false;  // has barriers or shuffles
  const char* name = "";
};

/// Runs the threads of a block, as plain calls or as fibers.
class HostBlock {
 public:
  static void run_grid(const HostFunction& f, HostIndex blocks, HostIndex threads, void** args) {
    HostBlock b(f, blocks, threads, args);
    for (const unsigned i : drawn(blocks.x * blocks.y * blocks.z)) {
      b.place_.block = {i % blocks.x, i / blocks.x % blocks.y, i / blocks.x / blocks.y};
      if (f.synchronizes)
        b.run_together();
      else
        b.run_in_turn();
    }
  }

 private:
  struct Barrier {
    unsigned expected = 0, arrived = 0, round = 0;
    void leave() {
      --expected;
      if (expected > 0 && arrived == expected) open();
    }
    void open() {
      arrived = 0;
      ++round;
    }
  };
  /// Starts as a ucontext and continues by longjmp, which needs no system call. Neither
  /// _FORTIFY_SOURCE nor a shadow stack permits jumps between stacks.
  struct Fiber {
    ucontext_t context{};
    jmp_buf place;
    bool begun = false, done = false;
  };

  HostBlock(const HostFunction& f, HostIndex blocks, HostIndex threads, void** args)
      : function_(f), args_(args), count_(threads.x * threads.y * threads.z), slots_(8 * count_) {
    place_ = {{}, {}, threads, blocks, &block_barrier, &warp_barrier, slots_.data()};
    *f.thread = &place_;
    if (f.synchronizes) fibers_.resize(count_);
  }
  void set_thread(unsigned i) {
    const HostIndex& s = place_.block_size;
    place_.thread = {i % s.x, i / s.x % s.y, i / s.x / s.y};
    current_ = i;
  }
  /// A random permutation of the numbers below n.
  static std::vector<unsigned> drawn(unsigned n) {
    std::vector<unsigned> order(n);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), draw_);
    return order;
  }
  void draw_turns() { turns_ = drawn(count_); }
  void run_in_turn() {
    draw_turns();
    for (const unsigned i : turns_) {
      set_thread(i);
      function_.call(args_);
    }
  }
  void run_together() {
    running = this;
    block_ = {count_, 0, 0};
    warps_.assign((count_ + 31) / 32, {});
    for (unsigned i = 0; i < count_; ++i) ++warps_[i / 32].expected;
    static thread_local std::vector<std::unique_ptr<char[]>> stacks;  // kept: there are up to 1024
    while (stacks.size() < count_) stacks.emplace_back(new char[stack_size]);
    for (unsigned i = 0; i < count_; ++i) {
      Fiber& f = fibers_[i];
      f.begun = f.done = false;
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = stacks[i].get();
      f.context.uc_stack.ss_size = stack_size;
      makecontext(&f.context, &enter, 0);
    }
    draw_turns();
    for (unsigned left = count_, turn = 0; left > 0; turn = (turn + 1) % count_) {
      const unsigned i = turns_[turn];
      if (fibers_[i].done) continue;
      set_thread(i);
      resume(fibers_[i]);
      if (fibers_[i].done) --left;
    }
  }
  void resume(Fiber& f) {
    if (_setjmp(scheduler_) != 0) return;
    if (f.begun) _longjmp(f.place, 1);
    f.begun = true;
    setcontext(&f.context);
  }
  static void enter() {
    HostBlock& b = *running;
    b.function_.call(b.args_);
    const unsigned i = b.current_;
    b.fibers_[i].done = true;
    b.block_.leave();
    b.warps_[i / 32].leave();
    _longjmp(b.scheduler_, 1);
  }
  void wait_at(Barrier& barrier) {
    const unsigned round = barrier.round, i = current_;
    if (++barrier.arrived == barrier.expected) {
      barrier.open();
      return;
    }
    while (barrier.round == round)
      if (_setjmp(fibers_[i].place) == 0) _longjmp(scheduler_, 1);
  }
  static void block_barrier() { running->wait_at(running->block_); }
  static void warp_barrier() { running->wait_at(running->warps_[running->current_ / 32]); }

  static constexpr std::size_t stack_size = 64 * 1024;
  static inline HostBlock* running = nullptr;
  const HostFunction& function_;
  void** args_;
  unsigned count_, current_ = 0;
  std::vector<unsigned char> slots_;
  std::vector<unsigned> turns_;
  static inline std::mt19937 draw_{1};
  HostThread place_{};
  std::vector<Fiber> fibers_;
  jmp_buf scheduler_;
  Barrier block_;
  std::vector<Barrier> warps_;
};

}  // namespace testing
