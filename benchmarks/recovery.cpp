/// \file
/// The cost of losing a worker in an elastic job: the tutorials' CNN on `MultiWorkerMirrored<Cpu>`,
/// four processes of one thread each on this machine, which train until this program ends them.
///
/// In each round a worker is killed, the chief in every other one. Rows, from the kill:
///
/// - `detection`: until the last survivor has left its step, or its wait for the others;
/// - `generation`: until the last survivor is connected with the others again;
/// - `step`: until the last survivor has ended its next step;
/// - `all again`: until four workers have ended a step, if the new worker is started with the kill.
///
/// In the first half of the rounds the worker is replaced only after that. Then, from the start of
/// its process:
///
/// - `joined`: until four workers have ended a step;
/// - `pause`: between two steps of the survivors, because of it.
///
/// `cost` compares the step of two workers in a job that is not elastic and in one that is, in turn
/// in each round, by the same processes.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/cluster.hpp>
#include <lockstep/cpu.hpp>
#include <lockstep/elastic.hpp>
#include <lockstep/lockstep.hpp>

#include "measure.hpp"
#include "processes.hpp"
#include "run_job.hpp"
#include "seed_step.hpp"

namespace ls = lockstep;

namespace {

using lockstep_run::LocalJob;
using measure::Clock, measure::Samples;
using MultiWorker = ls::MultiWorkerMirrored<ls::Cpu, ls::Tcp, ls::Elastic>;

struct Options : measure::Turns {
  std::size_t kills = 20, cost_rounds = 20;
};

constexpr std::size_t workers = 4;

/// When something happened for the first time since `clear`, in nanoseconds of Clock.
class Mark {
 public:
  void set() {
    std::int64_t none = 0;
    at_.compare_exchange_strong(none, Clock::now().time_since_epoch().count());
  }
  void clear() { at_ = 0; }
  bool is_set() const { return at_ != 0; }
  Clock::time_point at() const { return Clock::time_point(Clock::duration(at_.load())); }

 private:
  std::atomic<std::int64_t> at_{0};
};

/// Reported by one worker, in shared memory.
struct alignas(64) Place {
  Mark lost, formed, stepped;        ///< `stepped` after `formed`
  std::atomic<std::size_t> size{0};  ///< workers in its last step

  void clear() {
    lost.clear();
    formed.clear();
    stepped.clear();
  }
};
using Places = std::array<Place, workers>;

/// The strategy, with marks where a worker is lost and where it is connected again.
template <ls::Strategy S>
struct Watched {
  using device = typename S::device;
  static constexpr std::string_view name = S::name;

  S inner;
  Place* place;

  using Inner = decltype(std::declval<const S&>().open());
  class Session : public Inner {
   public:
    explicit Session(const Watched& strategy)
        : Inner(strategy.inner.open()), place_(strategy.place) {
      mark_formed();
    }
    template <class Body>
    void each(Body&& body) {
      try {
        Inner::each(body);
      } catch (...) {
        place_->lost.set();
        throw;
      }
    }
    void reform(const std::string& why, const std::stop_token& stop) {
      place_->lost.set();
      Inner::reform(why, stop);
    }
    void form() {
      Inner::form();
      mark_formed();
    }

   private:
    void mark_formed() {
      place_->size = this->workers();
      place_->formed.set();
    }

    Place* place_;
  };
  Session open() const { return Session(*this); }
};

static_assert(ls::ElasticSession<Watched<MultiWorker>::Session>);

/// The environment that lockstep-run gives a worker.
ls::Environment environment_of(const LocalJob& job, std::size_t rank) {
  return [variables = job.variables(rank)](const std::string& name) -> std::optional<std::string> {
    for (const auto& [key, value] : variables)
      if (key == name) return value;
    return std::nullopt;
  };
}

MultiWorker strategy_of(const LocalJob& job, std::size_t rank, const std::string& folder) {
  MultiWorker strategy{.on = {.threads = 1}, .environment = environment_of(job, rank)};
  if (!folder.empty()) strategy.elastic = {.min_workers = 1, .directory = folder};
  return strategy;
}

/// Trains until this process is killed.
void train(const Options& o, const LocalJob& job, const std::string& folder, Place& place,
           std::size_t rank) {
  ls::set_log({});
  const Watched<MultiWorker> strategy{strategy_of(job, rank, folder), &place};
  ls::Model<measure::Cnn, Watched<MultiWorker>, ls::SparseCategoricalCrossentropy, ls::SGD> model(
      measure::Cnn{}, strategy, {.from_logits = true}, {.learning_rate = 1e-3});
  model.fit(measure::images() | ls::batch(o.batch),
            {.epochs = 1'000'000,
             .steps_per_epoch = 1'000,
             .callbacks = {ls::LambdaCallback{.on_train_batch_end =
                                                  [&](std::size_t, const ls::Logs&) {
                                                    if (place.formed.is_set()) place.stepped.set();
                                                  }}},
             .progress = ls::ProgressStyle::none});
}

/// A row of the report: milliseconds.
struct Row {
  std::string_view name;
  double most;  ///< the goal; 0: none
  std::vector<double> values{};

