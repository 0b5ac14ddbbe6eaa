// Trains a small convolutional network on MNIST, or on drawn digits if there is no data/mnist.
// Run it with `./dev quickstart`.
//
// Expected output:
//   Epoch 1/3
//   5/5 - ... - accuracy: ... - loss: ...
//   Epoch 2/3
//   5/5 - ... - accuracy: ... - loss: ...
//   Epoch 3/3
//   5/5 - ... - accuracy: ... - loss: ...
// clang-format off
#include <lockstep/lockstep.hpp>
#include <lockstep/cpu.hpp>                       // or <lockstep/reference.hpp>: the only line that names a device's backend
namespace ls = lockstep;

struct Cnn : ls::Sequential<ls::Input<28, 28, 1>, // height, width, channels: NHWC, the batch is a run-time number
    ls::Conv2D<32, 3>, ls::ReLU,
    ls::MaxPooling2D<>, ls::Flatten,
    ls::Dense<64>, ls::ReLU,
    ls::Dense<10>> {};                            // 347,146 parameters, a constant expression

int main() {
  auto train = ls::datasets::mnist("data/mnist", ls::datasets::digits()).train()  // drawn digits if there is no such folder
             | ls::rescale(1.0f / 255) | ls::cache | ls::shuffle(10'000) | ls::batch(64);
  ls::Model model{Cnn{}, ls::OneDevice<ls::Cpu>{},   // the one line that changes
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::SGD{.learning_rate = 0.001f}, ls::Accuracy{}};
  auto history = model.fit(train, {.epochs = 3, .steps_per_epoch = 5});
}
