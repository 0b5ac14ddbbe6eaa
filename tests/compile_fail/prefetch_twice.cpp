// expect: lockstep::prefetch: the pipeline already prefetches; write it once
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/prefetch.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  return static_cast<int>(
      (data | ls::batch(1) | ls::prefetch(2) | ls::prefetch(2)).size().value_or(0));
}
