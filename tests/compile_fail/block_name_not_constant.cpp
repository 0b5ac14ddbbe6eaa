// expect: lockstep::Sequential: the name of a block must be a constant, 'static constexpr
// std::string_view name', of printable ASCII characters except '/'
#include "lockstep/layers/dense.hpp"
#include "lockstep/model/residual.hpp"

namespace ls = lockstep;
struct Decoder : ls::Sequential<ls::Dense<4>> {
  static inline std::string_view name = "decoder";
};
struct Net : ls::Sequential<ls::Input<8>, ls::Residual<Decoder, ls::Dense<4>>> {};
constexpr auto count = Net::parameter_count;
