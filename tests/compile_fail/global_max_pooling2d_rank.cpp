// expect: lockstep::GlobalMaxPooling2D: the input does not have height, width and channels;
#include "lockstep/layers/pooling/global_max_pooling2d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::GlobalMaxPooling2D> {};
constexpr auto count = Net::parameter_count;
