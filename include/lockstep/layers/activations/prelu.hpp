/// \file
/// Activation with a learnt slope: x if x > 0, otherwise alpha * x.
#pragma once

#include <array>
#include <cstddef>

#include "lockstep/concepts/layer.hpp"
#include "lockstep/layers/named_rules.hpp"
#include "lockstep/layers/options.hpp"

namespace lockstep {

/// Option created by `shared_axes`: up to four axes, from 1.
struct SharedAxes {
  int count = 0;
  std::array<int, 4> axis{};

  constexpr const int* begin() const { return axis.data(); }
  constexpr const int* end() const { return axis.data() + count; }
  constexpr bool has(int one) const {
    for (const int a : *this)
      if (a == one) return true;
    return false;
  }
  /// Not defaulted: std::array's comparison is not a constant expression under -D_GLIBCXX_DEBUG.
  constexpr bool operator==(const SharedAxes& other) const {
    for (std::size_t i = 0; i < axis.size(); ++i)
      if (axis[i] != other.axis[i]) return false;
    return count == other.count;
  }
};
/// Axes along which all elements have one alpha: `shared_axes(1, 2)` leaves one per channel of an
/// image. Axis 1 is the first one of an example.
template <class... Axes>
constexpr SharedAxes shared_axes(Axes... axes) {
  static_assert(sizeof...(Axes) <= 4, "lockstep::shared_axes: at most four axes");
  SharedAxes result;
  if constexpr (sizeof...(Axes) <= 4)
    result = {static_cast<int>(sizeof...(Axes)), {static_cast<int>(axes)...}};
  return result;
}

/// Options created by `alpha_initializer` and `alpha_regularizer`.
template <class I>
struct AlphaInitializer {
  I rule;
};
template <class R>
struct AlphaRegularizer {
  R rule;
};
/// The initializer of PReLU's alpha.
template <InitializerPolicy I>
constexpr AlphaInitializer<I> alpha_initializer(I rule) {
  return {rule};
}
/// The regularizer of PReLU's alpha.
template <RegularizerPolicy R>
constexpr AlphaRegularizer<R> alpha_regularizer(R rule) {
  return {rule};
}

/// y = x if x > 0, otherwise alpha * x, with one alpha for all elements that differ in their place
/// along shared axes only. At 0 the gradient is 0, as in Keras.
struct PReLUOp {
  static constexpr std::string_view members = "in shared_axes";
  Shape in;
  SharedAxes shared;

  constexpr Shape out() const { return in; }
  /// The shape of alpha: the input's, with extent 1 along the shared axes.
  constexpr Shape alpha() const {
    Shape s = in;
    for (int axis = 0; axis < s.rank; ++axis)
      if (shared.has(axis + 1)) s.extent[static_cast<std::size_t>(axis)] = 1;
    return s;
  }
  constexpr std::size_t weights() const { return alpha().size(); }
  /// The distance in alpha between neighbours along an axis; 0 along a shared one.
  constexpr std::size_t step(int axis) const {
    const Shape s = alpha();
    if (s[axis] != in[axis]) return 0;
    std::size_t n = 1;
    for (int inner = axis + 1; inner < s.rank; ++inner) n *= static_cast<std::size_t>(s[inner]);
    return n;
  }
  bool operator==(const PReLUOp&) const = default;
};

namespace detail {
template <class O>
inline constexpr bool is_prelu_option =
    std::is_same_v<O, SharedAxes> || is_rule_for<O, AlphaInitializer> ||
    is_rule_for<O, AlphaRegularizer>;

/// Whether each shared axis is one of the input's.
constexpr bool has_axes(Shape in, const SharedAxes& shared) {
  for (const int axis : shared)
    if (axis < 1 || axis > in.rank) return false;
  return true;
}

template <class... Options>
struct CheckPReLU {
  static_assert((is_prelu_option<Options> && ...),
                "lockstep::PReLU: an option is not supported; it accepts shared_axes, "
                "alpha_initializer and alpha_regularizer");
};
}  // namespace detail

/// Keras' PReLU (He et al., 2015): y = x if x > 0, otherwise alpha * x, with a learnt alpha for
/// each element.
///
/// Options: ls::shared_axes (default none), ls::alpha_initializer (default zeros),
/// ls::alpha_regularizer. Shape unchanged; parameter `alpha` (that shape, with 1 for each shared
/// axis).
/// \code
///   PReLU<ls::shared_axes(1, 2), ls::alpha_initializer(ls::ConstantValue{0.25})>  // per channel
/// \endcode
template <auto... Options>
struct PReLU {
  static constexpr std::string_view name = "p_re_lu";
  static constexpr bool supports_masking = true;
  static constexpr SharedAxes shared = detail::option<SharedAxes, Options...>(SharedAxes{});

  template <Shape In>
  struct Requires {
    static_assert(In.rank < 1,
                  "lockstep::PReLU: a shared axis is not one of the input's; axis 1 is the first "
                  "one of an example");
  };
  static constexpr bool accepts(Shape in) { return in.rank >= 1 && detail::has_axes(in, shared); }
  static constexpr PReLUOp op(Shape in) { return {in, shared}; }
  static constexpr std::array<Parameter, 1> parameters(Shape in) {
    return {
        Parameter{"alpha",
                  op(in).alpha(),
                  {},
                  detail::initializer_for<AlphaInitializer, Options...>(&detail::initialize<zeros>),
                  detail::penalty_for<AlphaRegularizer, Options...>(),
                  true,
                  true}};
  }

  static_assert(sizeof(detail::CheckPReLU<std::remove_cvref_t<decltype(Options)>...>) > 0);
};

static_assert(Layer<PReLU<>> && PReLU<shared_axes(1, 2)>::op(shape(5, 4, 3)).weights() == 3);

}  // namespace lockstep
