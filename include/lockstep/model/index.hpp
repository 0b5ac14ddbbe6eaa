/// \file
/// Indices of steps and values, which cannot be confused, and tables that only their own index
/// opens.
#pragma once

#include <cstddef>

namespace lockstep::detail {

/// A step of a plan, in the order of forward.
enum class StepId : int { none = -1 };
/// A value of a graph: the batch, or the output of a node.
enum class ValueId : int { none = -1, batch = 0 };

constexpr StepId& operator++(StepId& i) { return i = StepId{static_cast<int>(i) + 1}; }
constexpr StepId& operator--(StepId& i) { return i = StepId{static_cast<int>(i) - 1}; }
constexpr ValueId& operator++(ValueId& v) { return v = ValueId{static_cast<int>(v) + 1}; }

/// The step before i; before the first one `StepId::none`.
constexpr StepId before(StepId i) { return --i; }
/// An operand that a node has; a unary one has no second.
constexpr bool exists(ValueId v) { return v != ValueId::none; }
constexpr bool exists(StepId i) { return i != StepId::none; }
/// A value that has a place in the arena, and a gradient.
constexpr bool is_computed(ValueId v) { return v > ValueId::batch; }

/// One T for each index.
template <class Id, class T, std::size_t Size>
struct Table {
  T item[Size]{};
  constexpr T& operator[](Id i) { return item[static_cast<std::size_t>(i)]; }
  constexpr const T& operator[](Id i) const { return item[static_cast<std::size_t>(i)]; }
  constexpr const T* begin() const { return item; }
  constexpr const T* end() const { return item + Size; }
};

}  // namespace lockstep::detail
