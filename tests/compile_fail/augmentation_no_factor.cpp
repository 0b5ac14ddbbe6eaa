// expect: lockstep::Augmentation: factors must be in [-1, 1]; write
#include "lockstep/layers/preprocessing/random_translation.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>, ls::RandomTranslation<ls::factor(0.1), 2>> {};
constexpr auto count = Net::parameter_count;
