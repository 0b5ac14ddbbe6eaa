/// \file
/// The tutorials' CNN on `MultiWorkerMirrored<Cpu>`: two processes of one thread each on this
/// machine, joined as lockstep-run joins them. Measures their speed-up, the phases of a step
/// (seed_step.hpp), the cost of heartbeats, and the time from a job's start to its first step.
///
/// All configurations run in turn in each round, inside `fit`; a round's first steps do not count.
/// Rows, with the model's batch B (`--batch`), over the steps of all processes that train:
///
/// - `one device`: OneDevice, one thread, batch B, in one process while the other sleeps: T1.
/// - `strong 2`, `weak 2`: MultiWorkerMirrored, global batch B and 2 B. `speed-up` is T1/T and 2
///   T1/T.
/// - `split 2`, `apart 2`: an independent one-device model in each process, batch B/2 and B: the
///   machine's own limit on strong and weak scaling.
///
/// `--workers N` starts N processes instead; then there are no bounds.
///
/// Then the terms of the bounds: P is the optimizer's pass over as many parameters, R the
/// all-reduce of as many bytes, in place, by a SharedMemoryGroup of the two processes, which have
/// just written them and start together, from the first start to the last end. Both are measured
/// alone, in turn with the steps.
///
/// `heartbeats` is the CPU time of the rendezvous' threads as a share of the time of one long
/// `fit`, including the agreement at its start. `start-up` is the time from before a job's first
/// process is started to the end of the last process' first step, with global batch B, for jobs of
/// one and of four workers in turn.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/cluster.hpp>
#include <lockstep/collectives/algorithms/spin.hpp>
#include <lockstep/collectives/shared_memory/shared_memory_group.hpp>
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
using measure::Clock, measure::OneDevice, measure::Samples, measure::Step, measure::Timed;
using MultiWorker = ls::MultiWorkerMirrored<ls::Cpu>;

struct Options : measure::Turns {
  std::size_t workers = 2, beat_steps = 2000, starts = 5;
  bool bound = false, first_step = false;
};

constexpr std::size_t most_workers = 8;

/// State in shared memory.
struct Shared {
  explicit Shared(std::size_t workers) : line(workers), start(workers) {}

  measure::SleepingLine line;
  measure::StartLine start;
  std::array<Clock::time_point, most_workers> begin, end;
  std::array<std::array<Step, Options::max_steps>, most_workers> steps;
  std::array<std::size_t, most_workers> step_count{};
  std::array<double, most_workers> beat_share{};
};

/// The environment that lockstep-run gives a worker.
ls::Environment environment_of(const LocalJob& job, std::size_t rank) {
  return [variables = job.variables(rank)](const std::string& name) -> std::optional<std::string> {
    for (const auto& [key, value] : variables)
      if (key == name) return value;
    return std::nullopt;
  };
}

/// P and R.
class Terms {
 public:
  Terms(const std::string& folder, Shared& shared, std::size_t rank, std::size_t workers)
      : shared_(shared), rank_(rank), workers_(workers), store_(folder) {}

  Samples update, exchange;  ///< of rank 0

  void measure() {
    if (rank_ == 0)
      for (int i = 0; i < samples; ++i) one_.add_to(update);
    for (int i = 0; i < samples; ++i) {
      std::fill_n(gradients_, count, 1.0f);  // written by this core, as after backward
      std::array<double, 6> sums{};
      shared_.line.wait();
      shared_.start.wait();
      shared_.begin[rank_] = Clock::now();
      group_.all_reduce(gradients_, count, sums.data(), sums.size());
      shared_.end[rank_] = Clock::now();
      shared_.line.wait();
      if (rank_ == 0)
        exchange.add(measure::micros(
            *std::max_element(shared_.end.data(), shared_.end.data() + workers_) -
            *std::min_element(shared_.begin.data(), shared_.begin.data() + workers_)));
      shared_.line.wait();
    }
  }

 private:
  static constexpr int samples = 40;

  Shared& shared_;
  std::size_t rank_, workers_;
  measure::FolderStore store_;
  ls::SharedMemoryGroup group_{
      measure::open_memory(store_, rank_, workers_),
      rank_,
      workers_,
      {.spins = workers_ <= std::thread::hardware_concurrency() ? ls::detail::short_spins : 0}};
  static constexpr std::size_t count = measure::Cnn::parameter_count;
  float* gradients_ =
      reinterpret_cast<float*>(group_.exchange_allocator()->allocate(count * sizeof(float)));
  measure::UpdateAlone one_;
};

