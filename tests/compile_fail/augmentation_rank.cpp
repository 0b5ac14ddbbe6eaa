// expect: lockstep::Augmentation: the input does not have height, width and channels; put layers of
// images before Flatten
#include "lockstep/layers/preprocessing/random_flip.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::RandomFlip<>> {};
constexpr auto count = Net::parameter_count;
