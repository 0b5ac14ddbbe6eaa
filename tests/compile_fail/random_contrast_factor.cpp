// expect: lockstep::RandomContrast: factors must be in [-1, 1]; write
#include "lockstep/layers/preprocessing/random_contrast.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::RandomContrast<ls::factor(1.5)>> {};
constexpr auto count = Net::parameter_count;
