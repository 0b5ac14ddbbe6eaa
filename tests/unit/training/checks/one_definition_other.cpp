// See one_definition.cpp.
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;

struct DefinedTwice
    : ls::Sequential<ls::Input<4>, ls::Dense<64, ls::tanh>, ls::Dense<64>, ls::Dense<1>> {};
struct DefinedAlike : ls::Sequential<ls::Input<4>, ls::Dense<8, ls::relu>, ls::Dense<1>> {};
namespace {
struct InUnnamed : ls::Sequential<ls::Input<9>, ls::Dense<1>> {};

template <class Net>
void make() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{}, ls::SGD{}};
}
}  // namespace

extern void make_networks_of_other_file();  // not in a unit with other tests
void make_networks_of_other_file() {
  make<InUnnamed>();
  make<DefinedAlike>();
}

// Never called: a file that uses the name anywhere is enough.
[[maybe_unused]] void make_twice();
void make_twice() { make<DefinedTwice>(); }
