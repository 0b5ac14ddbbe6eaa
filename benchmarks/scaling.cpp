/// \file
/// The tutorials' CNN on `Mirrored<Cpu>` with one thread a replica: strong scaling (one global
/// batch for all replicas), weak scaling (a batch for each), and where the time of a step goes.
///
/// All configurations take their turn in each round, inside `fit`; a round's first steps are left
/// out. A step lasts from the end of one to the end of the next, so nothing of `fit` is left out.
/// Rows, with the model's batch B (`--batch`):
///
/// - `one device`: OneDevice, one thread, batch B: T1.
/// - `strong N`, `weak N`: Mirrored, N replicas, global batch B and N B. `speed-up` is T1/T and N
/// T1/T.
/// - `split N`, `apart N`: N independent one-device models in N threads at once, batch B/N and B,
/// which wait for nothing and exchange nothing: what the machine itself leaves of strong and weak
/// scaling. Only as long as each has a core: otherwise they would not run at once.
///
/// Phases, in microseconds and as shares of a step, are means over the replicas and over those
/// steps that last no longer than the median. They are taken without touching the library, by a
/// strategy around the strategy, an exchange around its exchange and a metric around Accuracy, and
/// add up to the step:
///
/// - `wake`: from the call of Session::each to the replica's start in its thread;
/// - `forward`: clearing, forward, loss and metric;
/// - `backward`: without the `post` of buckets, a column of its own;
/// - `exchange`: from the end of backward to the summed gradients;
/// - `update`: reading the sums, and the optimizer's pass;
/// - `join`: from this replica's end to the return of Session::each, so also waiting for others;
/// - `rest`: data, callbacks, logs, in the caller's thread.
///
/// Then the terms of the bounds for two replicas: P is the optimizer's pass alone over as many
/// parameters, R the exchange of as many bytes alone by two replicas that start together, each
/// taken in turn with the steps.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>

#include "measure.hpp"

namespace ls = lockstep;

namespace {

using measure::Clock, measure::micros, measure::Samples;

struct Options {
  std::size_t replicas = 8, batch = 64, rounds = 5, steps = 50, warmup = 5;
  bool bound = false;
};

struct Cnn : ls::Sequential<ls::Input<28, 28, 1>,             //
                            ls::Conv2D<32, 3>, ls::ReLU,      //
                            ls::MaxPooling2D<>, ls::Flatten,  //
                            ls::Dense<64>, ls::ReLU,          //
                            ls::Dense<10>> {};

constexpr std::array phase_names{"wake",     "forward", "backward", "post",
                                 "exchange", "update",  "join",     "rest"};
using Phases = std::array<double, phase_names.size()>;

struct Step {
  double us = 0;
  Phases phase{};
};

/// What one replica did when, in a step.
struct alignas(64) Marks {
  Clock::time_point start, scored, backward_end, exchanged, end;
  Clock::duration posting{};
  bool trains = false;
};

/// Of the replica that the calling thread computes.
thread_local Marks* marks = nullptr;

/// The training steps of a model.
class Recorder {
 public:
  std::vector<Marks> replica;
  std::vector<Step> steps;

  void each_returned(Clock::time_point called) {
    const Clock::time_point now = Clock::now();
    if (replica[0].trains) {
      Step step{micros(now - before_), {}};
      for (const Marks& m : replica) {
        const Phases phase{micros(m.start - called),
                           micros(m.scored - m.start),
                           micros(m.backward_end - m.scored - m.posting),
                           micros(m.posting),
                           micros(m.exchanged - m.backward_end),
                           micros(m.end - m.exchanged),
                           micros(now - m.end),
                           micros(called - before_)};
        for (std::size_t i = 0; i < phase.size(); ++i)
          step.phase[i] += phase[i] / static_cast<double>(replica.size());
      }
      steps.push_back(step);
    }
    before_ = now;
  }

 private:
  Clock::time_point before_;
};

template <class T>
struct TimedExchange {
  ls::GradientExchange<T> inner;
  Marks& m;

