/// \file
/// Mean and variance of a data set, for Normalization layers.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep {

/// Mean and population variance of each channel (last axis).
struct Moments {
  std::vector<double> mean, variance;
};

/// Moments over the first pass of the data, over all examples and all axes except the last.
/// Welford's algorithm: one pass, no cancellation. \throws UsageError if the data never end or are
/// empty.
/// \code
///   const ls::Moments m = ls::moments(train);   // m.mean[channel], m.variance[channel]
/// \endcode
template <Dataset D>
Moments moments(const D& data) {
  static_assert(D::fields::kinds[0].type == FieldType::real,
                "lockstep::moments: the first feature is not of real numbers");
  if (!data.size()) throw UsageError("moments: the data never end; add ls::take(n)");
  const std::size_t channels = static_cast<std::size_t>(data.shape().channels()),
                    size = data.shape().size();
  Moments m{std::vector<double>(channels), std::vector<double>(channels)};
  std::vector<double> x(size);
  double count = 0;
  auto order = data.indices(Pass{});
  for (std::uint64_t ordinal = 0; const auto index = order.next(); ++ordinal) {
    const std::array<Item, 1> item{Item{*index, ordinal}};
    data.gather(Pass{}, item, RowsOf<D, double>(x.data()));
    for (std::size_t row = 0; row < size; row += channels) {
      count += 1;
      for (std::size_t k = 0; k < channels; ++k) {
        const double before = x[row + k] - m.mean[k];
        m.mean[k] += before / count;
        m.variance[k] += before * (x[row + k] - m.mean[k]);
      }
    }
  }
  if (count == 0) throw UsageError("moments: the data are empty; check take, skip and the files");
  for (double& v : m.variance) v /= count;
  return m;
}

/// Keras' `layer.adapt(data)`: sets mean and variance of the model's first layer, a Normalization,
/// to those of the data. All workers of a job call it with the same data.
/// \throws UsageError if the layer of this name does not exist or does not read the model's input,
/// or if the number of channels differs.
/// \code
///   ls::adapt(model, train);
/// \endcode
template <class Model, Dataset D>
void adapt(Model& model, const D& data, std::string_view layer = "normalization") {
  if (!Model::is_first(layer)) {
    const auto parameters = model.parameters();
    const std::string prefix = format_text("{}/", layer);
    if (std::none_of(parameters.begin(), parameters.end(),
                     [&](const auto& p) { return p.name.starts_with(prefix); }))
      throw UsageError(
          "adapt: the model has no layer {}; put ls::Normalization after Input, or pass the name "
          "of the model's Normalization",
          layer);
    throw UsageError(
        "adapt: {} is not the model's first layer, so the moments of the data are not those of its "
        "input; set its mean and variance with set_weights",
        layer);
  }
  const Moments m = moments(data);
  using T = typename Model::T;
  const auto give = [&](const char* name, const std::vector<double>& values) {
    const std::vector<T> converted(values.begin(), values.end());
    model.set_weights(format_text("{}/{}", layer, name), converted);
  };
  give("mean", m.mean);
  give("variance", m.variance);
}

}  // namespace lockstep
