// expect: lockstep::Predictor: the first argument is not a network; derive it from
#include "lockstep/predictor.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct Block : ls::Sequential<ls::Dense<1>> {};
int main() {
  ls::Predictor<Block, ls::Reference<float>> predictor("w.safetensors");
  std::vector<float> x(8), y(1);
  predictor(x, y);
  predictor.load_weights("new.safetensors");
  predictor.reserve(2);
  return static_cast<int>(predictor.predict(x).count() + predictor.memory().total());
}
