// expect: lockstep::cache: a random map before cache would freeze its draws; put cache
#include "lockstep/data/images/random_crop.hpp"
#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(2, 2, 2), std::vector<float>(1), ls::shape(1));
  return static_cast<int>((data | ls::random_crop(1, 1) | ls::cache).size().value_or(0));
}
