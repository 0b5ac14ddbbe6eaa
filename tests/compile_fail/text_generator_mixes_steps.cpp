// expect: lockstep::TextGenerator: 'Op' computes a step from others; use layers that act on
#include "lockstep/predictor.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/text_generator.hpp"

namespace ls = lockstep;
struct Net
    : ls::Sequential<ls::Input<8>, ls::Embedding<5, 4>, ls::Conv1D<5, 3, ls::Padding::same>> {};
int main() {
  const ls::TextGenerator<Net, ls::Reference<float>> generator("w.safetensors");
  auto text = generator.sequence();
  const auto made = generator.generate(std::vector<int>{1}, {.tokens = 3}, [](int) {});
  return static_cast<int>(text.append(1).size() + made.size() + text.generate().size() +
                          generator.memory().total());
}
