// expect: lockstep::Losses: 'output', an output of the network, has no loss; add an
#include "lockstep/heads.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<4>, ls::Dense<11>> {
  static constexpr std::array<ls::RowPart, 2> outputs{
      {{"digit", ls::shape(10), 0}, {"even", ls::shape(1), 10}}};
};
int main() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{},
                  ls::Losses{ls::Head<"digit", ls::SparseCategoricalCrossentropy>{}}, ls::SGD{}};
  return static_cast<int>(model.steps());
}
