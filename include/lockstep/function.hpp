/// \file
/// Functions as layers and losses: `ls::Function`. Include lockstep.hpp and a device as well.
#pragma once

#include "lockstep/core/compiler.hpp"

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "lockstep/devices/cpu/function.hpp"
#include "lockstep/devices/cuda/support/function.hpp"
#include "lockstep/devices/host/function.hpp"
#include "lockstep/functions/code.hpp"
#include "lockstep/functions/expression.hpp"
#include "lockstep/layers/function.hpp"
#include "lockstep/losses/function.hpp"

namespace lockstep {

namespace detail {

/// The code of a function, or that of y = x and the fault of the function.
template <auto f>
struct ReadFunction {
  using F = std::remove_cvref_t<decltype(f)>;
  static constexpr bool is_layer = std::invocable<const F&, Expression>,
                        is_loss = !is_layer && std::invocable<const F&, Expression, Expression>;
  static constexpr bool is_function = is_layer || is_loss;
  static constexpr bool returns_expression = [] {
    if constexpr (is_layer)
      return std::same_as<std::invoke_result_t<const F&, Expression>, Expression>;
    else if constexpr (is_loss)
      return std::same_as<std::invoke_result_t<const F&, Expression, Expression>, Expression>;
    else
      return true;
  }();
  static constexpr functions::Fault fault = [] {
    if constexpr (!is_function || !returns_expression)
      return functions::Fault::none;
    else if constexpr (!functions::detail::can_be_recorded<f>)
      return functions::Fault::number;
    else
      return functions::fault_of(functions::record_function(f), is_loss);
  }();
  static constexpr bool valid =
      is_function && returns_expression && fault == functions::Fault::none;
  static constexpr auto code() {
    if constexpr (valid)
      return functions::detail::code_of<f>(
          std::make_index_sequence<functions::encode(functions::record_function(f)).size>{});
    else
      return functions::Code<0>{};
  }
  using type =
      std::conditional_t<is_loss, FunctionLoss<decltype(code())>, FunctionLayer<decltype(code())>>;
};

template <auto f>
struct CheckFunction {
  using Read = ReadFunction<f>;
  static_assert(
      Read::is_function,
      "lockstep::Function: the function takes neither one value nor a prediction and a "
      "target; write '[](auto x) {...}' for a layer, '[](auto p, auto t) {...}' for a loss");
  static_assert(Read::returns_expression,
                "lockstep::Function: the function does not return a value that it has computed "
                "from its arguments; return one, such as 'x * sigmoid(x)'");
  static_assert(Read::fault != functions::Fault::number,
                "lockstep::Function: the function calls one that takes numbers, such as std::exp; "
                "write exp, log, tanh, ... without a namespace: those of "
                "lockstep/functions/expression.hpp are found by their argument");
  static_assert(Read::fault != functions::Fault::condition,
                "lockstep::Function: the function branches on a value, but it is called only "
                "once; write 'select(x < 0, a, b)', and max and min without std::");
  static_assert(Read::fault != functions::Fault::length,
                "lockstep::Function: the function and its derivative have more than 256 "
                "operations, or sums in more than 12 steps; divide it into two layers");
};

}  // namespace detail

/// A C++ function as a layer or as a loss. It is called once, at compile time, with values of type
/// `ls::Expression`; its operations, which are listed there, are recorded and differentiated. With
/// one argument it is a layer, with a prediction and a target a loss.
///
/// A layer computes y = f(x) for each element. With `sum`, `mean` or `max` of one argument it
/// computes along the last axis; if the result is such a value, the last axis of y has extent 1.
/// Shape unchanged otherwise. A loss is the mean over the elements of an example or, with a sum,
/// the mean over the rows along the last axis; targets have the shape of the predictions.
/// \code
///   inline constexpr auto mish = [](auto x) { return x * tanh(softplus(x)); };
///   inline constexpr auto quantile = [](auto p, auto t) {
///     return max(0.9 * (t - p), 0.1 * (p - t));
///   };
///
///   struct Net : ls::Sequential<ls::Input<8>, ls::Dense<32>, ls::Function<mish>, ls::Dense<1>> {};
///   ls::Model model{Net{}, strategy, ls::Function<quantile>{}, ls::SGD{}};
/// \endcode
template <auto f>
struct Function : detail::ReadFunction<f>::type {
  static_assert(sizeof(detail::CheckFunction<f>) > 0);
};

}  // namespace lockstep
