// expect: lockstep::cache: a random map before cache would freeze its draws; put cache
#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
constexpr auto noise = [](auto& example, ls::Philox& g) {
  example.x[0] += static_cast<float>(g.uniform());
};
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  return static_cast<int>((data | ls::map(noise) | ls::cache).size().value_or(0));
}
