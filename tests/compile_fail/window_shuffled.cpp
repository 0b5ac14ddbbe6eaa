// expect: lockstep::window: a shuffle or repeat before window would separate
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/window.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
constexpr auto noise = [](auto& example, ls::Philox& g) {
  example.x[0] += static_cast<float>(g.uniform());
};
constexpr auto all = [](const auto&) { return true; };
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(8), ls::shape(8));
  return static_cast<int>((data | ls::shuffle(8) | ls::window(2)).size().value_or(0));
}
