/// \file
/// Copies of a model's parameters and gradients by name, from its flat buffers.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/concepts/named_tensor.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

/// The parameters in the order of the layers. `weights` and `gradients` are the flat buffers of the
/// trainable parameters, `state` that of the others. `gradients` may be empty: not known.
template <class T>
[[gnu::cold]] std::vector<NamedTensor> named_tensors(std::span<const NamedParameter> parameters,
                                                     const std::vector<T>& weights,
                                                     const std::vector<T>& state,
                                                     const std::vector<T>& gradients) {
  std::vector<NamedTensor> result;
  result.reserve(parameters.size());
  for (ParameterInfo& p : parameters_of(parameters)) {
    const auto part = [&](const std::vector<T>& flat) {
      const T* const first = flat.data() + p.offset;
      return std::vector<float>(first, first + p.size());
    };
    result.push_back({std::move(p.name), p.shape, part(p.trainable ? weights : state),
                      p.trainable && !gradients.empty() ? part(gradients) : std::vector<float>()});
  }
  return result;
}

}  // namespace lockstep::detail
