// expect: lockstep::window: a window has a single weight, but its examples have one each; put
#include "lockstep/data/operations/sample_weights.hpp"
#include "lockstep/data/operations/window.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(1), std::vector<float>(8), ls::shape(1));
  return static_cast<int>(
      (data | ls::sample_weights(std::vector<float>(8)) | ls::window(2)).size().value_or(0));
}
