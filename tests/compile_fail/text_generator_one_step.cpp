// expect: lockstep::TextGenerator: 'one_step()' of an op returns an op of another shape; its
#include "lockstep/predictor.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/text_generator.hpp"

namespace ls = lockstep;
struct HalfOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  constexpr HalfOp one_step() const { return {ls::shape(2, in[1])}; }
  bool operator==(const HalfOp&) const = default;
};
struct Half : ls::ParameterlessLayer<HalfOp> {
  static constexpr std::string_view name = "half";
};
template <ls::HostDevice D>
struct ls::Kernel<HalfOp, D> : ls::KernelTraits {
  static void forward(const HalfOp&, const ls::Io<D>&) {}
};
struct Net : ls::Sequential<ls::Input<8>, ls::Embedding<5, 4>, Half, ls::Dense<5>> {};
int main() {
  const ls::TextGenerator<Net, ls::Reference<float>> generator("w.safetensors");
  return static_cast<int>(generator.memory().total());
}
