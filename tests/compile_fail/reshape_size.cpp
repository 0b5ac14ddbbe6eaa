// expect: lockstep::Reshape: input and target shape differ in their number of elements;
#include "lockstep/layers/reshaping/reshape.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Reshape<ls::shape(3, -1)>> {};
constexpr auto count = Net::parameter_count;
