/// \file
/// Typed indices of steps and values, and tables that accept only the matching index type.
#pragma once

#include <cstddef>

namespace lockstep::detail {

/// A step of a plan, in the order of forward.
enum class StepId : int { none = -1 };
/// A value of a graph: the batch, or the output of a node.
enum class ValueId : int { batch = 0 };

constexpr StepId& operator++(StepId& i) { return i = StepId{static_cast<int>(i) + 1}; }
constexpr StepId& operator--(StepId& i) { return i = StepId{static_cast<int>(i) - 1}; }
constexpr ValueId& operator++(ValueId& v) { return v = ValueId{static_cast<int>(v) + 1}; }

/// The step before i; `StepId::none` for the first one.
constexpr StepId before(StepId i) { return --i; }
/// False for `none`.
constexpr bool exists(StepId i) { return i != StepId::none; }
/// Whether the value is in the arena and can have a gradient, which excludes the batch.
constexpr bool is_computed(ValueId v) { return v > ValueId::batch; }

/// An array of T indexed by Id.
template <class Id, class T, std::size_t Size>
struct Table {
  T item[Size]{};
  constexpr T& operator[](Id i) { return item[static_cast<std::size_t>(i)]; }
  constexpr const T& operator[](Id i) const { return item[static_cast<std::size_t>(i)]; }
  constexpr const T* begin() const { return item; }
  constexpr const T* end() const { return item + Size; }
};

}  // namespace lockstep::detail
