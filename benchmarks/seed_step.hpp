/// \file
/// The shared part of the scaling benchmarks: the tutorials' CNN inside `fit`, the phases of its
/// steps, and the bounds on two replicas.
///
/// A step lasts from the end of the previous step to its own end, so all of `fit` counts. The
/// phases, in microseconds and as shares of a step, are means over the replicas of a process and
/// over the steps that last at most the median. They are measured without changing the library, by
/// wrappers of the strategy, its exchange and Accuracy, and add up to the step:
///
/// - `wake`: from the call of Session::each to the replica's start in its thread;
/// - `forward`: clearing, forward, loss and metric;
/// - `backward`: without posting buckets, which is the column `post`;
/// - `exchange`: from the end of backward to the summed gradients;
/// - `update`: reading the sums, and the optimizer's pass;
/// - `join`: from this replica's end to the return of Session::each, including the wait for others;
/// - `rest`: data, callbacks, logs, in the caller's thread.
#pragma once

#include <fmt/format.h>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>

#include "measure.hpp"

namespace measure {

namespace ls = lockstep;

/// Options of the command line.
struct Turns {
  static constexpr std::size_t max_steps = 10'000;

  std::size_t batch = 64, rounds = 5, steps = 50, warmup = 5;

  void add_to(CLI::App& app) {
    const auto positive = CLI::Range(1, 1 << 20);
    app.add_option("--batch", batch, "of one device")->check(positive);
    app.add_option("--rounds", rounds, "turns of each configuration")->check(positive);
    app.add_option("--steps", steps, "measured in a turn")
        ->check(CLI::Range(std::size_t{1}, max_steps));
    app.add_option("--warmup", warmup, "left out of a turn")->check(positive);
  }
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

/// Time stamps of one replica in a step.
struct alignas(64) Marks {
  Clock::time_point start, scored, backward_end, exchanged, end;
  Clock::duration posting{};
  bool trains = false;
};

/// The marks of the calling thread's replica.
inline thread_local Marks* marks = nullptr;

/// Records the training steps of a model.
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

