// expect: lockstep::RandomCrop: height and width must be at least 1; write RandomCrop<32,
#include "lockstep/layers/preprocessing/random_crop.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::RandomCrop<0, 4>> {};
constexpr auto count = Net::parameter_count;
