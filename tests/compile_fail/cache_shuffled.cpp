// expect: lockstep::cache: a shuffle or repeat before cache would freeze the order; put
#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  return static_cast<int>((data | ls::shuffle(4) | ls::cache).size().value_or(0));
}
