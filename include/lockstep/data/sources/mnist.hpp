/// \file
/// MNIST from a folder of IDX files. Invariants: the test files are not touched before `test()`;
/// other examples are used only if the caller names them and the folder is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/sources/data_folder.hpp"
#include "lockstep/data/sources/idx.hpp"
#include "lockstep/data/sources/splits.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep::datasets {

namespace detail {

/// One part of MNIST: `name` is "train" or "t10k".
[[gnu::cold]] inline Images read_mnist(const std::string& folder, const std::string& name) {
  IdxBytes images = read_idx(text({folder, "/", name, "-images-idx3-ubyte"}), 3);
  const IdxBytes labels = read_idx(text({folder, "/", name, "-labels-idx1-ubyte"}), 1);
  const std::size_t count = images.extents[0];
  if (labels.extents[0] != count)
    throw DataError(labels.path, {"has ", labels.extents[0], " labels, but ", images.path, " has ",
                                  count, " images; take both from one data set"});
  for (const std::size_t extent : {images.extents[1], images.extents[2]})
    if (extent < 1 || extent > std::size_t{std::numeric_limits<int>::max()})
      throw DataError(images.path, {"its images have an extent of ", extent, "; fetch it again"});
  for (std::size_t i = 0; i < count; ++i)
    if (labels.bytes[i] >= 10)
      throw DataError(labels.path,
                      {"label ", i, " is ", labels.bytes[i],
                       ", where MNIST has classes 0 to 9; check that it is the right file"});
  return {std::move(images.bytes),
          shape(static_cast<int>(images.extents[1]), static_cast<int>(images.extents[2]), 1),
          std::vector<std::int32_t>(labels.bytes.begin(), labels.bytes.end()), Shape{}};
}

}  // namespace detail

/// MNIST: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
/// `t10k-labels-idx1-ubyte` in `folder`, each plain or with `.gz` (the plain one wins).
///
/// Any number of images of any one size; shape (height, width, 1), labels 0 to 9.
/// \throws FileError if the folder is missing, or it or one of its files cannot be read; DataError
/// from `train()` and `test()` if a file is damaged or the two of a part do not agree.
/// \code
///   auto train = lockstep::datasets::mnist("data/mnist").train();   // 60,000 of (28, 28, 1)
/// \endcode
[[gnu::cold]] inline Splits mnist(const std::string& folder) {
  detail::expect_data_folder(folder, "MNIST", "datasets::digits()");
  const auto part = [&](const char* name) {
    return [folder, name] { return detail::read_mnist(folder, name); };
  };
  return {"MNIST", part("train"), part("t10k")};
}

/// MNIST from `folder` or, if there is no such folder, `otherwise`, and a warning says so. A folder
/// that exists and lacks a file is an error.
/// \code
///   using namespace lockstep::datasets;
///   auto train = mnist("data/mnist", digits()).train();
/// \endcode
[[gnu::cold]] inline Splits mnist(const std::string& folder, const Splits& otherwise) {
  return detail::has_data_folder(folder, "MNIST", otherwise) ? mnist(folder) : otherwise;
}

}  // namespace lockstep::datasets
