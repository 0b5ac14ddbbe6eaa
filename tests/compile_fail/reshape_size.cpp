// expect: lockstep::Reshape: the input has another number of elements than the target shape;
#include "lockstep/layers/reshape.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Reshape<ls::shape(3, -1)>> {};
constexpr auto count = Net::parameter_count;
