// expect: lockstep::Layer: parameters() of 'Layer' at 'Position' has 'Weights' trainable and
// 'State' non-trainable values, but its op expects 'OpWeights' and 'OpState'; make parameters()
// match the op's weights() and state()
#include "lockstep/layers/activation_option.hpp"
#include "lockstep/layers/activations/relu.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
template <class L>
struct Frozen : L {
  static constexpr auto parameters(ls::Shape in) {
    auto all = L::parameters(in);
    for (ls::Parameter& p : all) p.trainable = false;
    return all;
  }
};
struct Net : ls::Sequential<ls::Input<4>, Frozen<ls::Dense<8, ls::relu>>, ls::Dense<1>> {};
constexpr auto count = Net::parameter_count;
