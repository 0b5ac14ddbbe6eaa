// expect: lockstep::validation_split: an operation between shuffle and batch cannot be split; put
#include "lockstep/data/operations/concatenate.hpp"
#include "lockstep/data/operations/validation_split.hpp"

namespace ls = lockstep;
constexpr auto noise = [](auto& example, ls::Philox& g) {
  example.x[0] += static_cast<float>(g.uniform());
};
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(1), std::vector<float>(8), ls::shape(1));
  return static_cast<int>(ls::validation_split(0.5)
                              .parts(data | ls::shuffle(8) | ls::concatenate(data) | ls::batch(1))
                              .first.batch_size());
}