  void add(Clock::duration time) { values.push_back(measure::micros(time) / 1000); }
  void print() {
    if (values.empty()) return;
    std::sort(values.begin(), values.end());
    const double largest = values.back();
    fmt::print("{:10} {:4} {:8.0f} {:8.0f} {:8.0f}", name, values.size(), values.front(),
               values[values.size() / 2], largest);
    if (most > 0) fmt::print("   at most {:.0f}: {}", most, measure::verdict(largest <= most));
    fmt::print("\n");
  }
};

/// Starts, kills and replaces the workers of a job. Starts no thread, since it forks.
class Job {
 public:
  explicit Job(const Options& o) : o_(o) {
    std::fflush(stdout);
    for (std::size_t place = 0; place < workers; ++place) start(place);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    for (const pid_t process : processes_)
      if (process > 0) end(process);
  }

  void run() {
    await_steps({}, "the job's first step");
    for (std::size_t kill = 0; kill < o_.kills; ++kill) {
      std::this_thread::sleep_for(std::chrono::milliseconds(
          std::uniform_int_distribution<std::int64_t>(200, 500)(random_)));
      const std::size_t order = kill % 2 == 0 ? 0 : 1 + random_() % (workers - 1);
      lose(joined_[order], kill >= o_.kills / 2);
    }
    fmt::print("{:10} {:>4} {:>8} {:>8} {:>8}\n", "ms", "", "min", "median", "max");
    for (Row* row : {&detection_, &generation_, &step_, &all_again_, &new_worker_, &pause_})
      row->print();
  }

 private:
  static void end(pid_t process) {
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }

  void start(std::size_t place) {
    const pid_t parent = getpid(), child = fork();
    if (child < 0) measure::fail("cannot start a process");
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      try {
        train(o_, job_, folder_.path(), (*places_)[place], place);
      } catch (const std::exception& e) {
        std::fputs(fmt::format("worker {}: {}\n", place, e.what()).c_str(), stderr);
      }
      _exit(1);
    }
    processes_[place] = child;
    joined_.push_back(place);
  }

