// expect: lockstep::Predictor: the second argument is not a device; write ls::Cpu, and
#include "lockstep/predictor.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/text_generator.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Embedding<5, 4>, ls::Dense<5>> {};
int main() {
  const ls::TextGenerator<Net, float> generator("w.safetensors");
  return static_cast<int>(generator.memory().total());
}
