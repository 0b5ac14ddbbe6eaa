// expect: lockstep::map: the pipeline is already batched; put map before batch
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
constexpr auto first = [](std::span<const float> in, std::span<float> out) { out[0] = in[0]; };
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  return static_cast<int>((data | ls::batch(1) | ls::map<ls::shape(1)>(first)).size().value_or(0));
}
