/// \file
/// The tutorials' CNN on `Mirrored<Cpu>` with one thread per replica: strong scaling (one global
/// batch for all replicas), weak scaling (a batch for each), and the phases of a step
/// (seed_step.hpp).
///
/// All configurations run in turn in each round, inside `fit`; a round's first steps do not count.
/// Rows, with the model's batch B (`--batch`):
///
/// - `one device`: OneDevice, one thread, batch B: T1.
/// - `strong N`, `weak N`: Mirrored, N replicas, global batch B and N B. `speed-up` is T1/T and N
///   T1/T.
/// - `split N`, `apart N`: N independent one-device models in N threads at once, batch B/N and B,
///   without waits and exchanges: the machine's own limit on strong and weak scaling. Only if each
///   has a core: otherwise they would not run at the same time.
///
/// Then the terms of the bounds for two replicas: P is the optimizer's pass over as many
/// parameters, R the exchange of as many bytes by two replicas that start together. Both are
/// measured alone, in turn with the steps.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
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
#include "seed_step.hpp"

namespace ls = lockstep;

namespace {

using measure::ModelOn, measure::OneDevice, measure::Samples, measure::Step, measure::Timed;
using Mirrored = ls::Mirrored<ls::Cpu>;

struct Options : measure::Turns {
  std::size_t replicas = 8;
  bool bound = false;
};

Mirrored mirrored(std::size_t replicas, bool bound) {
  if (!bound) return {.replicas = replicas, .on = {.threads = 1}};
  Mirrored strategy;
  for (std::size_t i = 0; i < replicas; ++i)
    strategy.devices.push_back({.index = static_cast<int>(i), .threads = 1});
  return strategy;
}

/// Runs `count` one-device models in as many threads at the same time.
std::vector<Step> run_apart(std::size_t count, const measure::Images& data, std::size_t batch,
                            const measure::Turns& turns) {
  std::vector<std::vector<Step>> found(count);
  std::vector<std::thread> threads;
  measure::StartLine line(count);
  for (std::size_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      const Timed<OneDevice> strategy{measure::one_device()};
      auto model = measure::model_on(strategy);
      line.wait();
      found[i] = fit(model, *strategy.recorder, data, batch, turns);
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
    for (int i = 0; i < samples; ++i) one_.add_to(update);
    two_.each([&](const ls::ReplicaContext<ls::Cpu>& r) {
      std::vector<float>& gradients = gradients_[r.local];
      for (int i = 0; i < samples; ++i) {
        std::fill(gradients.begin(), gradients.end(),
                  1.0f);  // written by this core, as after backward
        together_.time(r.local, exchange, [&] {
          std::array<double, 6> sums{};
          r.exchange.finish(gradients.data(), size, sums.data(), sums.size());
        });
      }
    });
  }

 private:
  static constexpr std::size_t size = measure::Cnn::parameter_count;
  static constexpr int samples = 40;

  measure::UpdateAlone one_;
  Mirrored::Session two_;
  std::array<std::vector<float>, 2> gradients_{std::vector<float>(size), std::vector<float>(size)};
  measure::Together together_{2};
};

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Scaling of Mirrored<Cpu>, one thread per replica", "scaling");
  app.add_option("--replicas", o.replicas, "maximum number of replicas")->check(CLI::Range(1, 64));
  o.add_to(app);
  app.add_flag("--bound", o.bound, "bind each replica of Mirrored to its share of the cores");
  CLI11_PARSE(app, argc, argv);
  fmt::print("{}; {} rounds of {} steps\n", measure::machine(), o.rounds, o.steps);

  const measure::Images data = measure::images();
  std::vector<std::unique_ptr<ModelOn<Mirrored>>> models;
  const Timed<OneDevice> alone{measure::one_device()};
  auto one = measure::model_on(alone);
  measure::Table table;
  table.rows.push_back(
      {"one device", 1, [&] { return fit(one, *alone.recorder, data, o.batch, o); }});
  for (std::size_t n = 1; n <= o.replicas; ++n) {
    const Timed<Mirrored> strategy{mirrored(n, o.bound)};
    models.push_back(std::make_unique<ModelOn<Mirrored>>(measure::model_on(strategy)));
    const auto add = [&](const char* name, double devices, std::size_t batch) {
      table.rows.push_back({fmt::format("{}{}", name, n), devices,
                            [&, batch, recorder = strategy.recorder, model = models.back().get()] {
                              return fit(*model, *recorder, data, batch, o);
                            }});
    };
    add("strong ", 1, o.batch);
    if (n == 1) continue;
    add("weak ", static_cast<double>(n), n * o.batch);
    if (n > std::thread::hardware_concurrency()) continue;
    table.rows.push_back({fmt::format("split {}", n), 1, [&, n] {
                            return run_apart(n, data, std::max<std::size_t>(o.batch / n, 1), o);
                          }});
    table.rows.push_back({fmt::format("apart {}", n), static_cast<double>(n),
                          [&, n] { return run_apart(n, data, o.batch, o); }});
  }
  Terms terms(o.bound);
  const measure::Neighbours neighbours;
  for (std::size_t round = 0; round < o.rounds; ++round) {
    table.turn();
    terms.measure();
  }

  fmt::print("other processes used {:.0f} % of the cores\n", neighbours.percent());
  table.print();
  if (o.replicas >= 2) measure::print_bounds("replicas", table, terms.update, terms.exchange, 1.8);
}
