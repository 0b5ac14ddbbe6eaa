/// \file
/// Two recurrent layers over the same sequence, one of which goes backwards.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "lockstep/layers/merging/concatenate.hpp"
#include "lockstep/layers/recurrent/recurrent_options.hpp"
#include "lockstep/model/parallel.hpp"

namespace lockstep {
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

/// The two layers, or nothing after an error.
template <class L, class Merge, bool Fits = is_recurrent_layer<L>() && !goes_backwards<L>()>
struct BidirectionalBody : Parallel<Merge, Direction<L, false>, Direction<L, true>> {};
template <class L, class Merge>
struct BidirectionalBody<L, Merge, false> {
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
