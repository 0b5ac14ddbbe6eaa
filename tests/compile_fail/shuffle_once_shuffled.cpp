// expect: lockstep::shuffle_once: a shuffle or repeat before shuffle_once changes the order in each pass; put
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/shuffle_once.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(1), std::vector<float>(8), ls::shape(1));
  return static_cast<int>((data | ls::shuffle(8) | ls::shuffle_once()).size().value_or(0));
}
