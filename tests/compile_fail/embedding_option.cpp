// expect: lockstep::Embedding: an option is not supported;
#include "lockstep/layers/embedding.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Embedding<10, 4, ls::no_bias>> {};
constexpr auto count = Net::parameter_count;
