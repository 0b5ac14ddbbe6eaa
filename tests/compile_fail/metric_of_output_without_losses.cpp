// expect: lockstep::Model: 'M' is a metric of an output by name, but the loss is that of the
#include "lockstep/heads.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<4>, ls::Dense<11>> {
  static constexpr std::array<ls::RowPart, 2> outputs{
      {{"digit", ls::shape(10), 0}, {"even", ls::shape(1), 10}}};
};
int main() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{}, ls::SGD{},
                  ls::On<"digit", ls::Accuracy>{}};
  return static_cast<int>(model.steps());
}
