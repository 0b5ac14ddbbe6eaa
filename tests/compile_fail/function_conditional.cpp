// expect: lockstep::Function: the function branches on a value, but it is called only once;
#include "lockstep/function.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
inline constexpr auto squared = [](auto x) { return x * x * (x > 0 ? x : 0.0); };
struct Net : ls::Sequential<ls::Input<8>, ls::Function<squared>> {};
constexpr auto count = Net::parameter_count;
