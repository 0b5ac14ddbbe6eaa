/// \file
/// `rescale` multiplies and adds. Invariants: lazy, so the data below it stay bytes; computed in
/// the device's type, in the same loop that converts the elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// The operation x * scale + offset as the op of a RowChange.
struct Scaling {
  static constexpr bool random = false;
  double scale = 1, offset = 0;
};

/// `D` with features T(x) * T(scale) + T(offset).
template <Dataset D>
class Rescale : public Mapped<Rescale<D>, D> {
 public:
  Rescale(D source, double scale, double offset)
      : Mapped<Rescale<D>, D>(std::move(source)), scale_(scale), offset_(offset) {}

  template <class T>
  void gather(Pass pass, std::span<const Item> items, RowsOf<D, T> to) const {
    const T scale = static_cast<T>(scale_), offset = static_cast<T>(offset_);
    if constexpr (GathersScaled<D, T>) {
      this->source().gather(pass, items, to, scale, offset);
    } else {
      this->source().gather(pass, items, to);
      const std::size_t n = to.x() == nullptr ? 0 : items.size() * this->shape().size();
      for (std::size_t i = 0; i < n; ++i) to.x()[i] = to.x()[i] * scale + offset;
    }
  }
  /// Applies `f` below this rescale, and below any rescale directly under it.
  template <class F>
  auto rebase(F f) const {
    auto inner = apply_under_rescale(this->source(), f);
    return Rescale<decltype(inner)>(std::move(inner), scale_, offset_);
  }
  RowChange<Scaling> change() const {
    return {{scale_, offset_}, this->shape(), this->shape(), random_maps<D>};
  }
  double scale() const { return scale_; }
  double offset() const { return offset_; }
  const D& upstream() const { return this->source(); }

 private:
  double scale_, offset_;
};

}  // namespace pipeline

/// Multiplies features by `scale` and adds `offset` (Keras' Rescaling layer). Targets are
/// unchanged.
///
/// x' = T(x) * T(scale) + T(offset), where T, float or double, is the type that the device computes
/// in.
/// \code
///   auto unit = images | lockstep::rescale(1.0f / 255);   // 0..255 to 0..1
/// \endcode
inline auto rescale(double scale, double offset = 0.0) {
  return pipeline::operation(
      [scale, offset]<class D>(D source) {
        return pipeline::Rescale<D>(std::move(source), scale, offset);
      },
      [](auto found) { static_assert(!found.batched, LOCKSTEP_BATCHED("rescale")); });
}

}  // namespace lockstep
