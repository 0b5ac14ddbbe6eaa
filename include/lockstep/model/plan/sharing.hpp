/// \file
/// Plan pass: values that share memory. Invariant: no step reads a value after another one was
/// written over it.
#pragma once

#include <cstddef>

#include "lockstep/model/plan/needs.hpp"

namespace lockstep::detail {

/// Memory shared by in-place kernels:
/// \code
///   conv2d  writes value 1               memory[1] = 1
///   re_lu   in place: value 2 over 1     memory[2] = 1
///   dense   reads value 2, writes 3      memory[3] = 3
///   gradient_overwrites_value[2]: backward of dense writes the gradient of 2 over 2
/// \endcode
template <std::size_t Size>
struct Sharing {
  Table<ValueId, ValueId, Size> memory{};  ///< the first value at this memory
  Table<ValueId, bool, Size> gradient_overwrites_value{};
};

/// Finds the values that can share memory. `recomputes`: the model has a `Recompute` block.
template <std::size_t Size, std::size_t Operands>
constexpr Sharing<Size> sharing_of(const StepList<Size, Operands>& steps,
                                   const Needs<Size, Operands>& needs, bool recomputes) {
  Sharing<Size> result;
  for (ValueId v{}; static_cast<std::size_t>(v) < Size; ++v) result.memory[v] = v;
  for (StepId i{}; i < steps.end; ++i) {
    const PlanStep& s = steps.step[i];
    const ValueId x = steps.input_of(s);
    // The input of a Recompute block is read a second time.
    if (needs.kernel[i].in_place && !needs.operand[s.operands_begin].keeps &&
        needs.is_free_after_its_reader(x) &&
        (s.segment < 0 || steps.step[needs.producer[x]].segment == s.segment))
      result.memory[s.out] = result.memory[x];
  }
  for (StepId i{}; i < steps.end && !recomputes; ++i) {
    const PlanStep& s = steps.step[i];
    const ValueId x = steps.input_of(s);
    result.gradient_overwrites_value[x] = needs.kernel[i].dx_in_place &&
                                          needs.is_free_after_its_reader(x) && x != steps.output &&
                                          result.memory[x] == x && result.memory[s.out] == s.out;
  }
  return result;
}

}  // namespace lockstep::detail
