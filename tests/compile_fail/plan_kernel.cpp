// expect: lockstep::Kernel: 'Op' has no kernel for device 'D'
#include "lockstep/layers/layers.hpp"
#include "lockstep/model/plan.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct TwiceOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  bool operator==(const TwiceOp&) const = default;
};
struct Twice : ls::ParameterlessLayer<TwiceOp> {
  static constexpr std::string_view name = "twice";
};
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<4>, Twice> {};
static_assert(ls::plan<Net, ls::Reference<float>>.arena_bytes(64) < 4 << 20);