  void post(T* p, std::size_t n) {
    const Clock::time_point begin = Clock::now();
    inner.post(p, n);
    m.posting += Clock::now() - begin;
  }
  void finish(T* p, std::size_t n, double* sums, std::size_t count) {
    m.backward_end = Clock::now();
    inner.finish(p, n, sums, count);
    m.exchanged = Clock::now();
    m.trains = true;
  }
};

template <ls::Strategy S>
struct Timed {
  using device = typename S::device;
  static constexpr std::string_view name = S::name;

  S inner;
  std::shared_ptr<Recorder> recorder = std::make_shared<Recorder>();

  class Session : public lockstep::SessionOfOneProcess {
   public:
    Session(const S& strategy, std::shared_ptr<Recorder> recorder)
        : inner_(strategy.open()), recorder_(std::move(recorder)) {
      recorder_->replica.resize(inner_.local_replicas());
    }
    template <class Body>
    void each(Body&& body) {
      const Clock::time_point called = Clock::now();
      inner_.each([&](const ls::ReplicaContext<device>& r) {
        Marks& m = recorder_->replica[r.local];
        m.start = Clock::now();
        m.posting = {};
        m.trains = false;
        marks = &m;
        TimedExchange<typename device::real> exchange{r.exchange, m};
        body(ls::ReplicaContext<device>{r.local, r.rank, r.group,
                                        ls::GradientExchange<typename device::real>(exchange),
                                        r.device});
        m.end = Clock::now();
      });
      recorder_->each_returned(called);
    }
    std::size_t local_replicas() const { return inner_.local_replicas(); }
    std::size_t replicas() const { return inner_.replicas(); }
    std::size_t first_replica() const { return inner_.first_replica(); }
    std::size_t virtual_shards() const { return inner_.virtual_shards(); }
    bool is_chief() const { return inner_.is_chief(); }

   private:
    decltype(std::declval<const S&>().open()) inner_;
    std::shared_ptr<Recorder> recorder_;
  };
  Session open() const { return {inner, recorder}; }
};

/// Accuracy, which is computed after the loss, with a mark at its end.
struct TimedAccuracyOp {
  ls::AccuracyOp<std::int32_t> inner;
};
struct TimedAccuracy : ls::Accuracy {
  template <class Target>
  constexpr TimedAccuracyOp op(ls::Shape out) const {
    return {Accuracy::op<Target>(out)};
  }
};

}  // namespace

template <>
struct lockstep::Kernel<TimedAccuracyOp, ls::Cpu> : ls::KernelTraits {
  static void run(const TimedAccuracyOp& op, const ls::MetricIo<ls::Cpu, std::int32_t>& io) {
    Kernel<AccuracyOp<std::int32_t>, Cpu>::run(op.inner, io);
    marks->scored = Clock::now();
  }
};

