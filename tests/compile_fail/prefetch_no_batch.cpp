// expect: lockstep::prefetch: the pipeline has no batch yet; put prefetch after batch
#include "lockstep/data/operations/prefetch.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  return static_cast<int>((data | ls::prefetch(2)).size().value_or(0));
}
