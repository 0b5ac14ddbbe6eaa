/// \file
/// `rescale`: multiply and add. Invariants: lazy, so that what lies under it stays bytes; computed
/// in the type of the device, in the same loop that converts.
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

/// x * scale + offset, see RowChange.
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
  void gather(Pass pass, std::span<const Item> items, T* x,
              detail::target_in<typename D::target_type, T>* y) const {
    const T scale = static_cast<T>(scale_), offset = static_cast<T>(offset_);
    if constexpr (GathersScaled<D, T>) {
      this->source().gather_scaled(pass, items, x, y, scale, offset);
    } else {
      this->source().gather(pass, items, x, y);
      const std::size_t n = items.size() * this->shape().size();
      for (std::size_t i = 0; i < n; ++i) x[i] = x[i] * scale + offset;
    }
  }
  /// The same rescale over `f(source)`; a rescale right under it stays above `f` too.
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

/// What `lockstep::rescale` returns.
struct RescaleOperation : Operation {
  RescaleOperation(double s, double o) : scale(s), offset(o) {}
  double scale, offset;

  template <Dataset D>
  auto apply(D source) const {
    static_assert(!BatchedDataset<D>,
                  "lockstep::rescale: the pipeline is already batched; put rescale before batch");
    if constexpr (BatchedDataset<D>)
      return source;
    else
      return Rescale<D>(std::move(source), scale, offset);
  }
};

}  // namespace pipeline

/// Features times `scale` plus `offset` (Keras' Rescaling layer); targets stay.
///
/// x' = T(x) * T(scale) + T(offset), T being float or double as the device computes.
/// \code
///   auto unit = images | lockstep::rescale(1.0f / 255);   // 0..255 to 0..1
/// \endcode
inline pipeline::RescaleOperation rescale(double scale, double offset = 0.0) {
  return {scale, offset};
}

}  // namespace lockstep
