// expect: lockstep::Conv1DTranspose: filters must be at least 1; write
#include "lockstep/layers/convolution/conv1d_transpose.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 3>, ls::Conv1DTranspose<0, 3>> {};
constexpr auto count = Net::parameter_count;
