// expect: lockstep::Embedding: the input is not a vector of integers;
#include "lockstep/layers/embedding.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 2>, ls::Embedding<10, 4>> {};
constexpr auto count = Net::parameter_count;
