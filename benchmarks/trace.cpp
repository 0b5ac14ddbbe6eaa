// Measures what ls::Trace costs: the tutorials' CNN inside fit, on one thread, with steps in turns
// that are traced and that are not. A step lasts from the end of the previous one to its own end.
// Prints median and minimum of both, and their ratio; and the time to write the file.
//
// Usage: trace [--batch N] [--rounds N] [--steps N] [--warmup N]
#include <fmt/format.h>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <lockstep/trace.hpp>

#include "seed_step.hpp"

namespace {

namespace ls = lockstep;
using measure::Clock;
using measure::Samples;

/// The times of the steps after a warm-up; traces them if asked to.
class Turn : public ls::Callback {
 public:
  Turn(bool traces, std::size_t warmup, std::size_t count)
      : traces_(traces), warmup_(warmup), steps_(count) {}

  Samples steps, writing;
  std::string json;

  void on_train_batch_end(std::size_t batch, const ls::Logs&) override {
    const Clock::time_point now = Clock::now();
    if (batch >= warmup_) steps.add(measure::micros(now - last_));
    if (traces_ && batch + 1 == warmup_) control().begin_trace(steps_);
    if (traces_ && batch + 1 == warmup_ + steps_) {
      const Clock::time_point begin = Clock::now();
      json = control().end_trace();
      writing.add(measure::micros(Clock::now() - begin));
    }
    last_ = Clock::now();
  }

 private:
  bool traces_;
  std::size_t warmup_, steps_;
  Clock::time_point last_{};
};

void print(const char* what, const Samples& samples) {
  fmt::print("{:10} median {:8.1f} us, min {:8.1f} us a step\n", what, samples.median(),
             samples.min());
}

}  // namespace

int main(int argc, char** argv) {
  measure::Turns turns{.rounds = 20};
  CLI::App app("What a trace costs", "trace");
  turns.add_to(app);
  CLI11_PARSE(app, argc, argv);
  const measure::Neighbours neighbours;
  const auto data = measure::images() | ls::batch(turns.batch);
  ls::Model model{measure::Cnn{}, measure::one_device(),
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::SGD{.learning_rate = 1e-3}, ls::Accuracy{}};
  Samples off, on, writing;
  std::size_t bytes = 0;
  for (std::size_t round = 0; round < turns.rounds; ++round)
    for (const bool traces : {false, true}) {
      const auto turn = std::make_shared<Turn>(traces, turns.warmup, turns.steps);
      model.fit(data, {.steps_per_epoch = turns.warmup + turns.steps,
                       .callbacks = {turn},
                       .progress = ls::ProgressStyle::none});
      (traces ? on : off).add(turn->steps);
      if (traces) writing.add(turn->writing);
      if (traces) bytes = turn->json.size();
    }
  fmt::print("{}\n", measure::machine());
  print("trace off", off);
  print("trace on", on);
  fmt::print("ratio: {:.4f} of the medians, {:.4f} of the minima\n", on.median() / off.median(),
             on.min() / off.min());
  fmt::print("end of the trace: median {:.1f} us for {} steps, {} bytes\n", writing.median(),
             turns.steps, bytes);
  fmt::print("other processes used {:.0f} % of the machine\n", neighbours.percent());
}
