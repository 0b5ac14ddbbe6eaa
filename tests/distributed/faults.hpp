/// \file
/// Fault injection: a training job in which one process fails at a chosen step and place.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "distributed/processes.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/strategies/multi_worker_mirrored.hpp"
#include "unit/training/model_support.hpp"

namespace distributed {

enum class Place { before_step, forward, backward, reduce, optimizer, after_step, evaluation };
inline constexpr std::array places{Place::before_step, Place::forward,   Place::backward,
                                   Place::reduce,      Place::optimizer, Place::after_step,
                                   Place::evaluation};
inline const char* to_string(Place place) {
  constexpr std::array names{"before a step",    "forward",      "backward",     "reduce",
                             "in the optimizer", "after a step", "in evaluation"};
  return names[static_cast<std::size_t>(place)];
}

/// The faults that a process can inject into itself.
enum class FaultKind {
  kill,
  segv,
  abort,
  terminate,  ///< as an exception that leaves a noexcept function does
  exit,
  freeze,
  fail,
  hang,               ///< the training thread blocks, the other threads continue
  rest,               ///< the same for the time `pause`
  reset,              ///< the data connections are reset
  stop_reading_data,  ///< the data connections are no longer read
  wrong_weight,       ///< a bit of a weight flips in the update
  wrong_gradient,     ///< a bit of a gradient flips after the all-reduce
};

struct Fault {
  std::size_t rank = 0;
  std::uint64_t step = 0;  ///< counted from 0
  Place place = Place::forward;
  FaultKind kind = FaultKind::kill;
  /// The delay after backward, while the gradients of the first layers are in flight.
  std::chrono::microseconds into_reduce{0};
  std::chrono::seconds pause{0};  ///< for FaultKind::rest
  const char* transport = "auto";
  std::size_t machines = 1;
  std::uint64_t verify_every = 0;
};

/// The state of this process.
inline Here* here = nullptr;
inline Fault fault;

inline constexpr const char* failure_text = "the printer is out of paper";

/// The data connections of this process: all except those of the rendezvous, which use the chief's port.
inline std::vector<int> data_connections() {
  const auto port = [](int file, auto name_of) {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    if (name_of(file, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
    return address.sin_family == AF_INET ? int{ntohs(address.sin_port)} : 0;
  };
  const std::string chief = here->chief;
  const int its_port = std::stoi(chief.substr(chief.rfind(':') + 1));
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int file = std::stoi(entry.path().filename());
    const int mine = port(file, ::getsockname), theirs = port(file, ::getpeername);
    if (mine != 0 && theirs != 0 && mine != its_port && theirs != its_port) found.push_back(file);
  }
  return found;
}

/// Resets a connection for both ends.
inline void reset(int file) {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  ::connect(file, &none, sizeof none);
}

/// The sockets that are no longer read; see recv in faults.cpp.
inline std::array<std::atomic<bool>, 4096> is_deaf{};

inline void stop_reading(const std::vector<int>& files) {
  for (const int file : files) is_deaf.at(static_cast<std::size_t>(file)) = true;
}

inline std::atomic<bool> flips_bit{false};

inline void inject(FaultKind kind) {
  switch (kind) {
    case FaultKind::kill:
      ::kill(::getpid(), SIGKILL);
      break;
    case FaultKind::segv:
      ::raise(SIGSEGV);
      break;
    case FaultKind::abort:
      std::abort();
    case FaultKind::terminate:
      std::terminate();
    case FaultKind::exit:
      std::exit(0);
    case FaultKind::freeze:
      ::kill(::getpid(), SIGSTOP);
      break;
    case FaultKind::fail:
      throw std::runtime_error(failure_text);
    case FaultKind::hang:
      std::this_thread::sleep_for(std::chrono::hours(24));
      break;
    case FaultKind::rest:
      std::this_thread::sleep_for(fault.pause);
      break;
    case FaultKind::reset:
      for (const int file : data_connections()) reset(file);
      break;
    case FaultKind::stop_reading_data:
      stop_reading(data_connections());
      break;
    case FaultKind::wrong_weight:
    case FaultKind::wrong_gradient:
      flips_bit = true;
      break;
  }
}

/// `value`, unless it is 0, with the highest bit of its mantissa flipped if a fault asks for that.
inline float perhaps_flipped(float value, FaultKind kind) {
  if (fault.kind != kind || value == 0 || !flips_bit.exchange(false)) return value;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ (1U << 22));
}

/// Called at each place of the training.
inline void fault_point(Place place, std::uint64_t step) {
  if (here == nullptr || here->rank != fault.rank || step != fault.step) return;
  if (place == fault.place && here->begin_fault()) inject(fault.kind);
  if (place == Place::backward && fault.place == Place::reduce)
    std::thread([] {
      std::this_thread::sleep_for(fault.into_reduce);
      if (here->begin_fault()) inject(fault.kind);
    }).detach();
}

/// y = x.
struct TrapOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  constexpr double flops() const { return 0; }
  bool operator==(const TrapOp&) const = default;
};
struct Trap {
  static constexpr std::string_view name = "trap";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr std::array<ls::Parameter, 0> parameters(ls::Shape) { return {}; }
  static constexpr TrapOp op(ls::Shape in) { return {in}; }
};

