// expect: lockstep::Sequential: 'Layer' at 'Position' does not accept 'Input', the shape
#include "lockstep/layers/merging/add.hpp"
#include "lockstep/layers/reshaping/flatten.hpp"
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct Picky : ls::ParameterlessLayer<ls::AddOp> {
  static constexpr std::string_view name = "picky";
  static constexpr bool accepts(ls::Shape in) { return in.rank == 3; }
};
struct Net : ls::Sequential<ls::Input<8, 8, 3>, Picky, ls::Flatten, Picky> {};
constexpr auto count = Net::parameter_count;
