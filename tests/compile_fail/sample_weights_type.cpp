// expect: lockstep::sample_weights: weights are float or double; convert them
#include "lockstep/data/operations/sample_weights.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(1), std::vector<float>(8), ls::shape(1));
  return static_cast<int>((data | ls::sample_weights(std::vector<int>(8))).size().value_or(0));
}
