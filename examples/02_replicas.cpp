// Shows that replicas do not change the result: four replicas in one process train as one device
// does, because the gradients of a global batch are summed before each update.
// Run it with `./dev replicas`.
//
// Expected output:
//   1 replica:  loss ...
//   4 replicas: loss ...
//   losses agree within 1e-5: yes
#include <fmt/format.h>
#include <cmath>
#include <utility>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;

namespace {

struct Net
    : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<32, ls::relu>, ls::Dense<10>> {};

/// The loss of the last epoch. The strategy is the only difference between the calls.
double trained_loss(auto strategy) {
  const auto train = ls::datasets::digits().train() | ls::take(2'000) | ls::rescale(1.0f / 255) |
                     ls::cache | ls::shuffle(2'000) | ls::batch(100);  // the global batch
  ls::Model model{Net{},
                  ls::Seed{1},
                  std::move(strategy),
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::SGD{.learning_rate = 0.05},
                  ls::Accuracy{}};
  return model.fit(train, {.epochs = 2, .progress = ls::ProgressStyle::none})["loss"].back();
}

}  // namespace

int main() {
  ls::set_log({});  // no line about the number of replicas and threads
  const double one = trained_loss(ls::OneDevice<ls::Cpu>{.on = {.threads = 1}});
  const double four = trained_loss(ls::Mirrored<ls::Cpu>{.replicas = 4, .on = {.threads = 1}});
  fmt::print("1 replica:  loss {:.6f}\n4 replicas: loss {:.6f}\n", one, four);
  fmt::print("losses agree within 1e-5: {}\n", std::abs(one - four) < 1e-5 ? "yes" : "no");
}
