// expect: lockstep::Layer: no parameters; add 'static constexpr std::array<Parameter, N>
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
  static constexpr SquareOp op(ls::Shape in) { return {in}; }
};
struct Net : ls::Sequential<ls::Input<8>, Square> {};
constexpr auto count = Net::parameter_count;
