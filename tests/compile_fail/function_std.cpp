// expect: lockstep::Function: the function calls one that takes numbers, such as std::exp;
#include "lockstep/function.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
inline constexpr auto silu = [](auto x) { return x / (1 + std::exp(-x)); };
struct Net : ls::Sequential<ls::Input<8>, ls::Function<silu>> {};
constexpr auto count = Net::parameter_count;
