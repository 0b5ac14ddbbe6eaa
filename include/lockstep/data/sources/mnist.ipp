#pragma once

#include "lockstep/data/sources/mnist.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "lockstep/core/format_text.hpp"
#include "lockstep/data/sources/data_folder.hpp"
#include "lockstep/data/sources/idx.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep::datasets::detail {

/// Reads one part of MNIST; `name` is "train" or "t10k".
inline Images read_mnist(const std::string& folder, const std::string& name) {
  IdxBytes images = read_idx(format_text("{}/{}-images-idx3-ubyte", folder, name), 3);
  const IdxBytes labels = read_idx(format_text("{}/{}-labels-idx1-ubyte", folder, name), 1);
  const std::size_t count = images.extents[0];
  if (labels.extents[0] != count)
    throw DataError(labels.path,
                    "has {} labels, but {} has {} images; use files of the same data set",
                    labels.extents[0], images.path, count);
  for (const std::size_t extent : {images.extents[1], images.extents[2]})
    if (extent < 1 || extent > std::size_t{std::numeric_limits<int>::max()})
      throw DataError(images.path, "has images with an extent of {}; fetch it again", extent);
  for (std::size_t i = 0; i < count; ++i)
    if (labels.bytes[i] >= 10)
      throw DataError(
          labels.path,
          "label {} is {}, but MNIST has classes 0 to 9; check that it is the right file", i,
          labels.bytes[i]);
  return {std::move(images.bytes),
          shape(static_cast<int>(images.extents[1]), static_cast<int>(images.extents[2]), 1),
          std::vector<std::int32_t>(labels.bytes.begin(), labels.bytes.end()), Shape{}};
}

}  // namespace lockstep::datasets::detail

namespace lockstep::datasets {

Splits mnist(const std::string& folder) {
  detail::expect_data_folder(folder, "MNIST", "datasets::digits()");
  const auto part = [&](const char* name) {
    return [folder, name] { return detail::read_mnist(folder, name); };
  };
  return {"MNIST", part("train"), part("t10k")};
}

Splits mnist(const std::string& folder, const Splits& fallback) {
  return detail::has_data_folder(folder, "MNIST", fallback) ? mnist(folder) : fallback;
}

}  // namespace lockstep::datasets
