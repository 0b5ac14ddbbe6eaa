// expect: lockstep::Sequential: 'Layer' at 'Position' does not accept 'Input', the shape
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/merging/add.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Picky : ls::ParameterlessLayer<ls::AddOp> {
  static constexpr std::string_view name = "picky";
  static constexpr bool accepts(ls::Shape in) { return in.rank == 3; }
};
// A model with an error is reported once, also as a block of another one.
struct Decoder : ls::Sequential<ls::Input<8>, ls::Dense<4>, Picky> {
  static constexpr std::string_view name = "decoder";
};
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<8>, Decoder, ls::Dense<2>> {};
constexpr auto count = Net::parameter_count;
