/// \file
/// Two recurrent layers over the same sequence, one of which goes backwards.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/layers/merging/concatenate.hpp"
#include "lockstep/layers/recurrent/recurrent_options.hpp"
#include "lockstep/layers/reshaping/flatten.hpp"
#include "lockstep/layers/reshaping/row_slice.hpp"
#include "lockstep/model/parallel.hpp"

namespace lockstep {

/// Instead of a rule of Bidirectional: Keras' `merge_mode=None`.
struct NoMerge {};

namespace detail {

inline constexpr std::string_view direction_names[]{"forward_", "backward_"};

/// L as one of the layers of a Bidirectional.
template <class L, bool Backwards>
struct Direction : L {
 private:
  static constexpr std::string_view prefix = direction_names[Backwards];
  static constexpr auto text = [] {
    std::array<char, prefix.size() + L::name.size()> all{};
    std::copy(L::name.begin(), L::name.end(), std::copy(prefix.begin(), prefix.end(), all.begin()));
    return all;
  }();

 public:
  static constexpr std::string_view name{text.data(), text.size()};
  template <class... Mask>
  static constexpr auto op(Shape in, Mask... mask) {
    auto op = L::op(in, mask...);
    op.layer.zero_output = op.layer.return_sequences;
    if (Backwards) {
      op.layer.go_backwards = true;
      op.layer.output_order = op.layer.return_sequences ? -1 : 1;
    }
    return op;
  }
};

template <class L>
constexpr bool is_recurrent_layer() {
  if constexpr (Layer<L>)
    return IsRecurrent<decltype(L::op(shape(1, 1)))>;
  else
    return false;
}
template <class L>
constexpr bool goes_backwards() {
  if constexpr (is_recurrent_layer<L>())
    return L::op(shape(1, 1)).layer.go_backwards;
  else
    return false;
}
template <bool IsRecurrent, bool GoesBackwards>
struct CheckBidirectional {
  static_assert(IsRecurrent,
                "lockstep::Bidirectional: the layer is not recurrent; write "
                "Bidirectional<ls::LSTM<units>>");
  static_assert(
      !GoesBackwards,
      "lockstep::Bidirectional: the layer has go_backwards; leave it out, since one of the "
      "two goes backwards anyway");
};

/// The name of value `i` of a Bidirectional with this many results without states, and states of each
/// layer.
constexpr std::string_view bidirectional_output(std::size_t i, std::size_t sequences,
                                                std::size_t returned) {
  constexpr std::string_view of_states[2][2]{{"forward_h", "forward_c"},
                                             {"backward_h", "backward_c"}};
  if (i >= sequences) return of_states[(i - sequences) / returned][(i - sequences) % returned];
  return sequences == 1 ? "" : i == 0 ? "forward" : "backward";
}

/// The two layers where there are states among the operands or the results, or two results: a block of
/// the values
/// \code
///   in     x, the initial states of the layer forwards, of the one backwards
///   out    the merged result, or both; the states of the layer forwards, of the one backwards
/// \endcode
template <class L, class Merge>
struct BidirectionalValues {
  using is_composite = void;
  template <bool Backwards>
  using way = Direction<L, Backwards>;
  using cell = decltype(L::op(Shape{}));
  static constexpr bool merges = !std::is_same_v<Merge, NoMerge>;
  using children = typename Concat<List<way<false>, way<true>>,
                                   std::conditional_t<merges, List<Merge>, List<>>>::type;
  using ops = Union<List<cell, RowSliceOp, ViewOp, ConcatenateOp>,
                    typename OpsOfJoin<std::conditional_t<merges, Merge, void>, 2>::type>;
  static constexpr bool layers_ok = layer_ok<L>() && (!merges || LayerOf<Merge, 2>);

  static constexpr std::size_t initial =
                                   static_cast<std::size_t>(L::op(shape(1, 1)).layer.operands - 1),
                               returned =
                                   static_cast<std::size_t>(L::op(shape(1, 1)).layer.results - 1),
                               sequences = merges ? 1 : 2, input_count = 1 + 2 * initial,
                               output_count = sequences + 2 * returned;
  static constexpr bool names_outputs = output_count > 1;
  static constexpr auto output_names = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<std::string_view, output_count>{
        bidirectional_output(I, sequences, returned)...};
  }(std::make_index_sequence<output_count>{});

