/// \file
/// Statistics of data, for Normalization.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/fmt_core.hpp"

namespace lockstep {

/// Mean and population variance of each channel.
struct Moments {
  std::vector<double> mean, variance;
};

/// Over the first pass of the data, all examples and all axes but the last (Welford's way: one
/// walk, no cancellation). \throws UsageError for data without end or without examples.
template <Dataset D>
Moments moments(const D& data) {
  if (!data.size()) throw UsageError("moments: the data never end; take(n) as many as are needed");
  const std::size_t channels = static_cast<std::size_t>(data.shape().channels()),
                    size = data.shape().size();
  Moments m{std::vector<double>(channels), std::vector<double>(channels)};
  std::vector<double> x(size);
  using Target = target_of<D, double>;
  std::vector<Target> y(data.target_shape().size());
  double count = 0;
  auto order = data.indices(Pass{});
  for (std::uint64_t ordinal = 0; const auto index = order.next(); ++ordinal) {
    const std::array<Item, 1> item{Item{*index, ordinal}};
    data.gather(Pass{}, item, x.data(), y.data());
    for (std::size_t row = 0; row < size; row += channels) {
      count += 1;
      for (std::size_t k = 0; k < channels; ++k) {
        const double before = x[row + k] - m.mean[k];
        m.mean[k] += before / count;
        m.variance[k] += before * (x[row + k] - m.mean[k]);
      }
    }
  }
  if (count == 0) throw UsageError("moments: the data have no examples");
  for (double& v : m.variance) v /= count;
  return m;
}

/// Keras' `layer.adapt(data)`: gives the model's first layer, a Normalization, the moments of the
/// data. All workers of a job call it with the same data.
/// \throws UsageError if the model has no layer of this name, the layer is not the first, or the
/// channels differ.
template <class Model, Dataset D>
void adapt(Model& model, const D& data, std::string_view layer = "normalization") {
  if (!Model::is_first(layer))
    throw UsageError(
        "adapt: {} is not the model's first layer, so it does not see the data as they are; set "
        "its mean and variance by set_weights",
        layer);
  const Moments m = moments(data);
  using T = typename Model::T;
  const auto give = [&](const char* name, const std::vector<double>& values) {
    const std::vector<T> converted(values.begin(), values.end());
    model.set_weights(fmt::format("{}/{}", layer, name), converted);
  };
  give("mean", m.mean);
  give("variance", m.variance);
}

}  // namespace lockstep
