// expect: lockstep::RandomBrightness: the first value of the range must be below the second;
#include "lockstep/layers/preprocessing/random_brightness.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 3>,
                            ls::RandomBrightness<ls::factor(0.5), ls::value_range(1, 0)>> {};
constexpr auto count = Net::parameter_count;
