// expect: lockstep::TextGenerator: an attention layer reads later steps, another value or a
#include "lockstep/predictor.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/text_generator.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Embedding<5, 4>, ls::MultiHeadAttention<2, 2>,
                            ls::Dense<5>> {};
int main() {
  const ls::TextGenerator<Net, ls::Reference<float>> generator("w.safetensors");
  auto text = generator.sequence();
  const auto made = generator.generate(std::vector<int>{1}, {.tokens = 3}, [](int) {});
  return static_cast<int>(text.append(1).size() + made.size() + text.generate().size() +
                          generator.memory().total());
}
