// expect: lockstep::Function: the function branches on a value, but it is called only once;
#include "lockstep/function.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
inline constexpr auto elu = [](auto x) {
  if (x > 0) return x;
  return exp(x) - 1;
};
struct Net : ls::Sequential<ls::Input<8>, ls::Function<elu>> {};
constexpr auto count = Net::parameter_count;
