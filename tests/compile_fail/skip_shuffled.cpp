// expect: lockstep::skip: a shuffle before skip would drop other examples in each pass; put
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/skip.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(1), std::vector<float>(8), ls::shape(1));
  return static_cast<int>((data | ls::shuffle(8) | ls::skip(1)).size().value_or(0));
}
