// expect: lockstep::Losses: the output of 'TheHead' has two losses; remove one
#include "lockstep/heads.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<4>, ls::Dense<11>> {
  static constexpr std::array<ls::RowPart, 2> outputs{
      {{"digit", ls::shape(10), 0}, {"even", ls::shape(1), 10}}};
};
int main() {
  ls::Model model{
      Net{}, ls::OneDevice<ls::Reference<float>>{},
      ls::Losses{ls::Head<"digit", ls::SparseCategoricalCrossentropy>{},
                 ls::Head<"even", ls::BinaryCrossentropy>{}, ls::Head<"even", ls::Hinge>{}},
      ls::SGD{}};
  return static_cast<int>(model.steps());
}
