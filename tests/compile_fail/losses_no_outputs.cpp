// expect: lockstep::Losses: the network has one output without a name; pass the loss itself
#include "lockstep/heads.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<4>, ls::Dense<11>> {};
int main() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{},
                  ls::Losses{ls::Head<"digit", ls::SparseCategoricalCrossentropy>{},
                             ls::Head<"even", ls::BinaryCrossentropy>{}},
                  ls::SGD{}};
  return static_cast<int>(model.steps());
}
