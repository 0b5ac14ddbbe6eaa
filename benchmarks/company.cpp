/// \file
/// The tutorials' CNN next to other processes that compute: how long a step takes while `--busy`
/// processes spin on the same cores, compared with the same step on the idle machine.
///
/// Rows are pairs of a way to train and a wait policy: one thread, two OpenMP threads, two replicas
/// and two workers of one thread each, with LOCKSTEP_WAIT_POLICY active, auto and passive, and two
/// threads with OMP_WAIT_POLICY=passive. Each turn of a row is a new process (for workers, two),
/// since OpenMP reads its variables when it is loaded; the first `--warmup` steps do not count. All
/// rows run in turn in each round, first idle, then with the busy processes. Quantiles are over the
/// steps of all rounds. `ratio` is the busy 90th percentile over the least idle median of that way.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/cluster.hpp>
#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>

#include "measure.hpp"
#include "processes.hpp"
#include "run_child.hpp"
#include "run_job.hpp"
#include "seed_step.hpp"

namespace ls = lockstep;

namespace {

using lockstep_run::LocalJob;
using measure::Clock, measure::Timed;

struct Options : measure::Turns {
  std::size_t busy = 1;
  std::string only, turn;
};

/// One row: the way to train, and the environment of its processes.
struct Row {
  std::string way, waits;
  std::vector<std::pair<std::string, std::string>> variables{};
  std::vector<double> idle{}, busy{};

  std::string name() const { return way + ", " + waits; }
};

std::vector<Row> rows() {
  const std::string policy = "LOCKSTEP_WAIT_POLICY";
  std::vector<Row> all = {{"one thread", "active", {{policy, "active"}}}};
  for (const char* way : {"two threads", "two replicas", "two workers"})
    for (const char* waits : {"active", "auto", "passive"})
      all.push_back({way, waits, {{policy, waits}}});
  all.insert(all.begin() + 1,
             {"two threads", "OMP passive", {{policy, "active"}, {"OMP_WAIT_POLICY", "passive"}}});
  return all;
}

/// Trains in the given way and prints the times of the steps.
template <class S>
void train(const S& strategy, const Options& o) {
  const Timed<S> timed{strategy};
  auto model = measure::model_on(timed);
  std::string line = "steps";
  for (const measure::Step& step : fit(model, *timed.recorder, measure::images(10'000), o.batch, o))
    line += fmt::format(" {:.1f}", step.us);
  fmt::print("{}\n", line);
}
void run_turn(const Options& o) {
  if (o.turn == "one thread") return train(ls::OneDevice<ls::Cpu>{.on = {.threads = 1}}, o);
  if (o.turn == "two threads") return train(ls::OneDevice<ls::Cpu>{.on = {.threads = 2}}, o);
  if (o.turn == "two replicas")
    return train(ls::Mirrored<ls::Cpu>{.replicas = 2, .on = {.threads = 1}}, o);
  train(ls::MultiWorkerMirrored<ls::Cpu>{.on = {.threads = 1}}, o);
}

/// Processes that compute until the object's end.
class BusyProcesses {
 public:
  explicit BusyProcesses(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const pid_t child = fork();
      if (child < 0) measure::fail("cannot start a process");
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile unsigned n = 0;;) n = n + 1;
      }
      children_.push_back(child);
    }
  }
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;
  ~BusyProcesses() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }

 private:
  std::vector<pid_t> children_;
};

