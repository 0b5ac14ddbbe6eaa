// Knowledge distillation: a small student learns from the probabilities that a larger teacher gives
// to each augmented image, computed within the training step of `fit`. Run it with
// `./dev distillation`.
//
// Expected output:
//   teacher above 0.9: yes
//   student above 0.8: yes
#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;

namespace {

struct Teacher : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<128, ls::relu>,
                                ls::Dense<10>, ls::Softmax> {};
struct Student
    : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<12, ls::relu>, ls::Dense<10>> {};

const auto digits = ls::datasets::digits();
const auto scale = ls::rescale(1.0f / 255);
const auto none = ls::ProgressStyle::none;
const ls::OneDevice<ls::Cpu> device{.on = {.threads = 1}};

/// The first images, with one-hot targets.
auto one_hot(const auto& data, std::size_t count) {
  const auto all = ls::collect(data | scale | ls::take(count));
  std::vector<float> targets(10 * count);
  for (std::size_t i = 0; i < count; ++i)
    targets[10 * i + static_cast<std::size_t>(all.targets[i])] = 1;
  return ls::tensors(all.features, ls::shape(28, 28, 1), targets, ls::shape(10));
}

}  // namespace

int main() {
  const auto train = one_hot(digits.train(), 2'000) | ls::shuffle(2'000) |
                     ls::resize_with_crop_or_pad(30, 30) | ls::random_crop(28, 28) | ls::batch(50);
  const auto test = one_hot(digits.test(), 500) | ls::batch(100);

  ls::Model teacher{Teacher{}, device, ls::CategoricalCrossentropy{}, ls::Adam{}, ls::Accuracy{}};
  teacher.fit(train, {.epochs = 3, .progress = none});
  fmt::print("teacher above 0.9: {}\n", teacher.evaluate(test)["accuracy"] > 0.9 ? "yes" : "no");

  ls::Model student{Student{}, device, ls::CategoricalCrossentropy{.from_logits = true},
                    ls::Adam{.learning_rate = 0.003}, ls::Accuracy{}};
  // --8<-- [start:step]
  student.fit(train, {.epochs = 4, .progress = none}, [&](const auto& batch) {
    const auto soft = teacher.predict(batch);
    std::vector<float> targets(batch.y().begin(), batch.y().end());
    for (std::size_t i = 0; i < targets.size(); ++i)
      targets[i] = 0.5f * targets[i] + 0.5f * soft.elements()[i];
    student.train_step(batch.with_targets(targets));
  });
  // --8<-- [end:step]
  fmt::print("student above 0.8: {}\n", student.evaluate(test)["accuracy"] > 0.8 ? "yes" : "no");
}