  template <class Walk>
  static constexpr std::array<ValueId, output_count> append_all(
      Walk& walk, const std::array<ValueId, input_count>& in) {
    const auto forwards = append_way<false>(walk, in), backwards = append_way<true>(walk, in);
    std::array<ValueId, output_count> out{};
    if constexpr (merges) {
      out[0] = join_all<Merge>(walk, std::array{forwards[0], backwards[0]},
                               Failure::branches_do_not_join);
    } else {
      out[0] = forwards[0];
      out[1] = backwards[0];
    }
    for (std::size_t k = 0; k < returned; ++k) {
      out[sequences + k] = forwards[1 + k];
      out[sequences + returned + k] = backwards[1 + k];
    }
    return out;
  }
  /// One row of all results.
  template <class Walk>
  static constexpr ValueId join_outputs(Walk& walk, std::array<ValueId, output_count> out) {
    if constexpr (output_count > 1) {
      for (std::size_t i = 0; i < output_count; ++i) out[i] = walk.add_output(out[i], i);
      return join_all<Concatenate>(walk, out, Failure::branches_do_not_join);
    } else {
      return out[0];
    }
  }
  template <class Walk>
  static constexpr ValueId append(Walk& walk, ValueId v) {
    if constexpr (input_count == 1) {
      return join_outputs(walk, append_all(walk, {v}));
    } else {  // an error: the layer accepts no input without states
      return walk.template add<way<false>>(v);
    }
  }

 private:
  template <bool Backwards, class Walk>
  static constexpr auto append_way(Walk& walk, const std::array<ValueId, input_count>& in) {
    std::array<ValueId, 1 + initial> own{in[0]};
    for (std::size_t k = 1; k <= initial; ++k) own[k] = in[k + (Backwards ? initial : 0)];
    const ValueId v = join_all<way<Backwards>>(walk, own, Failure::operands_do_not_join);
    if constexpr (returned > 0)
      return walk.template results<way<Backwards>, 1 + initial>(v);
    else
      return std::array{v};
  }
};

/// Whether a Bidirectional has one value as operand and one as result.
template <class L, class Merge>
constexpr bool is_one_value() {
  if constexpr (is_recurrent_layer<L>())
    return L::op(shape(1, 1)).layer.operands == 1 && L::op(shape(1, 1)).layer.results == 1 &&
           !std::is_same_v<Merge, NoMerge>;
  else
    return true;
}

/// The two layers, or nothing after an error.
template <class L, class Merge, bool Fits = is_recurrent_layer<L>() && !goes_backwards<L>(),
          bool OneValue = is_one_value<L, Merge>()>
struct BidirectionalBody : Parallel<Merge, Direction<L, false>, Direction<L, true>> {};
template <class L, class Merge>
struct BidirectionalBody<L, Merge, true, false> : BidirectionalValues<L, Merge> {};
template <class L, class Merge, bool OneValue>
struct BidirectionalBody<L, Merge, false, OneValue> {
  using is_composite = void;
  using children = List<>;
  using ops = List<>;
  static constexpr bool layers_ok = false;

  static_assert(sizeof(CheckBidirectional<is_recurrent_layer<L>(), goes_backwards<L>()>) > 0);
};

}  // namespace detail

/// Keras' Bidirectional: the results of L and of another L that goes backwards, merged by a rule, by
/// default one after the other. With ls::return_sequences both have the order of the input. The
/// rule is Keras' `merge_mode`: ls::Concatenate, ls::Add for "sum", ls::Multiply, ls::Average. The
/// layers are called "bidirectional/forward_lstm" and "bidirectional/backward_lstm".
///
/// With ls::NoMerge, Keras' None, a Let has the results "b/forward" and "b/backward". With
/// ls::return_state it also has the states of both layers, in the order of Keras "b/forward_h",
/// "b/forward_c", "b/backward_h", "b/backward_c", and with ls::initial_state its operands after the
/// input are those. As a layer of a Sequential all results are one row.
/// \code
///   struct Tagger : ls::Sequential<ls::Input<80>, ls::Embedding<20'000, 64>,
///                                  ls::Bidirectional<ls::LSTM<64, ls::return_sequences>>,
///                                  ls::Dense<9>> {};
/// \endcode
template <class L, class Merge = Concatenate>
struct Bidirectional : detail::BidirectionalBody<L, Merge> {
  static constexpr std::string_view name = "bidirectional";
};

}  // namespace lockstep
