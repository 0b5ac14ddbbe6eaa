// expect: lockstep::Embedding: the vocabulary and the units must be at least 1;
#include "lockstep/layers/embedding.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8>, ls::Embedding<0, 4>> {};
constexpr auto count = Net::parameter_count;
