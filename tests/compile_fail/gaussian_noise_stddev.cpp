// expect: lockstep::GaussianNoise: the standard deviation must be in [0, 1];
#include "lockstep/layers/regularization/gaussian_noise.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::GaussianNoise<2>> {};
constexpr auto count = Net::parameter_count;
