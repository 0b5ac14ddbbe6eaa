// expect: the activations of 64 images do not fit into 4 MiB
#include "lockstep/layers/layers.hpp"
#include "lockstep/model/plan.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;
struct Digits
    : ls::Sequential<ls::Input<28, 28, 1>, ls::Conv2D<32, 3>, ls::ReLU, ls::MaxPooling2D<>,
                     ls::Flatten, ls::Dense<64>, ls::ReLU, ls::Dense<10>> {};
static_assert(ls::plan<Digits, ls::Reference<float>>.arena_bytes(64) < 4 << 20,
              "the activations of 64 images do not fit into 4 MiB");
