/// Workers that all get little CPU time, or none for a while: no rank is blamed.
#include <sched.h>
#include <sys/resource.h>

#include <cstdio>
#include <stop_token>
#include <string>

#include "distributed/processes.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/strategies/job/shared_job.hpp"
#include "lockstep/strategies/multi_worker_mirrored.hpp"
#include "lockstep/strategies/planes/tcp_plane.hpp"
#include "unit/training/model_support.hpp"

using namespace distributed;

namespace {

/// A number in memory shared by the test and its children.
class Shared {
 public:
  Shared()
      : value_(static_cast<std::atomic<std::uint64_t>*>(::mmap(
            nullptr, sizeof *value_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    REQUIRE(static_cast<void*>(value_) != MAP_FAILED);
    ::new (value_) std::atomic<std::uint64_t>(0);
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { ::munmap(value_, sizeof *value_); }

  std::atomic<std::uint64_t>& operator*() const { return *value_; }

 private:
  std::atomic<std::uint64_t>* value_;
};

/// Trains until `enough` is set. Rank 0 then requests the stop, and all leave after the same step.
void train_until(Here& own, std::atomic<std::uint64_t>& enough) {
  ls::Model model{line::Classes{}, ls::MultiWorkerMirrored<ls::Reference<float>>{},
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::SGD{.learning_rate = 0.01}};
  std::stop_source source;
  ls::FitOptions options{.epochs = 1'000'000'000, .progress = ls::ProgressStyle::none};
  options.stop = source.get_token();
  options.callbacks = {ls::LambdaCallback{.on_train_batch_end = [&](std::size_t, const ls::Logs&) {
    ++own.report.steps;
    if (own.rank == 0 && enough != 0) source.request_stop();
  }}};
  model.fit(line::classes(96) | ls::batch(32), options);
}

std::uint64_t fewest_steps(Processes& job) {
  std::uint64_t fewest = job.report(0).steps;
  for (std::size_t rank = 1; rank < job.size(); ++rank)
    fewest = std::min<std::uint64_t>(fewest, job.report(rank).steps);
  return fewest;
}

/// All ranks must end on request, after the same step, without an error.
void all_go_on_to_the_end(Processes& job, std::atomic<std::uint64_t>& enough) {
  enough = 1;
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    CAPTURE(rank, job.report(rank).what.text);
    CHECK(job.report(rank).outcome == Outcome::done);
    CHECK(job.report(rank).steps == job.report(0).steps);
    CHECK(job.end(rank).status == 0);
  }
  CHECK(job.has_no_orphans());
}

/// Restricts the test to two cores, so that a larger machine is equally crowded.
bool stay_on_two_cores() {
  cpu_set_t allowed, chosen;
  CPU_ZERO(&chosen);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&chosen) < 2; ++core)
    if (CPU_ISSET(core, &allowed)) CPU_SET(core, &chosen);
  return ::sched_setaffinity(0, sizeof chosen, &chosen) == 0;
}

/// Child processes that spin.
class Busy {
 public:
  explicit Busy(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const pid_t child = ::fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const volatile bool on_two_cores = stay_on_two_cores();
        while (on_two_cores) {
        }
        ::_exit(1);
      }
      children_.push_back(child);
    }
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() { stop(); }

  void stop() {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    children_.clear();
  }

 private:
  std::vector<pid_t> children_;
};

/// LOCKSTEP_STARVED_SECONDS=1800 makes this a long test. Run the program directly then, because
/// ctest has a limit.
std::chrono::seconds starved_for() {
  const char* const given = std::getenv("LOCKSTEP_STARVED_SECONDS");
  return std::chrono::seconds(given ? std::stoul(given) : 15);
}

}  // namespace

