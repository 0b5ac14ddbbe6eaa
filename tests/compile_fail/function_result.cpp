// expect: lockstep::Function: the function does not return a value that it has computed
#include "lockstep/function.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
inline constexpr auto one = [](auto) { return 1.0; };
struct Net : ls::Sequential<ls::Input<8>, ls::Function<one>> {};
constexpr auto count = Net::parameter_count;
