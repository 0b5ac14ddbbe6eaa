// expect: lockstep::Predictor: a kernel of the network has no forward that can be called;
#include "lockstep/predictor.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct SquareOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  bool operator==(const SquareOp&) const = default;
};
struct Square : ls::ParameterlessLayer<SquareOp> {
  static constexpr std::string_view name = "square";
};
template <ls::HostDevice D>
struct ls::Kernel<SquareOp, D> : ls::KernelTraits {
  static void forward(const SquareOp&, ls::Io<D>&) {}
};
struct Net : ls::Sequential<ls::Input<8>, ls::Dense<1>, Square> {};
int main() {
  const ls::Predictor<Net, ls::Reference<float>> predictor("w.safetensors");
  return static_cast<int>(predictor.predict(std::vector<float>(8)).count());
}
