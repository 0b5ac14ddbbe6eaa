// expect: lockstep::CenterCrop: height and width must be at least 1; write CenterCrop<32,
#include "lockstep/layers/preprocessing/center_crop.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::CenterCrop<4, 0>> {};
constexpr auto count = Net::parameter_count;