/// CPU time of the rendezvous' threads: control and log.
class ControlThreads {
 public:
  /// Outside of `fit`, they are the only threads that block signals.
  ControlThreads() {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream file(entry.path() / "status");
      std::string word;
      while (file >> word && word != "SigBlk:") {
      }
      std::uint64_t blocked = 0;
      file >> std::hex >> blocked;
      if ((blocked >> (SIGTERM - 1) & 1) == 0) continue;
      const unsigned thread = static_cast<unsigned>(std::stoul(entry.path().filename().string()));
      clocks_.push_back(static_cast<clockid_t>(~thread << 3 | per_thread));
    }
    if (clocks_.size() != 2)
      throw std::runtime_error(
          fmt::format("{} threads block signals; expected two", clocks_.size()));
  }
  double micros() const {
    double sum = 0;
    for (const clockid_t clock : clocks_) {
      timespec t{};
      if (clock_gettime(clock, &t) != 0) measure::fail("the control threads' clocks");
      sum += static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
    }
    return sum;
  }

 private:
  /// Bits of Linux' CPU clock of a thread; pthread_getcpuclockid needs a pthread_t, which another
  /// thread's owner keeps.
  static constexpr unsigned per_thread = 6;

  std::vector<clockid_t> clocks_;
};

/// Body of each process.
class Worker {
 public:
  Worker(const Options& options, const LocalJob& job, const std::string& folder, Shared& shared,
         std::size_t rank)
      : o_(options),
        shared_(shared),
        rank_(rank),
        terms_(folder, shared, rank, options.workers),
        joined_{{.on = {.threads = 1}, .environment = environment_of(job, rank)}} {}

  void run() {
    const std::size_t n = o_.workers, part = std::max<std::size_t>(o_.batch / n, 1);
    const auto all = static_cast<double>(n);
    const auto add = [this](const std::string& name, double devices, auto& model,
                            measure::Recorder& recorder, std::size_t batch, bool takes_part) {
      const auto turn = [this, &model, &recorder, batch, takes_part] {
        return together([&] {
          return takes_part ? fit(model, recorder, data_, batch, o_) : std::vector<Step>{};
        });
      };
      table_.rows.push_back({name, devices, turn});
    };
    measure::Recorder& alone = *alone_.recorder;
    measure::Recorder& joined = *joined_.recorder;
    add("one device", 1, one_, alone, o_.batch, rank_ == 0);
    add(fmt::format("strong {}", n), 1, two_, joined, o_.batch, true);
    add(fmt::format("weak {}", n), all, two_, joined, n * o_.batch, true);
    add(fmt::format("split {}", n), 1, one_, alone, part, true);
    add(fmt::format("apart {}", n), all, one_, alone, o_.batch, true);
    for (std::size_t round = 0; round < o_.rounds; ++round) {
      table_.turn();
      terms_.measure();
    }
    beat();
    if (rank_ == 0) print();
  }

 private:
  /// Runs `part` in all processes, which start together; rank 0 gets the steps of all.
  template <class Part>
  std::vector<Step> together(const Part& part) {
    shared_.line.wait();
    const std::vector<Step> mine = part();
    std::copy(mine.begin(), mine.end(), shared_.steps[rank_].begin());
    shared_.step_count[rank_] = mine.size();
    shared_.line.wait();
    std::vector<Step> all;
    for (std::size_t r = 0; r < o_.workers && rank_ == 0; ++r) {
      const auto* const first = shared_.steps[r].data();
      all.insert(all.end(), first, first + shared_.step_count[r]);
    }
    return all;
  }

  void beat() {
    measure::Turns turns = o_;
    turns.steps = o_.beat_steps;
    shared_.line.wait();
    const double cpu_before = control_.micros();
    const Clock::time_point begin = Clock::now();
    fit(two_, *joined_.recorder, data_, o_.batch, turns);
    shared_.beat_share[rank_] =
        (control_.micros() - cpu_before) / measure::micros(Clock::now() - begin);
    shared_.line.wait();
  }

  void print() const {
    table_.print();
    if (o_.workers == 2)
      measure::print_bounds("workers", table_, terms_.update, terms_.exchange, 1.3);
    else
      fmt::print("P {:.1f}, R {:.1f} us\n", terms_.update.median(), terms_.exchange.median());
    constexpr double most = 0.005;
    const auto& share = shared_.beat_share;
    fmt::print("heartbeats: {:.3f} % and {:.3f} % of a step, at most {:.1f} %: {}\n",
               100 * share[0], 100 * share[1], 100 * most,
               measure::verdict(share[0] <= most && share[1] <= most));
  }

