// expect: lockstep::zip: a pipeline is already batched; put batch after zip
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/zip.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  return static_cast<int>((ls::zip(data | ls::batch(1), data)).size().value_or(0));
}
