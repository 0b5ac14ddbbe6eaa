// expect: lockstep::map: the function must be callable as const with this pipeline's
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  return static_cast<int>((data | ls::map([](int) {})).size().value_or(0));
}