/// The step times of one turn, in new processes.
std::vector<double> turn_of(const Row& row, const Options& o) {
  const std::size_t workers = row.way == "two workers" ? 2 : 1;
  const LocalJob job(workers);
  const measure::TemporaryFolder folder("company");
  const auto log_of = [&](std::size_t rank) {
    return fmt::format("{}/{}.log", folder.path(), rank);
  };
  std::vector<std::string> unset = LocalJob::foreign_variables();
  unset.insert(unset.end(), {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"});
  lockstep_run::Command command{
      "/proc/self/exe",
      {"company", "--turn", row.way, "--batch", std::to_string(o.batch), "--steps",
       std::to_string(o.steps), "--warmup", std::to_string(o.warmup)},
      {},
      unset};
  std::vector<lockstep_run::Child> children;
  const Clock::time_point begin = Clock::now();
  for (std::size_t rank = 0; rank < workers; ++rank) {
    command.variables = row.variables;
    if (workers > 1)
      for (auto& variable : job.variables(rank)) command.variables.push_back(variable);
    children.emplace_back(rank, command, log_of(rank));
  }
  std::vector<double> steps;
  for (auto& child : children) {
    while (!child.has_ended()) {
      if (Clock::now() - begin > std::chrono::minutes(2)) child.send(SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    child.collect();
  }
  for (std::size_t rank = 0; rank < workers; ++rank) {
    std::ifstream file(log_of(rank));
    std::string word;
    while (file >> word && word != "steps") {
    }
    double us = 0;
    while (file >> us) steps.push_back(us);
    if (children[rank].code() != 0 || steps.empty())
      throw std::runtime_error(fmt::format("a turn of {} failed", row.name()));
  }
  return steps;
}

double quantile(std::vector<double> v, double q) {
  const auto at = v.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(v.size() - 1));
  std::nth_element(v.begin(), at, v.end());
  return *at;
}

void print(const std::vector<Row>& all) {
  std::map<std::string, double> idle;
  for (const Row& row : all) {
    const double median = quantile(row.idle, 0.5);
    const auto [at, is_new] = idle.emplace(row.way, median);
    if (!is_new) at->second = std::min(at->second, median);
  }
  fmt::print("{:26} {:>8} {:>8} {:>9} {:>8} {:>8} {:>8} {:>6}\n", "us", "idle p50", "idle p90",
             "busy mean", "busy p50", "busy p90", "busy p99", "ratio");
  for (const Row& row : all) {
    double sum = 0;
    for (const double us : row.busy) sum += us;
    const double p90 = quantile(row.busy, 0.9);
    fmt::print("{:26} {:8.0f} {:8.0f} {:9.0f} {:8.0f} {:8.0f} {:8.0f} {:6.1f}\n", row.name(),
               quantile(row.idle, 0.5), quantile(row.idle, 0.9),
               sum / static_cast<double>(row.busy.size()), quantile(row.busy, 0.5), p90,
               quantile(row.busy, 0.99), p90 / idle.at(row.way));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  o.rounds = 3;
  o.steps = 300;
  o.warmup = 150;
  CLI::App app("The CNN next to other processes that compute", "company");
  o.add_to(app);
  app.add_option("--busy", o.busy, "processes that compute at the same time")
      ->check(CLI::Range(0, 64));
  app.add_option("--only", o.only, "only rows whose name contains this");
  app.add_option("--turn", o.turn)->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!o.turn.empty()) {
      run_turn(o);
      return 0;
    }
    fmt::print("{}, {} busy; {} rounds of {} steps\n", measure::machine(), o.busy, o.rounds,
               o.steps);
    std::vector<Row> all = rows();
    std::erase_if(all,
                  [&](const Row& row) { return row.name().find(o.only) == std::string::npos; });
    const auto add = [&](Row& row, std::vector<double> Row::* to) {
      const std::vector<double> steps = turn_of(row, o);
      (row.*to).insert((row.*to).end(), steps.begin(), steps.end());
    };
    const measure::Neighbours neighbours;
    for (std::size_t round = 0; round < o.rounds; ++round) {
      for (Row& row : all) add(row, &Row::idle);
      const BusyProcesses busy(o.busy);
      for (Row& row : all) add(row, &Row::busy);
    }
    print(all);
    fmt::print("other processes used {:.0f} % of the cores\n", neighbours.percent());
  } catch (const std::exception& e) {
    std::fputs(fmt::format("company: {}\n", e.what()).c_str(), stderr);
    return 1;
  }
}
