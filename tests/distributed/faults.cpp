/// A process of a job dies, freezes, exits or fails: the reports of the others and their times, over
/// shared memory and over TCP.
/// Prints the times from the fault to the reports. The asserted limits are three times the
/// guaranteed ones.
#include "distributed/faults.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <random>

using namespace distributed;

namespace {

/// Whether nothing shall be read from `file` any more, although it is open and its peer lives.
bool refuses(int file) {
  if (file < 0 || static_cast<std::size_t>(file) >= is_deaf.size() ||
      !is_deaf[static_cast<std::size_t>(file)])
    return false;
  std::this_thread::sleep_for(1ms);  // poll(2) goes on reporting its input
  errno = EAGAIN;
  return true;
}

}  // namespace

// Instead of those of the C library, in all of this program.
extern "C" ssize_t recv(int file, void* p, size_t n, int flags) {
  if (refuses(file)) return -1;
  return ::syscall(SYS_recvfrom, file, p, n, flags, nullptr, nullptr);
}
extern "C" ssize_t recvmsg(int file, msghdr* message, int flags) {
  if (refuses(file)) return -1;
  return ::syscall(SYS_recvmsg, file, message, flags);
}

namespace {

constexpr std::size_t workers = 4;
constexpr milliseconds dead{1000}, silent{3000};  // guaranteed limits

void run_with(const Fault& plan, milliseconds promise, Times& times, std::size_t replicas = 1) {
  CAPTURE(plan.rank, plan.step, to_string(plan.place), replicas);
  Processes job(workers, [&](Here& own) { train_on(own, plan, replicas); }, 60s, plan.machines);
  if (plan.kind == FaultKind::freeze) {
    REQUIRE(job.all_end({plan.rank}));
    job.signal(plan.rank, SIGCONT);
  }
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  survivors_report(job, plan.rank, promise, times);
  const End& end = job.end(plan.rank);
  const Report& report = job.report(plan.rank);
  CAPTURE(report.what.text, end.status);
  switch (plan.kind) {
    case FaultKind::kill:
      CHECK((!end.exited && end.status == SIGKILL));
      break;
    case FaultKind::segv:
      CHECK((!end.exited && end.status == SIGSEGV));
      break;
    case FaultKind::abort:
    case FaultKind::terminate:
      CHECK((!end.exited && end.status == SIGABRT));
      break;
    case FaultKind::exit:
      CHECK((end.exited && end.status == 0));
      break;
    case FaultKind::freeze:  // it learns about its loss
      CHECK(report.outcome == Outcome::peer_lost);
      CHECK(end.status == 3);
      break;
    case FaultKind::fail:
      CHECK(std::string(report.what) == failure_text);
      break;
    case FaultKind::hang:
    case FaultKind::rest:
    case FaultKind::reset:
    case FaultKind::stop_reading_data:
    case FaultKind::wrong_weight:
    case FaultKind::wrong_gradient:
      FAIL("this fault does not end the process");
  }
  if (plan.kind == FaultKind::fail)
    CHECK(std::string(job.report(plan.rank == 0 ? 1 : 0).how).find(failure_text) !=
          std::string::npos);
  CHECK(job.has_no_orphans());
}

/// Both transports, in turn.
const char* transport_of(std::size_t i) { return i % 2 == 0 ? "shared_memory" : "tcp"; }

/// A step in which training reaches `place`.
std::uint64_t step_for(Place place, std::size_t i) {
  return place == Place::evaluation ? steps_of_an_epoch - 1 : i % 6;
}

}  // namespace

TEST_CASE("every survivor of a killed worker names it within a second, wherever it died") {
  Times times;
  std::size_t i = 0;
  for (std::size_t rank = 0; rank < workers; ++rank)
    for (const Place place : places) {
      const std::chrono::microseconds into_reduce(rank * 400);
      run_with(
          {rank, step_for(place, i), place, FaultKind::kill, into_reduce, 0s, transport_of(i / 2)},
          dead, times, 1 + i % 2);
      ++i;
    }
  times.print("killed");
}

TEST_CASE(
    "every survivor of a frozen worker names it within three seconds, and it learns of it too") {
  Times times;
  std::size_t i = 0;
  for (const Place place : {Place::reduce, Place::forward, Place::after_step, Place::optimizer}) {
    run_with({i, step_for(place, i), place, FaultKind::freeze, 0us, 0s, transport_of(i)}, silent,
             times);
    ++i;
  }
  times.print("frozen");
}

