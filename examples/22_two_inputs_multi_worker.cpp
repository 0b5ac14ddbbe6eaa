// Two inputs and two outputs, in several processes: do two images show the same digit, and which one
// is the left one? Run two processes here with `./dev lockstep-run -n 2 two_inputs_multi_worker`.
//
// Expected output:
//   digit above 0.8: true
//   same above 0.75: true
#include <fmt/format.h>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include <lockstep/cluster.hpp>
#include <lockstep/cpu.hpp>
#include <lockstep/heads.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;

namespace {

// --8<-- [start:network]
struct Eye : ls::Sequential<ls::Flatten, ls::Dense<64, ls::relu>> {};
struct Pair : ls::Graph<ls::In<"left", 28, 28, 1>, ls::In<"right", 28, 28, 1>,
                        ls::Let<"a", ls::From<"left">, ls::Shared<"eye", Eye>>,
                        ls::Let<"b", ls::From<"right">, ls::Shared<"eye", Eye>>,
                        ls::Let<"difference", ls::From<"a", "b">, ls::Subtract>,
                        ls::Let<"square", ls::From<"difference", "difference">, ls::Multiply>,
                        ls::Out<"digit", ls::From<"a">, ls::Dense<10, ls::softmax>>,
                        ls::Out<"same", ls::From<"square">, ls::Dense<1, ls::sigmoid>>> {};
// --8<-- [end:network]

// --8<-- [start:data]
/// Pairs each image with another one, in half of the pairs with one of the same digit.
struct Examples {
  std::vector<float> left, right, same{};
  std::vector<std::int32_t> digit;
  explicit Examples(const auto& images) : left(images.features), digit(images.targets) {
    for (std::size_t i = 0, n = digit.size(); i < n; ++i) {
      std::size_t other = (i + 1) % n;
      while (i % 2 == 0 && digit[other] != digit[i]) other = (other + 1) % n;
      const auto x = std::span(left).subspan(784 * other, 784);
      right.insert(right.end(), x.begin(), x.end());
      same.push_back(digit[other] == digit[i] ? 1.0f : 0.0f);
    }
  }
  /// The fields have the names of the network's inputs and outputs.
  auto fields() const {
    return ls::named(ls::feature("left", left, ls::shape(28, 28, 1)),
                     ls::feature("right", right, ls::shape(28, 28, 1)), ls::target("digit", digit),
                     ls::target("same", same, ls::shape(1)));
  }
};
// --8<-- [end:data]

void train(std::stop_token stop) {
  const auto digits = ls::datasets::digits();
  const auto scale = ls::rescale(1.0f / 255);
  const Examples train(ls::collect(digits.train() | ls::take(4'000) | scale));
  const Examples test(ls::collect(digits.test() | ls::take(500) | scale));
  // --8<-- [start:model]
  ls::Model model{Pair{},
                  ls::MultiWorkerMirrored<ls::Cpu>{.on = {.threads = 1}},
                  ls::Losses{ls::Head<"digit", ls::SparseCategoricalCrossentropy>{},
                             ls::Head<"same", ls::BinaryCrossentropy>{}},
                  ls::Adam{.learning_rate = 0.002},
                  ls::On<"digit", ls::Accuracy>{},
                  ls::On<"same", ls::BinaryAccuracy>{}};
  const auto batches = ls::examples(model, train.fields()) | ls::shuffle(4'000) | ls::batch(50);
  model.fit(batches, {.epochs = 6, .stop = stop, .progress = ls::ProgressStyle::none});
  const auto logs = model.evaluate(ls::examples(model, test.fields()) | ls::batch(100));
  // --8<-- [end:model]
  if (model.rank() != 0) return;
  fmt::print("digit above 0.8: {}\n", logs["digit_accuracy"] > 0.8);
  fmt::print("same above 0.75: {}\n", logs["same_binary_accuracy"] > 0.75);
}

}  // namespace

int main() { return ls::run_main(train); }
