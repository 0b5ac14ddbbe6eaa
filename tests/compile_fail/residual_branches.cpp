// expect: lockstep::Residual: the main branch and the skip branch have different output shapes; add
// a projection to Skip, such as Conv2D<filters, 1, strides(s)>
#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/model/residual.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::Residual<ls::Conv2D<4, 3, ls::same>>> {};
constexpr auto count = Net::parameter_count;
