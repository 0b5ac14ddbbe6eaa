// expect: lockstep::Conv1DTranspose: output_padding must be at least 0 and less than the
#include "lockstep/layers/convolution/conv1d_transpose.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 3>,
                            ls::Conv1DTranspose<4, 3, ls::strides(2), ls::output_padding(2)>> {};
constexpr auto count = Net::parameter_count;
