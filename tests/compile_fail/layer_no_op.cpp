// expect: lockstep::Layer: no op; add 'static constexpr MyOp op(Shape)', MyOp an aggregate
#include "lockstep/model/sequential.hpp"

namespace ls = lockstep;
struct SquareOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  bool operator==(const SquareOp&) const = default;
};
struct Square {
  static constexpr std::string_view name = "square";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr std::array<ls::Parameter, 0> parameters(ls::Shape) { return {}; }
};
struct Net : ls::Sequential<ls::Input<8>, Square> {};
constexpr auto count = Net::parameter_count;