  /// Waits until all workers except `without` have ended a step, of all of them.
  void await_steps(std::optional<std::size_t> without, std::string_view what) {
    const std::size_t size = without ? workers - 1 : workers;
    const Clock::time_point begin = Clock::now();
    for (std::size_t place = 0; place < workers; ++place) {
      Place& of = (*places_)[place];
      while (place != without && !(of.stepped.is_set() && of.size == size)) {
        if (of.stepped.is_set()) of.clear();  // of a generation with fewer workers
        if (Clock::now() - begin > std::chrono::seconds(60))
          throw std::runtime_error(fmt::format("worker {} did not reach {}", place, what));
        if (waitpid(processes_[place], nullptr, WNOHANG) != 0)
          throw std::runtime_error(fmt::format("worker {} ended before {}", place, what));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  /// The latest time among the workers.
  template <class Get>
  Clock::time_point last(std::optional<std::size_t> without, const Get& get) const {
    Clock::time_point latest{};
    for (std::size_t place = 0; place < workers; ++place)
      if (place != without) latest = std::max(latest, get((*places_)[place]).at());
    return latest;
  }

  void clear() {
    for (Place& place : *places_) place.clear();
  }

  void lose(std::size_t place, bool is_replaced_at_once) {
    clear();
    std::erase(joined_, place);
    const Clock::time_point begin = Clock::now();
    end(processes_[place]);
    processes_[place] = 0;
    if (is_replaced_at_once) {
      start(place);
      await_steps({}, "a step after a worker was lost and replaced");
      const auto stepped = [](const Place& of) -> const Mark& { return of.stepped; };
      all_again_.add(last({}, stepped) - begin);
      return;
    }
    await_steps(place, "a step after a worker was lost");
    detection_.add(last(place, [](const Place& of) -> const Mark& { return of.lost; }) - begin);
    generation_.add(last(place, [](const Place& of) -> const Mark& { return of.formed; }) - begin);
    const auto stepped = [](const Place& of) -> const Mark& { return of.stepped; };
    step_.add(last(place, stepped) - begin);
    clear();
    const Clock::time_point started = Clock::now();
    start(place);
    await_steps({}, "a step with the new worker");
    new_worker_.add(last({}, stepped) - started);
    pause_.add(last(place, stepped) -
               last(place, [](const Place& of) -> const Mark& { return of.lost; }));
  }

  const Options& o_;
  LocalJob job_{workers};
  measure::TemporaryFolder folder_{"recovery"};
  measure::Shared<Places> places_;
  std::array<pid_t, workers> processes_{};
  std::vector<std::size_t> joined_;  ///< places, the chief first
  std::mt19937 random_{1};
  Row detection_{"detection", 1000}, generation_{"generation", 0}, step_{"step", 5000},
      all_again_{"all again", 0}, new_worker_{"joined", 0}, pause_{"pause", 0};
};

/// The step of a job that is not elastic, and of one that is.
bool measure_cost(const Options& o) {
  constexpr std::size_t two = 2;
  constexpr double most = 0.01;
  const LocalJob plain_job(two), elastic_job(two);
  const measure::TemporaryFolder folder("recovery");
  const measure::Shared<measure::SleepingLine> line(two);
  return measure::in_processes(two, [&](std::size_t rank) {
    ls::set_log({});
    const measure::Timed<MultiWorker> plain_strategy{strategy_of(plain_job, rank, "")};
    const measure::Timed<MultiWorker> elastic_strategy{
        strategy_of(elastic_job, rank, folder.path())};
    auto plain = measure::model_on(plain_strategy);
    auto elastic = measure::model_on(elastic_strategy);
    const measure::Images data = measure::images();
    Samples plain_steps, elastic_steps;
    const auto turn = [&](auto& model, const auto& strategy, Samples& samples) {
      (*line).wait();
      for (const auto& step : measure::fit(model, *strategy.recorder, data, o.batch, o))
        samples.add(step.us);
    };
    for (std::size_t round = 0; round < o.cost_rounds; ++round) {
      turn(plain, plain_strategy, plain_steps);
      turn(elastic, elastic_strategy, elastic_steps);
    }
    (*line).wait();
    if (rank == 0) {
      const double a = plain_steps.median(), b = elastic_steps.median();
      fmt::print(
          "cost: a step of {} workers takes {:.1f} us (min {:.1f}), elastic {:.1f} us (min "
          "{:.1f}): {:+.2f} %, at most {:.0f} %: {}\n",
          two, a, plain_steps.min(), b, elastic_steps.min(), 100 * (b / a - 1), 100 * most,
          measure::verdict(b <= (1 + most) * a));
    }
    return true;
  });
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("The cost of losing a worker in an elastic job of four processes", "recovery");
  o.add_to(app);
  app.add_option("--kills", o.kills, "workers to kill; half of them are replaced at once")
      ->check(CLI::Range(0, 1000));
  app.add_option("--cost-rounds", o.cost_rounds, "turns of the jobs that compare the step; 0: none")
      ->check(CLI::Range(0, 1000));
  CLI11_PARSE(app, argc, argv);
  try {
    fmt::print("{}; {} kills\n", measure::machine(), o.kills);
    const measure::Neighbours neighbours;
    if (o.kills > 0) Job(o).run();
    if (o.cost_rounds > 0 && !measure_cost(o)) return 1;
    fmt::print("other processes used {:.0f} % of the cores\n", neighbours.percent());
  } catch (const std::exception& e) {
    std::fputs(fmt::format("recovery: {}\n", e.what()).c_str(), stderr);
    return 1;
  }
}
