// expect: lockstep::Layer: no name; add 'static constexpr std::string_view name'
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct SquareOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  bool operator==(const SquareOp&) const = default;
};
struct Square {
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr std::array<ls::Parameter, 0> parameters(ls::Shape) { return {}; }
  static constexpr SquareOp op(ls::Shape in) { return {in}; }
};
struct Net : ls::Sequential<ls::Input<8>, Square> {};
constexpr auto count = Net::parameter_count;