TEST_CASE("on two machines every survivor names a worker that is killed or frozen on either") {
  Times times;
  run_with({3, 2, Place::reduce, FaultKind::kill, 300us, 0s, "auto", 2}, dead, times);
  run_with({0, 3, Place::forward, FaultKind::kill, 0us, 0s, "auto", 2}, dead, times);
  run_with({2, 2, Place::reduce, FaultKind::freeze, 0us, 0s, "auto", 2}, silent, times);
  times.print("killed or frozen on one of two machines");
}

TEST_CASE("every survivor names the worker that aborts, crashes or exits") {
  Times times;
  run_with({3, 2, Place::forward, FaultKind::abort}, dead, times);
  run_with({1, 3, Place::after_step, FaultKind::terminate}, dead, times);
  run_with({2, 5, Place::optimizer, FaultKind::segv}, dead, times);
  run_with({0, 4, Place::after_step, FaultKind::exit}, dead, times);
  run_with({2, 4, Place::before_step, FaultKind::exit}, dead, times);
  times.print("aborted, crashed, exited");
}

TEST_CASE("an exception in one worker is thrown there, and its message reaches all others") {
  Times times;
  std::size_t rank = 0;
  for (const Place place :
       {Place::after_step, Place::forward, Place::backward, Place::optimizer, Place::evaluation}) {
    run_with({rank++ % workers, step_for(place, 2), place, FaultKind::fail}, dead, times, 2);
  }
  times.print("threw");
}

TEST_CASE(
    "when two or three of four workers are killed at once, every survivor names one of them") {
  constexpr milliseconds promise{2000};
  Times times;
  for (const std::vector<std::size_t>& victims : std::vector<std::vector<std::size_t>>{
           {1, 2}, {3, 1}, {0, 2}, {3, 0}, {1, 2, 3}, {0, 1, 2}, {2, 3, 0}}) {
    CAPTURE(victims);
    const auto is_victim = [&](std::size_t rank) {
      return std::find(victims.begin(), victims.end(), rank) != victims.end();
    };
    const Fault none{.rank = workers, .transport = transport_of(victims.front())};
    Processes job(workers, [&](Here& own) { train_on(own, none, 1 + victims.size() % 2); });
    REQUIRE(job.until([&] {
      const bool all_train = job.report(0).steps > 2 && job.report(1).steps > 2 &&
                             job.report(2).steps > 2 && job.report(3).steps > 2;
      return all_train || job.has_ended(0);
    }));
    const auto began = Clock::now();
    for (const std::size_t rank : victims) job.signal(rank, SIGKILL);
    REQUIRE(job.all_end());
    CAPTURE(job.logs());
    for (std::size_t r = 0; r < workers; ++r) {
      if (is_victim(r)) continue;
      const Report& report = job.report(r);
      CAPTURE(r, report.what.text);
      REQUIRE(report.outcome == Outcome::peer_lost);
      CHECK(is_victim(report.lost_rank));
      CHECK(std::string(report.lost_address) == job.address(report.lost_rank));
      times.to_report.push_back(between(began, report.reported_at));
      CHECK(times.to_report.back() <= 3 * promise);
      CHECK((job.end(r).exited && job.end(r).status == 3));
      times.to_end.push_back(between(report.reported_at, job.end(r).at));
      CHECK(times.to_end.back() <= 5s);
    }
    CHECK(job.has_no_orphans());
  }
  times.print("two or three killed at once");
}

TEST_CASE("when all workers of a machine freeze or die, the others name one of them") {
  for (const int signal : {SIGSTOP, SIGKILL}) {
    CAPTURE(signal);
    const milliseconds promise = signal == SIGSTOP ? silent : dead;
    const Fault none{.rank = workers, .transport = "auto", .machines = 2};
    Processes job(workers, [&](Here& own) { train_on(own, none, 1); }, 60s, 2);
    REQUIRE(job.until([&] {
      bool all_train = true;
      for (std::size_t r = 0; r < workers; ++r) all_train &= job.report(r).steps > 2;
      return all_train || job.has_ended(0);
    }));
    const auto began = Clock::now();
    for (const std::size_t rank : {2u, 3u}) job.signal(rank, signal);
    REQUIRE(job.all_end({2, 3}));
    CAPTURE(job.logs());
    for (const std::size_t rank : {0u, 1u}) {
      const Report& report = job.report(rank);
      CAPTURE(rank, report.what.text);
      REQUIRE(report.outcome == Outcome::peer_lost);
      CHECK(report.lost_rank >= 2);
      CHECK(std::string(report.lost_address) == job.address(report.lost_rank));
      CHECK(between(began, report.reported_at) <= 3 * promise);
    }
    for (const std::size_t rank : {2u, 3u}) job.signal(rank, SIGCONT);
    REQUIRE(job.all_end());
    if (signal == SIGSTOP)
      for (const std::size_t rank : {2u, 3u}) CHECK(job.report(rank).outcome == Outcome::peer_lost);
  }
}

