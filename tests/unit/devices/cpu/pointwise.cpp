/// \file
/// Activations on the Cpu: the shared cases, and a user-defined one.
#include "compare.hpp"

#include "unit/devices/pointwise.hpp"

using namespace lockstep;
using namespace testing;

namespace {
struct CubeOp {
  static constexpr bool from_y = false;
  Shape in;
  constexpr Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return x * x * x;
  }
  template <class T>
  T derivative(T x) const {
    return 3 * x * x;
  }
  bool operator==(const CubeOp&) const = default;
};
struct Cube : ParameterlessLayer<CubeOp> {};
}  // namespace

TEST_CASE("a user-defined activation agrees with the reference") {
  agrees_also_far_from_zero<Cube>();
}
