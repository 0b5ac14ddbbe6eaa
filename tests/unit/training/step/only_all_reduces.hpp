/// \file
/// An exchange without the optional operations, as a custom strategy may have.
#pragma once

#include <cstddef>

#include "lockstep/concepts/collective.hpp"

namespace testing {

/// Only knows all-reduces of ranges.
struct OnlyAllReduces {
  lockstep::GradientExchange<double> of;
  void post(double* p, std::size_t n) { of.post(p, n); }
  void finish(double* p, std::size_t n, double* sums, std::size_t m) { of.finish(p, n, sums, m); }
};

}  // namespace testing
