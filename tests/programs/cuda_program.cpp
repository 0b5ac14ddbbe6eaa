// A program as users of ls::Cuda write it. tests/programs/cuda.py compiles it with each compiler.
#include <cstdio>

#include <lockstep/cuda.hpp>
#include <lockstep/lockstep.hpp>

namespace ls = lockstep;

struct Net : ls::Sequential<ls::Input<28, 28, 1>, ls::Conv2D<4, 3>, ls::BatchNormalization<>,
                            ls::ReLU, ls::MaxPooling2D<>, ls::Flatten, ls::Dense<10>> {};

int main() {
  try {
    auto train = ls::datasets::digits().train() | ls::rescale(1.0 / 255) | ls::batch(64);
    ls::Model model{Net{}, ls::OneDevice<ls::Cuda>{},
                    ls::SparseCategoricalCrossentropy{.from_logits = true},
                    ls::SGD{.learning_rate = 0.01}, ls::Accuracy{}};
    const auto history = model.fit(train, {.epochs = 2, .progress = ls::ProgressStyle::none});
    std::puts(history["loss"][1] < history["loss"][0] ? "it learns" : "it does not");
  } catch (const ls::Error& e) {
    std::puts(e.what());
  }
}
