// expect: lockstep::Predictor: the network has no layer; add one after Input
#include "lockstep/predictor.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct Empty : ls::Sequential<ls::Input<8>> {};
int main() {
  const ls::Predictor<Empty, ls::Reference<float>> predictor("w.safetensors");
  return static_cast<int>(predictor.predict(std::vector<float>(8)).count());
}
