// expect: lockstep::Tensors: targets are std::int32_t (class labels), float or double (real
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<long>(1), ls::shape(1));
  return static_cast<int>(data.size().value_or(0));
}
