// expect: lockstep::Tensors: features are std::uint8_t, float or double; convert them
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<int>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  return static_cast<int>(data.size().value_or(0));
}
