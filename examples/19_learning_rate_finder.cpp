// Finds a learning rate: it grows from step to step, and the loss first falls, then explodes (Smith,
// 2017). A good rate is a tenth of the one with the smallest loss. Run it with
// `./dev learning_rate_finder`.
//
// Expected output:
//   the loss falls, then explodes: yes
//   a rate between 0.001 and 1: yes
//   accuracy above 0.8 with it: yes
#include <fmt/format.h>
#include <cmath>
#include <limits>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;

namespace {

struct Net
    : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<32, ls::relu>, ls::Dense<10>> {};

const auto digits = ls::datasets::digits();
const auto scale = ls::rescale(1.0f / 255);

auto new_model(double rate) {
  return ls::Model{Net{}, ls::OneDevice<ls::Cpu>{.on = {.threads = 1}},
                   ls::SparseCategoricalCrossentropy{.from_logits = true},
                   ls::SGD{.learning_rate = rate}, ls::Accuracy{}};
}

}  // namespace

int main() {
  const auto train = digits.train() | scale | ls::shuffle(10'000) | ls::repeat | ls::batch(32);
  auto probe = new_model(1e-4);
  double first = 0, smooth = 0, best = std::numeric_limits<double>::infinity(), best_rate = 0;
  bool explodes = false;
  for (const auto& batch : probe.batches(train)) {
    const double loss = probe.train_step(batch)["loss"];
    if (probe.steps() == 1) first = smooth = loss;
    smooth = 0.9 * smooth + 0.1 * loss;
    if (smooth < best) {
      best = smooth;
      best_rate = probe.learning_rate();
    }
    explodes = !std::isfinite(smooth) || smooth > 4 * best;
    if (explodes) break;
    probe.set_learning_rate(1.1 * probe.learning_rate());
  }
  const double rate = best_rate / 10;
  fmt::print("the loss falls, then explodes: {}\n", explodes && best < first ? "yes" : "no");
  fmt::print("a rate between 0.001 and 1: {}\n", rate > 0.001 && rate < 1 ? "yes" : "no");

  auto model = new_model(rate);
  model.fit(train, {.epochs = 1, .steps_per_epoch = 300, .progress = ls::ProgressStyle::none});
  const auto test = digits.test() | scale | ls::take(500) | ls::batch(100);
  fmt::print("accuracy above 0.8 with it: {}\n",
             model.evaluate(test)["accuracy"] > 0.8 ? "yes" : "no");
}