  using Inner = decltype(std::declval<const S&>().open());
  class Session : public Inner {
   public:
    Session(const S& strategy, std::shared_ptr<Recorder> recorder)
        : Inner(strategy.open()), recorder_(std::move(recorder)) {
      recorder_->replica.resize(this->local_replicas());
    }
    template <class Body>
    void each(Body&& body) {
      const Clock::time_point called = Clock::now();
      Inner::each([&](const ls::ReplicaContext<device>& r) {
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

   private:
    std::shared_ptr<Recorder> recorder_;
  };
  Session open() const { return {inner, recorder}; }
};

/// Accuracy, which is computed after the loss, with a time stamp at its end.
struct TimedAccuracyOp {
  ls::AccuracyOp<std::int32_t> inner;
};
struct TimedAccuracy : ls::Accuracy {
  template <class Target>
  constexpr TimedAccuracyOp op(ls::Shape out) const {
    return {Accuracy::op<Target>(out)};
  }
};

}  // namespace measure

template <>
struct lockstep::Kernel<measure::TimedAccuracyOp, lockstep::Cpu> : lockstep::KernelTraits {
  static void run(const measure::TimedAccuracyOp& op, const MetricIo<Cpu, std::int32_t>& io) {
    Kernel<AccuracyOp<std::int32_t>, Cpu>::run(op.inner, io);
    measure::marks->scored = measure::Clock::now();
  }
};

namespace measure {

template <class S>
using ModelOn = ls::Model<Cnn, Timed<S>, ls::SparseCategoricalCrossentropy, ls::SGD, TimedAccuracy>;
using OneDevice = ls::OneDevice<ls::Cpu>;

template <class S>
ModelOn<S> model_on(const Timed<S>& strategy) {
  return ModelOn<S>(Cnn{}, strategy, {.from_logits = true}, {.learning_rate = 1e-3}, {});
}
inline OneDevice one_device() { return {.on = {.threads = 1}}; }

/// Random examples, 60,000 as in MNIST.
inline auto images(std::size_t count = 60'000) {
  constexpr std::size_t size = 28 * 28;
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

/// The steps of one call of fit, without the warm-up steps.
template <class S, class Batches>
std::vector<Step> fit_batches(ModelOn<S>& model, Recorder& recorder, const Batches& data,
                              const Turns& turns) {
  const std::size_t count = turns.warmup + turns.steps;
  recorder.steps.clear();
  recorder.steps.reserve(count + 1);  // several replicas exchange again at the end of the epoch
  model.fit(data, {.epochs = 1, .steps_per_epoch = count, .progress = ls::ProgressStyle::none});
  const auto first = recorder.steps.begin() + static_cast<std::ptrdiff_t>(turns.warmup);
  return {first, first + static_cast<std::ptrdiff_t>(turns.steps)};
}
template <class S>
std::vector<Step> fit(ModelOn<S>& model, Recorder& recorder, const Images& data, std::size_t batch,
                      const Turns& turns) {
  return fit_batches(model, recorder, data | ls::batch(batch), turns);
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
  /// Runs one of `rounds` rounds.
  Samples times_in(std::size_t round, std::size_t rounds) const {
    Samples s;
    const std::size_t n = steps.size() / rounds;
    for (std::size_t i = round * n; i < (round + 1) * n; ++i) s.add(steps[i].us);
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
    fmt::print("{:10} {:8.0f} {:8.0f} {:8.2f} ", name, median, all.min(), devices * t1 / median);
    for (const double us : mean.phase)
      fmt::print("  {:6.0f} {:2.0f}%", us / count, 100 * us / mean.us);
    fmt::print("\n");
  }
};

/// All rows, measured in turn in each round; the first is one device.
struct Table {
  std::vector<Row> rows;
  std::size_t rounds = 0;

  void turn() {
    ++rounds;
    for (Row& row : rows) {
      const std::vector<Step> steps = row.run();
      row.steps.insert(row.steps.end(), steps.begin(), steps.end());
    }
  }
  void print() const {
    fmt::print("{:10} {:>8} {:>8} {:>8} ", "", "median", "min us", "speed-up");
    for (const char* name : phase_names) fmt::print(" {:>11}", name);
    fmt::print("\n");
    for (const Row& row : rows) row.print(rows[0].times().median());
  }
  /// Step times of the row of this name.
  Samples times(std::string_view name) const {
    for (const Row& row : rows)
      if (row.name == name) return row.times();
    return {};
  }
  /// The same, of the given rounds only.
  Samples times(std::string_view name, const std::vector<std::size_t>& of_rounds) const {
    Samples s;
    for (const Row& row : rows)
      if (row.name == name)
        for (const std::size_t round : of_rounds) s.add(row.times_in(round, rounds));
    return s;
  }
};

/// P: the optimizer's pass over as many parameters, measured alone.
class UpdateAlone {
 public:
  void add_to(Samples& samples) {
    const ls::SGDOp op = ls::SGD{.learning_rate = 1e-3}.op(1e-3, 1);
    const Clock::time_point begin = Clock::now();
    ls::Kernel<ls::SGDOp, ls::Cpu>::update(
        op, {context_, size, weights_.data(), gradients_.data(), {}, {}});
    samples.add(micros(Clock::now() - begin));
  }

 private:
  static constexpr std::size_t size = Cnn::parameter_count;

  ls::Cpu::Context context_ = ls::Cpu{.threads = 1}.open(1, 0);
  ls::detail::Buffer<ls::Cpu::Context, float> weights_{context_, size}, gradients_{context_, size};
};

inline const char* verdict(bool is_met) { return is_met ? "met" : "MISSED"; }

/// The bounds on two replicas: T1 is the step of one device, P its optimizer's pass alone, R the
/// exchange of as many bytes alone. Checked on medians, on minima, and on medians of the rounds in
/// which two independent models were at least 1.9 times as fast as one: in other rounds the machine
/// did not have two free cores.
inline void print_bounds(const char* whose, const Table& table, const Samples& update,
                         const Samples& exchange, double least_weak) {
  fmt::print("\ntwo {}, us\n", whose);
  const auto print = [&](const char* what, double t1, double p, double r, double strong,
                         double weak) {
    const double most = (t1 - p) / 2 + p + 1.2 * r, speed_up = 2 * t1 / weak;
    fmt::print("{}: T1 {:.0f}, P {:.1f}, R {:.1f}\n", what, t1, p, r);
    fmt::print("  strong: T2 {:.0f}, at most (T1 - P)/2 + P + 1.2 R = {:.0f}: {} by {:.0f}\n",
               strong, most, verdict(strong <= most), std::abs(most - strong));
    fmt::print("  weak: 2 T1/T2 {:.2f}, at least {:.2f}: {}\n", speed_up, least_weak,
               verdict(speed_up >= least_weak));
  };
  const Row& one = table.rows[0];
  const Samples strong = table.times("strong 2"), weak = table.times("weak 2");
  print("medians", one.times().median(), update.median(), exchange.median(), strong.median(),
        weak.median());
  print("minima", one.times().min(), update.min(), exchange.min(), strong.min(), weak.min());
  std::vector<std::size_t> whole;
  for (std::size_t round = 0; round < table.rounds; ++round)
    if (const Samples apart = table.times("apart 2", {round});
        !apart.empty() && 2 * one.times_in(round, table.rounds).median() >= 1.9 * apart.median())
      whole.push_back(round);
  fmt::print("two whole cores in {} of {} rounds\n", whole.size(), table.rounds);
  if (!whole.empty())
    print("medians of these", table.times(one.name, whole).median(), update.median(),
          exchange.median(), table.times("strong 2", whole).median(),
          table.times("weak 2", whole).median());
}

}  // namespace measure
