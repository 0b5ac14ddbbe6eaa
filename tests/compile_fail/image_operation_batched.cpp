// expect: lockstep::ImageOperation: the pipeline is already batched; put image operations before batch
#include "lockstep/data/images/random_flip.hpp"
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(2, 2, 2), std::vector<float>(1), ls::shape(1));
  return static_cast<int>((data | ls::batch(1) | ls::random_flip_left_right).size().value_or(0));
}
