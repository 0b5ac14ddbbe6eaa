// expect: lockstep::shuffle: the pipeline is already batched; put shuffle before batch
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  return static_cast<int>((data | ls::batch(1) | ls::shuffle(4)).size().value_or(0));
}
