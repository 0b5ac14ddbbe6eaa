// expect: lockstep::TiedDense: no layer before it is Shared under this key and has as its weights
// one matrix with as many columns as the last axis of 'Input'; write Shared<key, Embedding<V, D>>
// before it, and Dense<D> if the axis differs
#include "lockstep/layers/embedding.hpp"
#include "lockstep/layers/tied_dense.hpp"
#include "lockstep/model/shared.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<5>, ls::Shared<"tokens", ls::Embedding<9, 4>>,
                            ls::TiedDense<"token">> {};
constexpr auto count = Net::parameter_count;
