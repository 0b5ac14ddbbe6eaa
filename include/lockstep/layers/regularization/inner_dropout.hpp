/// \file
/// The option of layers that drop values of their own.
#pragma once

#include "lockstep/layers/regularization/dropout.hpp"

namespace lockstep {

/// Option created by `dropout`.
struct InnerDropout {
  Rate rate{0.0f};
};
/// Fraction, in [0, 1), that training sets to zero; the rest is divided by 1 - share. In an attention
/// layer of the probabilities, which are not normalized again; in a recurrent layer of the input's
/// features, the same ones in all steps of an example.
/// \code
///   GRU<64, ls::dropout(0.2)>, MultiHeadAttention<8, 64, ls::dropout(0.1)>
/// \endcode
constexpr InnerDropout dropout(Rate share) { return {share}; }

}  // namespace lockstep
