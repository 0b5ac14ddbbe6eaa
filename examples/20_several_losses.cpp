// Several losses on one network: the class of an image, and how much ink it has. The program computes
// both losses' derivatives by the outputs itself, so that no loss needs to be declared. Run it with
// `./dev several_losses`.
//
// Expected output:
//   accuracy above 0.8: yes
//   ink within 0.05: yes
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;

namespace {

/// Ten logits, then the mean brightness.
struct Net
    : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<64, ls::relu>, ls::Dense<11>> {};

double ink_of(std::span<const float> image) {
  return std::accumulate(image.begin(), image.end(), 0.0) / static_cast<double>(image.size());
}

}  // namespace

int main() {
  const auto digits = ls::datasets::digits();
  const auto scale = ls::rescale(1.0f / 255);
  const auto train = digits.train() | scale | ls::take(3'000) | ls::shuffle(3'000) | ls::batch(50);
  ls::Model model{Net{}, ls::OneDevice<ls::Cpu>{.on = {.threads = 1}},
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::Adam{}};

  model.fit(train, {.epochs = 8, .progress = ls::ProgressStyle::none}, [&](const auto& batch) {
    const auto y = model.predict(batch);
    std::vector<float> dy(11 * batch.size());
    const auto n = static_cast<float>(batch.global_size());
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const std::span<const float> out = y.row(i);
      double sum = 0;
      for (std::size_t k = 0; k < 10; ++k) sum += std::exp(static_cast<double>(out[k]));
      for (std::size_t k = 0; k < 10; ++k) {  // crossentropy: softmax - one-hot
        const double p = std::exp(static_cast<double>(out[k])) / sum;
        const double is_label = static_cast<std::size_t>(batch.y()[i]) == k ? 1 : 0;
        dy[11 * i + k] = static_cast<float>(p - is_label) / n;
      }
      const double ink = ink_of(batch.x().subspan(784 * i, 784));  // 25 times the squared error
      dy[11 * i + 10] = static_cast<float>(50 * (static_cast<double>(out[10]) - ink)) / n;
    }
    model.apply(model.gradients_of(batch, dy));
  });

  const auto test = ls::collect(digits.test() | scale | ls::take(500));
  const auto y = model.predict(test.features);
  double right = 0, error = 0;
  for (std::size_t i = 0; i < 500; ++i) {
    const auto out = y.row(i).first(10);
    const auto best = std::max_element(out.begin(), out.end()) - out.begin();
    right += best == test.targets[i];
    error += std::abs(static_cast<double>(y.row(i)[10]) -
                      ink_of(std::span(test.features).subspan(784 * i, 784)));
  }
  fmt::print("accuracy above 0.8: {}\n", right / 500 > 0.8 ? "yes" : "no");
  fmt::print("ink within 0.05: {}\n", error / 500 < 0.05 ? "yes" : "no");
}
