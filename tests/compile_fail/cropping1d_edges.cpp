// expect: lockstep::Cropping1D: the cropping of each side must be at least 0;
#include "lockstep/layers/reshaping/cropping1d.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 1>, ls::Cropping1D<-1>> {};
constexpr auto count = Net::parameter_count;
