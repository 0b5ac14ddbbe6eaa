// expect: lockstep::Function: the function and its derivative have more than 256 operations,
#include "lockstep/function.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
inline constexpr auto iterated = [](ls::Expression x) {
  for (int i = 0; i < 100; ++i) x = tanh(x) + x * 0.5;
  return x;
};
struct Net : ls::Sequential<ls::Input<8>, ls::Function<iterated>> {};
constexpr auto count = Net::parameter_count;
