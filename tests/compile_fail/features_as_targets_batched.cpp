// expect: lockstep::features_as_targets: the pipeline is already batched; put features_as_targets
// before batch
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/features_as_targets.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  return static_cast<int>((data | ls::batch(1) | ls::features_as_targets).size().value_or(0));
}
