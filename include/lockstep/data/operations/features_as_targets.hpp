/// \file
/// `features_as_targets` makes the features of each example its target. Invariants: features are
/// gathered once and copied; later operations change only the features.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/convert.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/scratch.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// `D` with its features instead of its targets.
template <Dataset D>
class FeaturesAsTargets : public Stage<D> {
 public:
  using target_type = float;
  using Stage<D>::Stage;

  Shape target_shape() const { return this->shape(); }

  template <class T>
  void gather(Pass pass, std::span<const Item> items, T* x, T* y) const {
    using Unused = detail::target_in<typename D::target_type, T>;
    constexpr std::size_t chunk = 64;  // bounds the scratch for the unused targets of D
    const std::size_t n = this->shape().size();
    const auto old = scratch<FeaturesAsTargets, 0, Unused>(chunk * Stage<D>::target_shape().size());
    for (std::size_t first = 0; first < items.size(); first += chunk) {
      const auto part = items.subspan(first, std::min(chunk, items.size() - first));
      this->source().gather(pass, part, x + first * n, old.data());
      std::copy_n(x + first * n, part.size() * n, y + first * n);
    }
  }
  const D& upstream() const { return this->source(); }
};

/// The type of `lockstep::features_as_targets`.
struct FeaturesAsTargetsOperation : Operation {
  template <Dataset D>
  auto apply(D source) const {
    static_assert(!BatchedDataset<D>,
                  "lockstep::features_as_targets: the pipeline is already batched; put "
                  "features_as_targets before batch");
    if constexpr (BatchedDataset<D>)
      return source;
    else
      return FeaturesAsTargets<D>(std::move(source));
  }
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
inline constexpr pipeline::FeaturesAsTargetsOperation features_as_targets{};

}  // namespace lockstep
