// expect: lockstep::Predictor: the device does not compute in the host's memory; write
#include "lockstep/predictor.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct Far : ls::Reference<float> {
  static constexpr bool is_host = false;
};
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<1>> {};
int main() {
  const ls::Predictor<Net, Far> predictor("w.safetensors");
  return static_cast<int>(predictor.predict(std::vector<float>(8)).count());
}