  const Options& o_;
  Shared& shared_;
  std::size_t rank_;
  Terms terms_;
  measure::Images data_ = measure::images();
  Timed<OneDevice> alone_{measure::one_device()};
  measure::ModelOn<OneDevice> one_ = measure::model_on(alone_);
  Timed<MultiWorker> joined_;
  measure::ModelOn<MultiWorker> two_ = measure::model_on(joined_);
  ControlThreads control_;
  measure::Table table_;
};

/// A worker of the job that the environment describes; prints when its first step has ended.
void run_first_step(const Options& o) {
  const Timed<MultiWorker> strategy{{.on = {.threads = 1}}};
  auto model = measure::model_on(strategy);
  model.fit(measure::images(o.batch) | ls::batch(o.batch),
            {.epochs = 1, .steps_per_epoch = 1, .progress = ls::ProgressStyle::none});
  fmt::print("ended {}\n", Clock::now().time_since_epoch().count());
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Milliseconds from the start of a job to the end of its last worker's first step.
double time_start(std::size_t workers, const Options& o) {
  const LocalJob job(workers);
  const measure::TemporaryFolder folder("workers");
  const auto log_of = [&](std::size_t rank) {
    return fmt::format("{}/{}.log", folder.path(), rank);
  };
  lockstep_run::Command command{"/proc/self/exe",
                                {"workers", "--first-step", "--batch", std::to_string(o.batch)},
                                {},
                                LocalJob::foreign_variables()};
  std::vector<lockstep_run::Child> children;
  const Clock::time_point begin = Clock::now();
  for (std::size_t rank = 0; rank < workers; ++rank) {
    command.variables = job.variables(rank);
    children.emplace_back(rank, command, log_of(rank));
  }
  for (auto& child : children) {
    while (!child.has_ended()) {
      if (Clock::now() - begin > std::chrono::minutes(1)) child.send(SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    child.collect();
  }
  Clock::duration last{};
  for (std::size_t rank = 0; rank < workers; ++rank) {
    const std::string log = text_of(log_of(rank)), word = "ended ";
    const auto at = log.rfind(word);
    if (children[rank].code() != 0 || at == std::string::npos)
      throw std::runtime_error(fmt::format("a job of {} workers failed: {}", workers, log));
    last = std::max(last, Clock::duration(std::stoll(log.substr(at + word.size()))));
  }
  return measure::micros(last - begin.time_since_epoch()) / 1000;
}

void measure_starts(const Options& o) {
  constexpr std::size_t workers = 4;
  constexpr double most = 1000;
  Samples one, four;
  for (std::size_t i = 0; i < o.starts; ++i) {
    one.add(time_start(1, o));
    four.add(time_start(workers, o));
  }
  const double more = four.median() - one.median();
  fmt::print(
      "start-up to the first step, ms: one worker {:.0f} (min {:.0f}), {} workers {:.0f} (min "
      "{:.0f}); {:.0f} more, at most {:.0f}: {}\n",
      one.median(), one.min(), workers, four.median(), four.min(), more, most,
      measure::verdict(more <= most));
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Processes of MultiWorkerMirrored<Cpu>, one thread each", "workers");
  o.add_to(app);
  app.add_option("--workers", o.workers, "processes")
      ->check(CLI::Range(std::size_t{2}, most_workers));
  app.add_option("--beat-steps", o.beat_steps,
                 "steps of the fit that measures the cost of heartbeats")
      ->check(CLI::Range(std::size_t{1}, Options::max_steps));
  app.add_option("--starts", o.starts, "number of jobs started to measure start-up; 0: none")
      ->check(CLI::Range(0, 1000));
  app.add_flag("--bound", o.bound, "bind each process to a core");
  app.add_flag("--first-step", o.first_step)->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    if (o.first_step) {
      run_first_step(o);
      return 0;
    }
    fmt::print("{}; {} rounds of {} steps\n", measure::machine(), o.rounds, o.steps);
    const measure::Neighbours neighbours;
    const LocalJob job(o.workers);
    const measure::TemporaryFolder folder("workers");
    const measure::Shared<Shared> shared(o.workers);
    const bool is_right = measure::in_processes(o.workers, [&](std::size_t rank) {
      if (o.bound) measure::bind_to_core(rank);
      Worker(o, job, folder.path(), *shared, rank).run();
      return true;
    });
    if (!is_right) return 1;
    if (o.starts > 0) measure_starts(o);
    fmt::print("other processes used {:.0f} % of the cores\n", neighbours.percent());
  } catch (const std::exception& e) {
    std::fputs(fmt::format("workers: {}\n", e.what()).c_str(), stderr);
    return 1;
  }
}
