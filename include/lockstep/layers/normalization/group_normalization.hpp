/// \file
/// Normalization of groups of channels, each over all pixels or steps of an example.
#pragma once

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/initializers.hpp"
#include "lockstep/layers/normalization/normalization_options.hpp"
#include "lockstep/layers/normalization/normalized_blocks.hpp"
#include "lockstep/layers/options.hpp"

namespace lockstep {

/// y = gamma (x - mean) / sqrt(variance + epsilon) + beta, with the mean and population variance of
/// each example's group of consecutive channels over all other axes.
struct GroupNormalizationOp {
  static constexpr std::string_view members = "in groups epsilon center scale";
  Shape in;
  int groups = 32;
  float epsilon = 1e-3f;
  bool center = true, scale = true;
  constexpr Shape out() const { return in; }
  constexpr std::size_t channels() const { return static_cast<std::size_t>(in.channels()); }
  constexpr NormalizedBlocks blocks() const {
    const auto parts = static_cast<std::size_t>(groups);
    return {in.size() / channels(), parts, channels() / parts};
  }
  constexpr std::size_t weights() const {
    return (scale ? channels() : 0) + (center ? channels() : 0);
  }
  bool operator==(const GroupNormalizationOp&) const = default;
};

namespace detail {
template <int Groups, class... Options>
struct CheckGroupNormalization {
  static_assert(Groups > 0 || Groups == -1,
                "lockstep::GroupNormalization: groups must be at least 1, or -1 for one group per "
                "channel; write GroupNormalization<32>");
  static_assert((is_any_of<Options, Epsilon, Center, Scale> && ...),
                "lockstep::GroupNormalization: an option is not supported; it accepts epsilon, "
                "center and scale");
};
}  // namespace detail

/// Keras' GroupNormalization (Wu and He, 2018) with `Groups` groups of channels, or -1 for one per
/// channel (instance normalization), by default with epsilon 1e-3. Results do not depend on other
/// examples.
///
/// Options: ls::epsilon, ls::center, ls::scale. Parameters `gamma` and `beta`, each (channels). Shape
/// unchanged; the number of groups must divide the channels.
/// \code
///   GroupNormalization<8>, GroupNormalization<-1, ls::epsilon(1e-5f)>
/// \endcode
template <int Groups = 32, auto... Options>
struct GroupNormalization {
  static constexpr std::string_view name = "group_normalization";
  static constexpr bool supports_masking = true;

  template <Shape In>
  struct Requires {
    static_assert(In.rank < 1,
                  "lockstep::GroupNormalization: the number of groups does not divide the channels "
                  "of the input; write GroupNormalization<8> or GroupNormalization<-1>");
  };
  static constexpr bool accepts(Shape in) {
    return in.rank >= 1 && (Groups == -1 || in.channels() % (Groups > 0 ? Groups : 1) == 0);
  }
  static constexpr GroupNormalizationOp op(Shape in) {
    return {in, Groups == -1 ? in.channels() : Groups,
            detail::option<Epsilon, Options...>(Epsilon{}).value,
            detail::option<Center, Options...>(Center{}).on,
            detail::option<Scale, Options...>(Scale{}).on};
  }
  static constexpr std::array<Parameter, 2> parameters(Shape in) {
    const Shape c = shape(in.channels());
    const GroupNormalizationOp o = op(in);
    return {Parameter{"gamma", c, {}, &detail::initialize<ones>, {}, true, o.scale},
            Parameter{"beta", c, {}, &detail::initialize<zeros>, {}, true, o.center}};
  }

  static_assert(
      sizeof(detail::CheckGroupNormalization<Groups, std::remove_cvref_t<decltype(Options)>...>) >
      0);
};

static_assert(Layer<GroupNormalization<>> && !GroupNormalization<>::accepts(shape(4, 4, 48)));

}  // namespace lockstep
