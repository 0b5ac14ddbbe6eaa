/// \file
/// A user-defined optimizer: w -= learning rate * sign(gradient).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/optimizers/schedule.hpp"

namespace testing {

/// Scalar only: the rule cannot be called with vectors.
struct SignOp {
  double rate = 0.1;
  std::size_t slot_count() const { return 0; }
  template <class T>
  struct Rule {
    T rate;
    void operator()(T& w, T g) const { w -= g > 0 ? rate : -rate; }
  };
  template <class T>
  Rule<T> rule() const {
    return {static_cast<T>(rate)};
  }
};
struct Sign {
  static constexpr std::string_view name = "sign";
  lockstep::Schedule learning_rate = 0.1;
  std::size_t slot_count() const { return 0; }
  static constexpr std::string_view slot_name(std::size_t) { return ""; }
  SignOp op(double rate, std::uint64_t) const { return {rate}; }
};

}  // namespace testing
