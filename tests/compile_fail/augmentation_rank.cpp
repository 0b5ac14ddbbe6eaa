// expect: lockstep::Augmentation: the input has no height, width and channels; put random
#include "lockstep/layers/random_flip.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::RandomFlip<>> {};
constexpr auto count = Net::parameter_count;
