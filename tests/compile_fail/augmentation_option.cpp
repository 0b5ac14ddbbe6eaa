// expect: lockstep::Augmentation: an option is not supported; it accepts
#include "lockstep/layers/preprocessing/random_rotation.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::RandomRotation<ls::factor(0.1), ls::same>> {};
constexpr auto count = Net::parameter_count;
