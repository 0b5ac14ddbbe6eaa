// expect: lockstep::Predictor: the second argument is not a device; write ls::Cpu, and
#include "lockstep/predictor.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<1>> {};
int main() {
  const ls::Predictor<Net, float> predictor("w.safetensors");
  return static_cast<int>(predictor.predict(std::vector<float>(8)).count());
}