namespace {

template <class S>
using ModelOn = ls::Model<Cnn, Timed<S>, ls::SparseCategoricalCrossentropy, ls::SGD, TimedAccuracy>;
using OneDevice = ls::OneDevice<ls::Cpu>;
using Mirrored = ls::Mirrored<ls::Cpu>;

template <class S>
ModelOn<S> model_on(const Timed<S>& strategy) {
  return ModelOn<S>(Cnn{}, strategy, {.from_logits = true}, {.learning_rate = 1e-3}, {});
}
OneDevice one_device() { return {.on = {.threads = 1}}; }
Mirrored mirrored(std::size_t replicas, bool bound) {
  if (!bound) return {.replicas = replicas, .on = {.threads = 1}};
  Mirrored strategy;
  for (std::size_t i = 0; i < replicas; ++i)
    strategy.devices.push_back({.index = static_cast<int>(i), .threads = 1});
  return strategy;
}

/// As many random examples as MNIST has.
auto images() {
  constexpr std::size_t count = 60000, size = 28 * 28;
  std::vector<std::uint8_t> pixels(count * size);
  std::vector<std::int32_t> labels(count);
  std::uint32_t state = 1;
  const auto draw = [&] { return (state = state * 1664525 + 1013904223) >> 24; };
  for (auto& p : pixels) p = static_cast<std::uint8_t>(draw());
  for (auto& l : labels) l = static_cast<std::int32_t>(draw() % 10);
  return ls::tensors(std::move(pixels), ls::shape(28, 28, 1), std::move(labels)) |
         ls::rescale(1.0 / 255) | ls::cache | ls::shuffle(10'000) | ls::repeat;
}
using Images = decltype(images());

/// The steps of one call of fit, without the first ones.
template <class S>
std::vector<Step> fit(ModelOn<S>& model, Recorder& recorder, const Images& data, std::size_t batch,
                      const Options& options) {
  const std::size_t count = options.warmup + options.steps;
  recorder.steps.clear();
  recorder.steps.reserve(count);
  model.fit(data | ls::batch(batch),
            {.epochs = 1, .steps_per_epoch = count, .progress = ls::ProgressStyle::none});
  return {recorder.steps.begin() + static_cast<std::ptrdiff_t>(options.warmup),
          recorder.steps.end()};
}

/// A row of the table.
struct Row {
  std::string name;
  double devices;                          ///< replicas times their batch over the model's batch
  std::function<std::vector<Step>()> run;  ///< a round's steps
  std::vector<Step> steps{};

  Samples times() const {
    Samples s;
    for (const Step& step : steps) s.add(step.us);
    return s;
  }
  void print(double t1) const {
    const Samples all = times();
    const double median = all.median();
    Step mean;
    double count = 0;
    for (const Step& step : steps)
      if (step.us <= median) {
        count += 1;
        mean.us += step.us;
        for (std::size_t i = 0; i < mean.phase.size(); ++i) mean.phase[i] += step.phase[i];
      }
    std::printf("%-10s %8.0f %8.0f %8.2f ", name.c_str(), median, all.min(), devices * t1 / median);
    for (const double us : mean.phase)
      std::printf("  %6.0f %2.0f%%", us / count, 100 * us / mean.us);
    std::printf("\n");
  }
};

/// `count` one-device models in as many threads at once.
std::vector<Step> run_apart(std::size_t count, const Images& data, std::size_t batch,
                            const Options& options) {
  std::vector<std::vector<Step>> found(count);
  std::vector<std::thread> threads;
  measure::StartLine line(count);
  for (std::size_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      const Timed<OneDevice> strategy{one_device()};
      auto model = model_on(strategy);
      line.wait();
      found[i] = fit(model, *strategy.recorder, data, batch, options);
    });
  std::vector<Step> all;
  for (std::size_t i = 0; i < count; ++i) {
    threads[i].join();
    all.insert(all.end(), found[i].begin(), found[i].end());
  }
  return all;
}

/// P and R.
class Terms {
 public:
  explicit Terms(bool bound) : two_(mirrored(2, bound).open()) {}

  Samples update, exchange;

  void measure() {
    auto& context = one_.context;
    const ls::SGDOp op = ls::SGD{.learning_rate = 1e-3}.op(1e-3, 1);
    for (int i = 0; i < samples; ++i) {
      const Clock::time_point begin = Clock::now();
      ls::Kernel<ls::SGDOp, ls::Cpu>::update(
          op, {context, size, one_.weights.data(), one_.gradients.data(), {}, {}});
      update.add(micros(Clock::now() - begin));
    }
    two_.each([&](const ls::ReplicaContext<ls::Cpu>& r) {
      std::vector<float>& gradients = gradients_[r.local];
      for (int i = 0; i < samples; ++i) {
        std::fill(gradients.begin(), gradients.end(), 1.0f);  // as backward leaves them
        together_.time(r.local, exchange, [&] {
          std::array<double, 6> sums{};
          r.exchange.finish(gradients.data(), size, sums.data(), sums.size());
        });
      }
    });
  }

 private:
  static constexpr std::size_t size = Cnn::parameter_count;
  static constexpr int samples = 40;

