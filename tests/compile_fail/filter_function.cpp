// expect: lockstep::filter: the function must be callable as const with this pipeline's
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/filter.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
constexpr auto noise = [](auto& example, ls::Philox& g) {
  example.x[0] += static_cast<float>(g.uniform());
};
constexpr auto all = [](const auto&) { return true; };
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(8), ls::shape(8));
  return static_cast<int>((data | ls::filter([](int) { return true; })).size().value_or(0));
}
