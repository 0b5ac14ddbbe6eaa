// expect: lockstep::skip: the pipeline is already batched; put skip before batch
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/skip.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  return static_cast<int>((data | ls::batch(1) | ls::skip(1)).size().value_or(0));
}
