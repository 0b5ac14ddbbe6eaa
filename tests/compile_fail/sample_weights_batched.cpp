// expect: lockstep::sample_weights: the pipeline is already batched; put sample_weights
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/sample_weights.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(1), std::vector<float>(8), ls::shape(1));
  return static_cast<int>(
      (data | ls::batch(2) | ls::sample_weights(std::vector<float>(8))).size().value_or(0));
}
