// expect: lockstep::sample_weights: after a shuffle or repeat, weights cannot be matched
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/sample_weights.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(1), std::vector<float>(8), ls::shape(1));
  return static_cast<int>(
      (data | ls::shuffle(8) | ls::sample_weights(std::vector<float>(8))).size().value_or(0));
}
