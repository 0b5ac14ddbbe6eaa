/// \file
/// `features_as_targets` makes the features of each example its target. Invariants: features are
/// gathered once and copied; later operations change only the features.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// `D` with its features instead of its targets.
template <Dataset D>
class FeaturesAsTargets : public ExampleStage<D> {
 public:
  using fields = std::conditional_t<has_weights<D>, with_weight<Labeled<float>>, Labeled<float>>;
  using ExampleStage<D>::ExampleStage;

  Shape shape(std::size_t field = 0) const {
    return this->source().shape(field < 2 ? 0 : weight_field<D>);
  }

  template <class T>
  void gather(Pass pass, std::span<const Item> items, Rows<T, fields> to) const {
    T* const x = to.x() != nullptr ? to.x() : to.y();
    this->source().gather(pass, items, RowsOf<D, T>(x, nullptr, to.w()));
    if (to.y() != nullptr && to.y() != x)
      std::copy_n(x, items.size() * this->shape().size(), to.y());
  }
  const D& upstream() const { return this->source(); }
};

}  // namespace pipeline

/// Copies the current features to the targets, for an autoencoder (Keras' `fit(x, x)`); the
/// previous targets are dropped. The target shape is the shape of the features.
///
/// Operations before this one change both, operations after it only the features: put rescale
/// before it, and the noise of a denoising autoencoder after it. A cache is smallest before it.
/// \code
///   auto clean = images | lockstep::rescale(1.0 / 255) | lockstep::features_as_targets;
///   auto noisy = clean | lockstep::map([](auto& example, lockstep::Philox& draws) {
///     for (float& v : example.x) v += 0.1f * static_cast<float>(draws.normal());
///   });
/// \endcode
inline constexpr auto features_as_targets = pipeline::operation(
    []<class D>(D source) { return pipeline::FeaturesAsTargets<D>(std::move(source)); },
    [](auto found) { static_assert(!found.batched, LOCKSTEP_BATCHED("features_as_targets")); });

}  // namespace lockstep
