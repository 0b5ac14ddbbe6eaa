// expect: lockstep::Sequential: a named block has the name of another layer or block next to it,
// such as 'decoder_1' next to two 'decoder'; rename one
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Block : ls::Sequential<ls::Dense<4>> {
  static constexpr std::string_view name = "dense_1";
};
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<4>, Block, ls::Dense<4>> {};
constexpr auto count = Net::parameter_count;
