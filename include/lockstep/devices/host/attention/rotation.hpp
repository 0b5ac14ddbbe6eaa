/// \file
/// Rotary positions on every device over host memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "lockstep/layers/attention/attention_options.hpp"

namespace lockstep::detail {

/// Turns the pairs of elements of a head by the angles of its step. Angles are computed in double.
template <class T>
class Rotation {
 public:
  /// For heads of size `size` at the steps [0, steps).
  Rotation(const Rotary& rule, std::size_t steps, std::size_t size)
      : pairs_(size / 2), step_(rule.pairs ? 2 : 1), other_(rule.pairs ? 1 : size / 2) {
    if (!rule.on()) return;
    angles_.resize(2 * steps * pairs_);
    for (std::size_t t = 0; t < steps; ++t)
      for (std::size_t i = 0; i < pairs_; ++i) {
        const double angle = static_cast<double>(t) / static_cast<double>(rule.scaling_factor) *
                             std::pow(static_cast<double>(rule.max_wavelength),
                                      -2.0 * static_cast<double>(i) / static_cast<double>(size));
        angles_[2 * (t * pairs_ + i)] = static_cast<T>(std::cos(angle));
        angles_[2 * (t * pairs_ + i) + 1] = static_cast<T>(std::sin(angle));
      }
  }

  /// Turns `head` (size) by the angles of step t, or back.
  void turn(T* head, std::size_t t) const { turn(head, t, T(1)); }
  void turn_back(T* head, std::size_t t) const { turn(head, t, T(-1)); }

 private:
  void turn(T* head, std::size_t t, T direction) const {
    if (angles_.empty()) return;
    const T* const angles = angles_.data() + 2 * t * pairs_;
    for (std::size_t i = 0; i < pairs_; ++i) {
      const T cosine = angles[2 * i], sine = direction * angles[2 * i + 1];
      T &a = head[i * step_], &b = head[i * step_ + other_];
      const T x = a, y = b;
      a = x * cosine - y * sine;
      b = y * cosine + x * sine;
    }
  }

  std::size_t pairs_, step_, other_;
  std::vector<T> angles_;  // (steps, pairs, 2): cosine, sine; empty: no rotation
};

}  // namespace lockstep::detail
