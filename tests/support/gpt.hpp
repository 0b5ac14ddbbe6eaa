/// \file
/// GPTs of the sizes of the tests: blocks of attention and of two dense layers before which values are
/// normalized, and logits by the transposed table of the tokens, as in GPT-2.
#pragma once

#include "lockstep/lockstep.hpp"

namespace testing::gpt {

namespace ls = lockstep;

template <int Heads, int Features>
struct Attention : ls::Sequential<ls::LayerNormalization<>,
                                  ls::MultiHeadAttention<Heads, Features / Heads, ls::causal>,
                                  ls::Dropout<ls::rate(0.1f)>> {};
template <int Features>
struct Mlp : ls::Sequential<ls::LayerNormalization<>, ls::Dense<4 * Features, ls::gelu>,
                            ls::Dense<Features>, ls::Dropout<ls::rate(0.1f)>> {};
template <int Heads, int Features>
struct Block
    : ls::Sequential<ls::Residual<Attention<Heads, Features>>, ls::Residual<Mlp<Features>>> {};

template <int Layers, int Heads, int Features, int Words, int Steps>
struct Gpt : ls::Sequential<ls::Input<Steps>, ls::Shared<"tokens", ls::Embedding<Words, Features>>,
                            ls::PositionEmbedding<Steps>, ls::Dropout<ls::rate(0.1f)>,
                            ls::Repeat<Layers, Block<Heads, Features>>, ls::LayerNormalization<>,
                            ls::TiedDense<"tokens">> {};

}  // namespace testing::gpt
