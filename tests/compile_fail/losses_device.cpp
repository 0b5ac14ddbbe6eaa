// expect: lockstep::Kernel: 'Op' has no kernel for device 'D'
#include "../archetypes/archetypes.hpp"
#include "lockstep/heads.hpp"
#include "lockstep/lockstep.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<4>, archetype::Scale> {
  static constexpr std::array<ls::RowPart, 1> outputs{{{"sum", ls::shape(4), 0}}};
};
int main() {
  ls::Model model{Net{}, archetype::Strategy{}, ls::Losses{ls::Head<"sum", ls::Hinge>{}},
                  ls::SGD{}};
  return static_cast<int>(model.steps());
}
