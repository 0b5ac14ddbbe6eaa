// expect: lockstep::Function: the function takes neither one value nor a prediction and a target;
#include "lockstep/function.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
inline constexpr auto three = [](auto a, auto b, auto c) { return a * b + c; };
struct Net : ls::Sequential<ls::Input<8>, ls::Function<three>> {};
constexpr auto count = Net::parameter_count;
