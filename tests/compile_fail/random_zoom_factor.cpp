// expect: lockstep::Augmentation: factors must be in [-1, 1]; write
#include "lockstep/layers/preprocessing/random_zoom.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::RandomZoom<ls::factor(-2, 0)>> {};
constexpr auto count = Net::parameter_count;
