// Adversarial examples: each pixel moves a little in the direction that raises the loss (the fast
// gradient sign method, Goodfellow et al., 2015), and a model that trains on such images resists
// them. Run it with `./dev adversarial`.
//
// Expected output:
//   trained as usual: above 0.9 on digits, below 0.5 on changed ones
//   trained on changed digits, too: above 0.6 on changed ones
#include <fmt/format.h>
#include <cstddef>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;

namespace {

struct Net
    : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<64, ls::relu>, ls::Dense<10>> {};

const auto digits = ls::datasets::digits();
const auto scale = ls::rescale(1.0f / 255);
const auto none = ls::ProgressStyle::none;

auto new_model() {
  return ls::Model{Net{}, ls::OneDevice<ls::Cpu>{.on = {.threads = 1}},
                   ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::Adam{},
                   ls::Accuracy{}};
}

/// The images of a batch, each pixel changed by 0.05.
template <class Model>
std::vector<float> changed(Model& model, const typename Model::Batch& batch) {
  const auto dx = model.input_gradients(batch);
  std::vector<float> x(batch.x().begin(), batch.x().end());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += dx[i] > 0 ? 0.05f : dx[i] < 0 ? -0.05f : 0.0f;
  return x;
}

/// Accuracy on 500 images, changed or not.
template <class Model>
double accuracy(Model& model, bool on_changed) {
  const auto test = ls::collect(digits.test() | scale | ls::take(500));
  const auto batch = model.batch(test.features, test.targets);
  const auto x = on_changed ? changed(model, batch) : test.features;
  return model.test_step(batch.with_inputs(x))["accuracy"];
}

}  // namespace

int main() {
  const auto train = digits.train() | scale | ls::take(3'000) | ls::shuffle(3'000) | ls::batch(50);
  auto usual = new_model();
  usual.fit(train, {.epochs = 3, .progress = none});
  fmt::print("trained as usual: {} 0.9 on digits, {} 0.5 on changed ones\n",
             accuracy(usual, false) > 0.9 ? "above" : "below",
             accuracy(usual, true) < 0.5 ? "below" : "above");

  auto robust = new_model();
  robust.fit(train, {.epochs = 6, .progress = none}, [&](const auto& batch) {
    const auto x = changed(robust, batch);
    auto gradients = robust.gradients_of(batch);
    gradients += robust.gradients_of(batch.with_inputs(x));
    gradients *= 0.5;
    robust.apply(gradients);
  });
  fmt::print("trained on changed digits, too: {} 0.6 on changed ones\n",
             accuracy(robust, true) > 0.6 ? "above" : "below");
}