/// w -= 0.01 g.
struct Descent {
  static constexpr std::string_view name = "descent";
  std::size_t slot_count() const { return 0; }
  std::string_view slot_name(std::size_t) const { return ""; }
  double learning_rate(std::uint64_t) const { return 0.01; }
  struct Op {
    double rate;
    std::uint64_t step;
  };
  Op op(double rate, std::uint64_t step) const { return {rate, step - 1}; }
};

}  // namespace distributed

namespace lockstep {

template <class T>
struct Kernel<distributed::TrapOp, Reference<T>> : KernelTraits {
  static void forward(const distributed::TrapOp& op, const Io<Reference<T>>& io) {
    if (io.step.training) distributed::fault_point(distributed::Place::forward, io.step.step);
    std::copy_n(io.x[0], io.step.count * op.in.size(), io.y);
  }
  static void backward(const distributed::TrapOp& op, const Io<Reference<T>>& io) {
    distributed::fault_point(distributed::Place::backward, io.step.step);
    if (io.dx[0] != nullptr) std::copy_n(io.dy, io.step.count * op.in.size(), io.dx[0]);
  }
};

template <class T>
struct Kernel<distributed::Descent::Op, Reference<T>> {
  static void update(const distributed::Descent::Op& op, const UpdateIo<Reference<T>>& io) {
    distributed::fault_point(distributed::Place::optimizer, op.step);
    for (std::size_t i = 0; i < io.size; ++i) {
      const T g = distributed::perhaps_flipped(io.g[i], distributed::FaultKind::wrong_gradient);
      io.w[i] = distributed::perhaps_flipped(io.w[i] - T(op.rate) * g,
                                             distributed::FaultKind::wrong_weight);
    }
  }
};

}  // namespace lockstep

namespace distributed {

/// The gradients, 270 kB, are large enough for a fault while they are in flight. Backward of a layer
/// without a weight before it is not called.
struct Net : ls::Sequential<ls::Input<2>, ls::Dense<256>, Trap, ls::ReLU, ls::Dense<256>, ls::ReLU,
                            ls::Dense<3>> {};

inline constexpr std::size_t steps_of_an_epoch = 4;
inline constexpr ls::SparseCategoricalCrossentropy crossentropy{.from_logits = true};

/// Trains and evaluates for longer than the job lasts.
inline void train_on(Here& own, const Fault& plan, std::size_t replicas, int epochs = 1'000'000,
                     const ls::StallLimits& limits = {}) {
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::setenv("LOCKSTEP_TRANSPORT", plan.transport, 1);
  here = &own;
  fault = plan;
  ls::Model model{
      Net{},
      ls::MultiWorkerMirrored<ls::Reference<float>>{.replicas = replicas, .stall_limits = limits},
      crossentropy, Descent{}};
  const auto data = line::classes(96);
  const auto step = [&own] { return own.report.steps.load(); };
  ls::FitOptions options{.epochs = epochs,
                         .steps_per_epoch = steps_of_an_epoch,
                         .verify_every = plan.verify_every,
                         .progress = ls::ProgressStyle::none};
  options.callbacks = {ls::LambdaCallback{
      .on_train_batch_begin = [&](std::size_t,
                                  const ls::Logs&) { fault_point(Place::before_step, step()); },
      .on_train_batch_end =
          [&](std::size_t, const ls::Logs&) {
            fault_point(Place::after_step, step());
            ++own.report.steps;
          },
      // The epoch's last step was the one before.
      .on_test_batch_begin = [&](std::size_t,
                                 const ls::Logs&) { fault_point(Place::evaluation, step() - 1); },
  }};
  own.run_and_report(
      [&] { model.fit(data | ls::repeat() | ls::batch(32), data | ls::batch(48), options); });
}

struct Times {
  std::vector<milliseconds> to_report, to_end;

  void print(const char* what) const {
    print_times(what, to_report);
    print_times("  from the report to the end of the process", to_end);
  }
};

inline milliseconds between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration_cast<milliseconds>(b - a);
}

/// The cause without " (reset)": some workers see the chief's connection reset, others closed.
inline std::string cause(const Report& report) {
  const std::string how = report.how;
  return how.substr(0, how.find(" (reset)"));
}

/// All others must have reported `victim` in time and with the same message, and have exited.
inline void survivors_report(Processes& job, std::size_t victim, milliseconds promise,
                             Times& times) {
  const Report& guilty = job.report(victim);
  REQUIRE(guilty.fault_injected);
  const std::size_t first = victim == 0 ? 1 : 0;
  for (std::size_t r = 0; r < job.size(); ++r) {
    if (r == victim) continue;
    const Report& report = job.report(r);
    CAPTURE(r, report.what.text, job.report(first).what.text);
    REQUIRE(report.outcome == Outcome::peer_lost);
    CHECK(report.lost_rank == victim);
    CHECK(std::string(report.lost_address) == job.address(victim));
    CHECK(cause(report) == cause(job.report(first)));
    if (report.last_step) CHECK(*report.last_step <= report.steps);
    times.to_report.push_back(between(guilty.fault_at, report.reported_at));
    CHECK(times.to_report.back() <= 3 * promise);
    CHECK(job.end(r).exited);
    CHECK(job.end(r).status == 3);
    times.to_end.push_back(between(report.reported_at, job.end(r).at));
    CHECK(times.to_end.back() <= 5s);
  }
}

}  // namespace distributed
