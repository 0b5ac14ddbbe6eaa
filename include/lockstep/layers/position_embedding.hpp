/// \file
/// Learned positions: a vector for each step, added to it.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/initializers.hpp"
#include "lockstep/layers/options.hpp"
#include "lockstep/layers/regularizers.hpp"

namespace lockstep {

/// y[n, s, u] = x[n, s, u] + embeddings[s, u].
struct PositionEmbeddingOp {
  static constexpr std::string_view members = "in sequence_length";
  Shape in;  // (steps, features)
  int positions = 1;
  constexpr Shape out() const { return in; }
  constexpr std::size_t weights() const {
    return static_cast<std::size_t>(positions) * static_cast<std::size_t>(in[1]);
  }
  bool operator==(const PositionEmbeddingOp&) const = default;
};

namespace detail {
template <int Positions, class... Options>
struct CheckPositionEmbedding {
  static_assert(Positions > 0,
                "lockstep::PositionEmbedding: there must be at least one position; write "
                "PositionEmbedding<1024>");
  static_assert(
      ((is_kernel_initializer<Options> || is_kernel_regularizer<Options>) && ...),
      "lockstep::PositionEmbedding: an option is not supported; it accepts an initializer "
      "and kernel_regularizer");
};
}  // namespace detail

/// Learned vectors of the positions [0, Positions), added to the steps of the input. The table is that
/// of Keras Hub's PositionEmbedding, which returns the vectors alone; the sum is that of its
/// TokenAndPositionEmbedding.
///
/// Options: an initializer (glorot_uniform), kernel_regularizer. Input (steps, f) with at most
/// `Positions` steps, output (steps, f); parameter `embeddings` (Positions, f).
/// \code
///   struct Tokens : ls::Sequential<ls::Input<256>, ls::Embedding<50'257, 768>,
///                                  ls::PositionEmbedding<1024>> {};
/// \endcode
template <int Positions, auto... Options>
struct PositionEmbedding {
  static constexpr std::string_view name = "position_embedding";
  static constexpr bool supports_masking = true;

  template <Shape In>
  struct Requires {
    static_assert(In.rank == 2 && In[0] <= Positions,
                  "lockstep::PositionEmbedding: the input is not (steps, features) with at most as "
                  "many steps as positions; write PositionEmbedding<steps>");
  };
  static constexpr bool accepts(Shape in) { return in.rank == 2 && in[0] <= Positions; }
  static constexpr PositionEmbeddingOp op(Shape in) { return {in, Positions}; }
  static constexpr std::array<Parameter, 1> parameters(Shape in) {
    return {
        Parameter{"embeddings",
                  shape(Positions, in[1]),
                  {Positions, in[1]},
                  detail::kernel_initializer_of<Options...>(&detail::initialize<glorot_uniform>),
                  detail::kernel_penalty<Options...>(),
                  true,
                  true}};
  }

  static_assert(
      sizeof(detail::CheckPositionEmbedding<Positions, std::remove_cvref_t<decltype(Options)>...>) >
      0);
};

static_assert(Layer<PositionEmbedding<8>> && !PositionEmbedding<8>::accepts(shape(9, 4)));

}  // namespace lockstep
