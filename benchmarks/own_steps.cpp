// Measures what a program's own training steps cost: the tutorials' CNN on one thread, 100 steps of
// 64 digits each, written as fit, as fit with a step, as a loop, and in halves. The ways run in
// turn. Prints the time of a step, and its ratio to that of fit.
#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>

namespace ls = lockstep;

namespace {

struct Cnn : ls::Sequential<ls::Input<28, 28, 1>, ls::Conv2D<32, 3>, ls::ReLU, ls::MaxPooling2D<>,
                            ls::Flatten, ls::Dense<64>, ls::ReLU, ls::Dense<10>> {};

constexpr int steps = 100, rounds = 13;

const auto train = ls::datasets::digits().train() | ls::rescale(1.0f / 255) | ls::take(64 * steps) |
                   ls::cache | ls::shuffle(64 * steps) | ls::batch(64);
const ls::FitOptions quiet{.epochs = 1, .progress = ls::ProgressStyle::none};

auto new_model() {
  return ls::Model{Cnn{}, ls::OneDevice<ls::Cpu>{.on = {.threads = 1}},
                   ls::SparseCategoricalCrossentropy{.from_logits = true},
                   ls::SGD{.learning_rate = 0.001}, ls::Accuracy{}};
}

struct Way {
  const char* name;
  std::vector<double> times{};

  template <class F>
  void run(const F& f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count() /
        steps);
  }
  double median() {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
};

}  // namespace

int main() {
  auto fitted = new_model(), stepped = new_model(), looped = new_model(), halves = new_model(),
       inputs = new_model();
  std::vector<Way> ways{{"fit"},
                        {"fit with train_step"},
                        {"a loop with train_step"},
                        {"gradients_of and apply"},
                        {"input_gradients"}};
  for (int round = 0; round < rounds; ++round) {
    ways[0].run([&] { fitted.fit(train, quiet); });
    ways[1].run(
        [&] { stepped.fit(train, quiet, [&](const auto& batch) { stepped.train_step(batch); }); });
    ways[2].run([&] {
      for (const auto& batch : looped.batches(train)) looped.train_step(batch);
    });
    ways[3].run([&] {
      halves.fit(train, quiet,
                 [&](const auto& batch) { halves.apply(halves.gradients_of(batch)); });
    });
    ways[4].run([&] {
      for (const auto& batch : inputs.batches(train)) inputs.input_gradients(batch);
    });
  }
  for (Way& way : ways)
    fmt::print("{:24} median {:7.1f} us, min {:7.1f} us a step, {:.3f} of fit\n", way.name,
               way.median(), way.times.front(), way.median() / ways[0].median());
}
