// expect: lockstep::concatenate: one pipeline has class labels, the other real-valued
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/concatenate.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(8), std::vector<float>(1), ls::shape(1));
  return static_cast<int>((data | ls::concatenate(ls::tensors(std::vector<float>(8), ls::shape(8),
                                                              std::vector<int>(1))))
                              .size()
                              .value_or(0));
}
