// expect: lockstep::Losses: the loss in 'TheHead' has a kernel of its own; give its op 'example'
#include "lockstep/heads.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct SumOp {};
struct Sum {
  using target_type = float;
  static constexpr std::string_view name = "sum";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr ls::Shape target_shape(ls::Shape out) { return out; }
  constexpr SumOp op(ls::Shape) const { return {}; }
};
struct Net : ls::Sequential<ls::Input<4>, ls::Dense<2>> {
  static constexpr std::array<ls::RowPart, 1> outputs{{{"sum", ls::shape(2), 0}}};
};
int main() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::Losses{ls::Head<"sum", Sum>{}},
                  ls::SGD{}};
  return static_cast<int>(model.steps());
}