  struct One {
    ls::Cpu::Context context = ls::Cpu{.threads = 1}.open(1, 0);
    ls::detail::Buffer<ls::Cpu::Context, float> weights{context, size}, gradients{context, size};
  };
  One one_;
  Mirrored::Session two_;
  std::array<std::vector<float>, 2> gradients_{std::vector<float>(size), std::vector<float>(size)};
  measure::Together together_{2};
};

void print_bounds(const Terms& terms, double t1, double strong, double weak) {
  const double p = terms.update.median(), r = terms.exchange.median();
  const double bound = (t1 - p) / 2 + p + 1.2 * r;
  std::printf("\ntwo replicas, medians in us: T1 %.0f, P %.1f (min %.1f), R %.1f (min %.1f)\n", t1,
              p, terms.update.min(), r, terms.exchange.min());
  std::printf("strong: T2 %.0f, at most (T1 - P)/2 + P + 1.2 R = %.0f: %s by %.0f us\n", strong,
              bound, strong <= bound ? "met" : "MISSED", std::abs(bound - strong));
  std::printf("weak: 2 T1/T2 %.2f, at least 1.80: %s\n", 2 * t1 / weak,
              2 * t1 / weak >= 1.8 ? "met" : "MISSED");
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Scaling of Mirrored<Cpu>, one thread a replica", "scaling");
  app.add_option("--replicas", o.replicas, "from 1 to so many")->check(CLI::Range(1, 64));
  app.add_option("--batch", o.batch, "of one device")->check(CLI::Range(1, 1 << 20));
  app.add_option("--rounds", o.rounds, "turns of each configuration")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--steps", o.steps, "measured in a turn")->check(CLI::Range(1, 1 << 20));
  app.add_option("--warmup", o.warmup, "left out of a turn")->check(CLI::Range(1, 1 << 20));
  app.add_flag("--bound", o.bound, "bind each replica of Mirrored to its share of the cores");
  CLI11_PARSE(app, argc, argv);
  std::printf("%s; %zu rounds of %zu steps\n", measure::machine().c_str(), o.rounds, o.steps);

  const Images data = images();
  std::vector<std::unique_ptr<ModelOn<Mirrored>>> models;
  const Timed<OneDevice> alone{one_device()};
  auto one = model_on(alone);
  std::vector<Row> rows;
  rows.push_back({"one device", 1, [&] { return fit(one, *alone.recorder, data, o.batch, o); }});
  for (std::size_t n = 1; n <= o.replicas; ++n) {
    const Timed<Mirrored> strategy{mirrored(n, o.bound)};
    models.push_back(std::make_unique<ModelOn<Mirrored>>(model_on(strategy)));
    const auto add = [&](const char* name, double devices, std::size_t batch) {
      rows.push_back({name + std::to_string(n), devices,
                      [&, batch, recorder = strategy.recorder, model = models.back().get()] {
                        return fit(*model, *recorder, data, batch, o);
                      }});
    };
    add("strong ", 1, o.batch);
    if (n == 1) continue;
    add("weak ", static_cast<double>(n), n * o.batch);
    if (n > std::thread::hardware_concurrency()) continue;
    rows.push_back({"split " + std::to_string(n), 1, [&, n] {
                      return run_apart(n, data, std::max<std::size_t>(o.batch / n, 1), o);
                    }});
    rows.push_back({"apart " + std::to_string(n), static_cast<double>(n),
                    [&, n] { return run_apart(n, data, o.batch, o); }});
  }
  Terms terms(o.bound);
  const measure::Neighbours neighbours;
  for (std::size_t round = 0; round < o.rounds; ++round) {
    for (Row& row : rows) {
      const std::vector<Step> steps = row.run();
      row.steps.insert(row.steps.end(), steps.begin(), steps.end());
    }
    terms.measure();
  }

  std::printf("other processes took %.0f %% of the cores\n", neighbours.percent());
  std::printf("%-10s %8s %8s %8s ", "", "median", "min us", "speed-up");
  for (const char* name : phase_names) std::printf(" %11s", name);
  std::printf("\n");
  const double t1 = rows[0].times().median();
  for (const Row& row : rows) row.print(t1);
  const auto median_of = [&](std::string_view name) {
    for (const Row& row : rows)
      if (row.name == name) return row.times().median();
    return 0.0;
  };
  if (o.replicas >= 2) print_bounds(terms, t1, median_of("strong 2"), median_of("weak 2"));
}
