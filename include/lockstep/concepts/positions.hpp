/// \file
/// Examples of several positions, such as the pixels of an image or the tokens of a text, each with
/// a target and a weight. Invariant: the positions of an output are all its axes except the last.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/shape.hpp"

namespace lockstep {

/// The positions of an output: all axes except the last; () for a vector.
/// \code
///   static_assert(ls::positions_of(ls::shape(28, 28, 10)) == ls::shape(28, 28));
/// \endcode
constexpr Shape positions_of(Shape out) {
  if (out.rank > 0) out.extent[static_cast<std::size_t>(--out.rank)] = 1;
  return out;
}

/// An op of a loss or a metric whose examples have `rows()` rows, one per position. `row()` is the
/// op of a single row; the loss of an example is the mean over its rows.
template <class O>
concept HasRows = requires(const O& op) {
  { op.rows() } -> std::same_as<std::size_t>;
  { op.row() } -> std::same_as<O>;
};

/// Whether an op is defined by its rows: it compares the values along the last axis. Other ops with
/// rows compare all elements of an example alike.
template <class O>
inline constexpr bool is_by_rows = HasRows<O> && requires { requires O::by_rows; };

/// An op that can ignore a class: rows whose label is `ignored` count for nothing. `counted(t)`:
/// the rows of an example that count.
template <class O>
concept IgnoresClass = HasRows<O> && requires(const O& op, const std::int32_t* t) {
  { op.ignored } -> std::convertible_to<std::optional<std::int32_t>>;
  { op.counted(t) } -> std::same_as<std::size_t>;
};

namespace detail {

/// Rows of an example; 1 for an op without rows.
template <class O>
constexpr std::size_t rows_of_example(const O& op) {
  if constexpr (HasRows<O>)
    return op.rows();
  else
    return 1;
}

/// The class that an op ignores, if any.
template <class O>
constexpr std::optional<std::int32_t> ignored_class(const O& op) {
  if constexpr (requires { std::optional<std::int32_t>(op.ignored); })
    return op.ignored;
  else if constexpr (requires { std::optional<std::int32_t>(op.loss.ignored); })
    return op.loss.ignored;  // MeanOf
  else
    return {};
}

/// Whether a target is a label that is ignored.
template <class Target>
bool is_ignored(const std::optional<std::int32_t>& ignored, const Target* t) {
  if constexpr (std::same_as<Target, std::int32_t>)
    return ignored == *t;
  else
    return false;
}

/// The labels among `rows` that are not ignored.
inline std::size_t count_labels(const std::int32_t* labels, std::size_t rows,
                                const std::optional<std::int32_t>& ignored) {
  if (!ignored) return rows;
  std::size_t counted = 0;
  for (std::size_t r = 0; r < rows; ++r) counted += labels[r] != *ignored ? 1u : 0u;
  return counted;
}

/// The mean of `example` over the rows of an example; writes scale times its gradient to g unless
/// null.
template <class Op, class T, class Target>
double mean_over_rows(const Op& op, const T* p, const Target* t, T* g, double scale) {
  const Op row = op.row();
  const double rows = static_cast<double>(op.rows()), share = scale / rows;
  double sum = 0;
  for (std::size_t r = 0; r < op.rows(); ++r)
    sum += row.example(p + r * row.size(), t + r * row.target_size(),
                       g == nullptr ? g : g + r * row.size(), share);
  return sum / rows;
}

/// Adds the rows of an example to a metric's state.
template <class Op, class T, class Target>
void add_rows(const Op& op, const T* p, const Target* t, double* state, double weight) {
  const Op row = op.row();
  for (std::size_t r = 0; r < op.rows(); ++r)
    row.example(p + r * row.size(), t + r * row.target_size(), state, weight);
}

/// An option `ignore_class` in the list of options that the processes of a job compare.
inline std::vector<std::pair<std::string_view, double>> ignored_numbers(
    const std::optional<int>& ignore_class) {
  std::vector<std::pair<std::string_view, double>> numbers;
  if (ignore_class) numbers.emplace_back("ignored class", *ignore_class);
  return numbers;
}

}  // namespace detail
}  // namespace lockstep
