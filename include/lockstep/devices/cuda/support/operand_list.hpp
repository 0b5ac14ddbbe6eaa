/// \file
/// Pointers to the operands of an op as one argument of a GPU kernel.
#pragma once

#include <algorithm>
#include <cstddef>

namespace lockstep::detail::cuda {

/// As many pointers as one argument has at most; the arguments of a launch have 240 bytes in all.
inline constexpr std::size_t most_listed = 12;

/// The first pointers of a list, `most_listed` at most. The kernel's text has a struct with an array.
template <class Pointer>
struct OperandList {
  OperandList(const Pointer* from, std::size_t count) {
    std::copy_n(from, std::min(count, most_listed), at);
  }
  Pointer at[most_listed]{};
};

}  // namespace lockstep::detail::cuda
