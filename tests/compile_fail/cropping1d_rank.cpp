// expect: lockstep::Cropping1D: the input does not have steps and channels;
#include "lockstep/layers/reshaping/cropping1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Cropping1D<>> {};
constexpr auto count = Net::parameter_count;
