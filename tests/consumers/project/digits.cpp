#include "digits.hpp"

#include <cstddef>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>

namespace ls = lockstep;

namespace {
struct Net
    : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<16, ls::relu>, ls::Dense<10>> {};
}  // namespace

struct Digits::State {
  ls::Model<Net, ls::OneDevice<ls::Cpu>, ls::SparseCategoricalCrossentropy, ls::Adam> model{
      Net{}, ls::OneDevice<ls::Cpu>{.on = {.threads = 1}}, {.from_logits = true}, {}};
};

Digits::Digits() : state_(std::make_unique<State>()) {}
Digits::~Digits() = default;

double Digits::train(int examples) {
  const auto data = ls::datasets::mnist("none", ls::datasets::digits()).train() |
                    ls::take(static_cast<std::size_t>(examples)) | ls::rescale(1.0 / 255) |
                    ls::batch(32);
  const auto history = state_->model.fit(data, {.progress = ls::ProgressStyle::none});
  return history["loss"].back();
}
