// expect: lockstep::map: a map that changes the shape is called with 'std::span<const float>
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  return static_cast<int>(
      (data | ls::map<ls::shape(1)>([](float) { return 0.0f; })).size().value_or(0));
}
