/// \file
/// A lookup table with one vector per integer.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/initializers.hpp"
#include "lockstep/layers/mask.hpp"
#include "lockstep/layers/options.hpp"
#include "lockstep/layers/regularizers.hpp"

namespace lockstep {

/// y[n, s, u] = embeddings[x[n, s], u]. x holds integers from 0 to vocabulary - 1.
struct EmbeddingOp {
  static constexpr std::string_view members = "in input_dim output_dim ?.row ?.first";
  Shape in;  // (steps)
  int vocabulary = 1, units = 1;
  /// In a graph with several inputs x is a longer row, so that no rounded copy of it is made: its
  /// length, and the place of the first integer, from 1.
  int row = 1, first = 1;

  constexpr bool reads_row() const { return row > 1; }
  constexpr std::size_t x_size() const {
    return reads_row() ? static_cast<std::size_t>(row) : in.size();
  }
  /// Where the i-th integer of a batch is in x.
  constexpr std::size_t place(std::size_t i) const {
    return reads_row()
               ? i / in.size() * x_size() + static_cast<std::size_t>(first - 1) + i % in.size()
               : i;
  }
  /// This op for a part of a row.
  constexpr EmbeddingOp of_row(int length, int offset) const {
    return {in, vocabulary, units, length, offset + 1};
  }
  constexpr Shape out() const { return shape(in[0], units); }
  constexpr std::size_t table_size() const {
    return static_cast<std::size_t>(vocabulary) * static_cast<std::size_t>(units);
  }
  constexpr std::size_t weights() const { return table_size(); }
  bool operator==(const EmbeddingOp&) const = default;
};

/// Option `mask_zero`.
struct MaskZero {
  bool on = true;
};
/// Steps whose integer is 0 are padding: `Embedding<20'000, 64, ls::mask_zero>` makes a mask for the
/// layers after it.
inline constexpr MaskZero mask_zero{};

namespace detail {
/// Base of an Embedding that makes a mask, or of one that does not.
template <bool MaskZero>
struct EmbeddingMask {};
template <>
struct EmbeddingMask<true> {
  static constexpr MaskOp mask(Shape in) { return {in}; }
};

template <int Vocabulary, int Units, class... Options>
struct CheckEmbedding {
  static_assert(Vocabulary > 0 && Units > 0,
                "lockstep::Embedding: the vocabulary and the units must be at least 1; write "
                "Embedding<vocabulary, units>");
  static_assert(((is_kernel_initializer<Options> || is_kernel_regularizer<Options> ||
                  is_any_of<Options, MaskZero>) &&
                 ...),
                "lockstep::Embedding: an option is not supported; it accepts an initializer, "
                "kernel_regularizer and mask_zero");
};
}  // namespace detail

/// Keras' Embedding(Vocabulary, Units), with ls::mask_zero one that makes a mask. Input (steps), output (steps, Units);
/// parameter `embeddings` (Vocabulary, Units), drawn uniformly from -0.05 to 0.05 unless an
/// initializer is given. Inputs are integers from 0 to Vocabulary - 1 (in float32, exact up to
/// 2^24). Training and evaluation throw UsageError for any other number, on a GPU at the next
/// synchronization.
/// \code
///   struct Words : ls::Sequential<ls::Input<80>, ls::Embedding<20'000, 64>,
///                                 ls::GlobalAveragePooling1D, ls::Dense<2>> {};
/// \endcode
template <int Vocabulary, int Units, auto... Options>
struct Embedding : detail::EmbeddingMask<detail::option<MaskZero, Options...>({false}).on> {
  static constexpr std::string_view name = "embedding";
  static constexpr bool accepts(Shape in) { return in.rank == 1; }
  template <Shape In>
  struct Requires {
    static_assert(
        In.rank == 1,
        "lockstep::Embedding: the input is not a vector of integers; begin with Input<steps>");
  };
  static constexpr EmbeddingOp op(Shape in) { return {in, Vocabulary, Units}; }
  static constexpr std::array<Parameter, 1> parameters(Shape) {
    return {
        Parameter{"embeddings",
                  shape(Vocabulary, Units),
                  {Vocabulary, Units},
                  detail::kernel_initializer_of<Options...>(&detail::initialize<RandomUniform{}>),
                  detail::kernel_penalty<Options...>(),
                  true,
                  true}};
  }

  static_assert(
      sizeof(detail::CheckEmbedding<Vocabulary, Units, std::remove_cvref_t<decltype(Options)>...>) >
      0);
};

static_assert(Layer<Embedding<100, 8>> && Embedding<100, 8>::op(shape(5)).out() == shape(5, 8));

}  // namespace lockstep