TEST_CASE("a bit that flips in one process is found at the next comparison, and its rank named") {
  for (const FaultKind kind : {FaultKind::wrong_weight, FaultKind::wrong_gradient}) {
    CAPTURE(static_cast<int>(kind));
    Fault plan{kind == FaultKind::wrong_weight ? 0u : 2u, 4, Place::optimizer, kind};
    plan.verify_every = 3;
    Processes job(workers, [&](Here& own) { train_on(own, plan, 1); });
    REQUIRE(job.all_end());
    for (std::size_t rank = 0; rank < workers; ++rank) {
      const std::string what = job.report(rank).what;
      CAPTURE(rank, what);
      CHECK(what.find(fmt::format("after step 6, replica {0} (rank {0}) holds a different ",
                                  plan.rank)) != std::string::npos);
      CHECK(what.find(" than 3 of the 4 replicas") != std::string::npos);
    }
  }
}

TEST_CASE("a worker that is frozen for a second is not lost") {
  for (int attempt = 0; attempt < 5; ++attempt) {
    Processes job(
        workers, [](Here& own) { train_on(own, {2, 5, Place::reduce, FaultKind::freeze}, 1, 20); });
    REQUIRE(job.until([&] { return job.report(2).fault_injected.load(); }));
    std::this_thread::sleep_for(1s);
    job.signal(2, SIGCONT);
    if (Clock::now() - job.report(2).fault_at > 1300ms) continue;  // this test itself woke up late
    REQUIRE(job.all_end());
    for (std::size_t r = 0; r < workers; ++r) {
      CAPTURE(r, job.report(r).what.text);
      CHECK(job.report(r).outcome == Outcome::done);
      CHECK(job.report(r).steps == 20 * steps_of_an_epoch);
    }
    return;
  }
  SKIP("the machine is too busy to end a freeze after a second");
}

TEST_CASE("every survivor names the killed worker, 200 times at any moment on each transport",
          "[.slow]") {
  Times times;
  std::mt19937 random(20);
  for (std::size_t kill = 0; kill < 400; ++kill) {
    const std::size_t victim = random() % workers, replicas = 1 + random() % 2;
    const Fault none{.rank = workers, .transport = transport_of(kill)};
    CAPTURE(kill, victim, replicas, none.transport);
    Processes job(workers, [&](Here& own) { train_on(own, none, replicas); });
    REQUIRE(job.until([&] { return job.report(victim).steps > 0; }));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 100'000));
    job.report(victim).fault_at = Clock::now();
    job.report(victim).fault_injected = true;
    job.signal(victim, SIGKILL);
    REQUIRE(job.all_end());
    CAPTURE(job.logs());
    survivors_report(job, victim, dead, times);
    CHECK(job.has_no_orphans());
  }
  times.print("killed at any moment");
}

TEST_CASE("every survivor names the frozen worker, 20 times at any moment on each transport",
          "[.slow]") {
  Times times;
  std::mt19937 random(21);
  for (std::size_t freeze = 0; freeze < 40; ++freeze) {
    const std::size_t victim = random() % workers;
    const Fault none{.rank = workers, .transport = transport_of(freeze)};
    CAPTURE(freeze, victim, none.transport);
    Processes job(workers, [&](Here& own) { train_on(own, none, 1); });
    REQUIRE(job.until([&] { return job.report(victim).steps > 0; }));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 100'000));
    job.report(victim).fault_at = Clock::now();
    job.report(victim).fault_injected = true;
    job.signal(victim, SIGSTOP);
    REQUIRE(job.all_end({victim}));
    job.signal(victim, SIGCONT);
    REQUIRE(job.all_end());
    CAPTURE(job.logs());
    survivors_report(job, victim, silent, times);
    CHECK(job.report(victim).outcome == Outcome::peer_lost);  // it learns about its loss
  }
  times.print("frozen at any moment");
}