TEST_CASE("workers starved by eight busy processes on two cores blame no rank", "[.slow]") {
  const auto time = starved_for();
  Shared enough;
  std::uint64_t steps = 0, most_between = 0;
  {
    Processes job(
        2,
        [&](Here& own) {
          if (!stay_on_two_cores() || ::setpriority(PRIO_PROCESS, 0, 19) != 0)
            throw ls::Error("the cores or the priority of the process cannot be set");
          train_until(own, *enough);
        },
        time + 60s);
    REQUIRE(job.until([&] { return fewest_steps(job) >= 5; }));
    const std::uint64_t before = fewest_steps(job);
    Busy busy(8);
    const auto began = Clock::now();
    std::uint64_t last = before;
    auto last_at = began;
    REQUIRE(job.until([&] {
      const auto now = Clock::now();
      if (const std::uint64_t at = fewest_steps(job); at != last) {
        most_between = std::max<std::uint64_t>(most_between,
                                               static_cast<std::uint64_t>((now - last_at) / 1ms));
        last = at;
        last_at = now;
      }
      return now - began >= time || job.has_ended(0) || job.has_ended(1);
    }));
    steps = fewest_steps(job) - before;
    busy.stop();
    all_go_on_to_the_end(job, *enough);
  }
  CHECK(steps > 0);
  std::printf("starved for %lld s: %llu steps, at most %llu ms between two\n",
              static_cast<long long>(time.count()), static_cast<unsigned long long>(steps),
              static_cast<unsigned long long>(most_between));
}

namespace {

/// Stops all workers of a job for `time`.
void stop_all_for(std::chrono::seconds time) {
  Shared enough;
  Processes job(4, [&](Here& own) { train_until(own, *enough); }, time + 60s);
  REQUIRE(job.until([&] { return fewest_steps(job) >= 5; }));
  for (std::size_t rank = 0; rank < job.size(); ++rank) job.signal(rank, SIGSTOP);
  std::this_thread::sleep_for(time);
  const std::uint64_t before = fewest_steps(job);
  for (std::size_t rank = 0; rank < job.size(); ++rank) job.signal(rank, SIGCONT);
  // As long as a wrong verdict would take.
  const auto woken = Clock::now();
  REQUIRE(job.until([&] {
    return job.has_ended(0) || (Clock::now() - woken > 3s && fewest_steps(job) > before + 20);
  }));
  all_go_on_to_the_end(job, *enough);
}

}  // namespace

TEST_CASE("when all workers are stopped for five seconds and continue, no rank is blamed") {
  stop_all_for(5s);
}

TEST_CASE("workers that exchange over TCP do not count the time for which all are stopped") {
  ::setenv("LOCKSTEP_TRANSPORT", "tcp", 1);
  stop_all_for(5s);
  ::unsetenv("LOCKSTEP_TRANSPORT");
}

TEST_CASE("when all workers are stopped for a minute and continue, no rank is blamed", "[.slow]") {
  stop_all_for(60s);
}

TEST_CASE("256 workers on one machine are connected over TCP", "[.slow]") {
  Processes job(
      256,
      [](Here& own) {
        const ls::Environment environment = ls::process_environment();
        auto cluster = ls::resolve_cluster(environment);
        cluster.timeouts.silence = 120s;  // two cores for 96 processes
        ls::detail::JobSession session(cluster, {}, [&] {
          return ls::RendezvousOptions{.cluster = cluster,
                                       .secret = ls::read_secret(environment, cluster)};
        });
        ls::Rendezvous& rendezvous = session.rendezvous();
        cluster.transport = ls::Transport::tcp;
        const std::vector<ls::detail::WorkerPlace> places(
            rendezvous.size(), ls::detail::WorkerPlace::here(1, 1, false));
        bool peers_know = false;
        rendezvous.barrier("all are here", 120s);
        const auto began = Clock::now();
        ls::JobGroups groups = ls::Tcp::connect({.where = cluster,
                                                 .session = session,
                                                 .places = places,
                                                 .timeout = 120s,
                                                 .start_timeout = 120s,
                                                 .peers_know = peers_know});
        const double connected = std::chrono::duration<double>(Clock::now() - began).count();
        float sum = 1;
        groups.layers.all_reduce(&sum, 1);
        own.give({connected, sum});
        rendezvous.barrier("all are connected", 120s);
        session.leave();
      },
      300s);
  REQUIRE(job.all_end());
  CAPTURE(job.logs());
  double slowest = 0;
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    CAPTURE(rank, job.report(rank).what.text);
    REQUIRE(job.report(rank).outcome == Outcome::done);
    slowest = std::max(slowest, job.numbers(rank).at(0));
    CHECK(job.numbers(rank).at(1) == 256);
  }
  std::printf("256 workers: connected after %.1f s\n", slowest);
}
