/// \file
/// The rate of multiply-adds that threads of this machine attain at most: the peak of a profile.
#pragma once

#include <cstddef>

#include "lockstep/core/config.hpp"
#include "lockstep/core/function_ref.hpp"

namespace lockstep::detail {

/// FLOP/s of `threads` threads that only multiply and add on registers, in the widest vectors of
/// the processor; a multiply-add counts as two operations. Takes about 40 ms.
///
/// `in_double`: elements are double, otherwise float. `in_each_thread(body)` calls body() at the
/// same time in each of the threads. A loop has 12 independent sums, more than a core has in flight
/// (4 cycles x 2 units), and the fastest of several rounds counts. Cores that other programs use as
/// well make the rate lower, as they do the times of a step. A build without optimization measures
/// less with clang; g++ optimizes the loop in any build.
LOCKSTEP_COLD_DECL double fma_rate(bool in_double, std::size_t threads,
                                   FunctionRef<void(FunctionRef<void()>)> in_each_thread);

/// Loops of 12 x iterations multiply-adds on vectors of `bytes` bytes; the second argument is 1.
/// \returns the sum of all elements, each of which converges to 0.5.
struct FmaLoop {
  double (*in_float)(long iterations, float one);
  double (*in_double)(long iterations, double one);
  std::size_t bytes;
};
/// The loops of the processor's widest vectors.
LOCKSTEP_COLD_DECL FmaLoop widest_fma_loop();

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/report/fma_rate.ipp"
#endif
