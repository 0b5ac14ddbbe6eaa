/// \file
/// Golden files recorded from Keras, and the tolerances for devices.
#pragma once

#include <unistd.h>
#include <algorithm>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "lockstep/core/shape.hpp"
#include "lockstep/files/safetensors.hpp"

namespace golden {

/// Allowed relative error against values stored in float64; see README.md.
template <class D>
inline constexpr double tolerance = sizeof(typename D::real) == sizeof(double) ? 1e-10 : 1e-5;

/// $LOCKSTEP_GOLDEN_DIR, for programs that run on a machine other than the build machine; otherwise
/// the source folder.
inline std::string golden_folder() {
  const char* const folder = std::getenv("LOCKSTEP_GOLDEN_DIR");
  return folder == nullptr ? LOCKSTEP_GOLDEN_DIR : folder;
}

/// A golden data file.
class GoldenFile {
 public:
  /// `name`: without folder and extension.
  explicit GoldenFile(const std::string& name, const std::string& folder = golden_folder())
      : file_(lockstep::SafetensorsFile::read(folder + "/" + name + ".safetensors")) {}

  /// A tensor's elements in double, whatever their type in the file.
  std::vector<double> values(const std::string& tensor) const {
    switch (*file_.at(tensor).dtype) {
      case lockstep::DType::float32:
        return as_double<float>(tensor);
      case lockstep::DType::int32:
        return as_double<std::int32_t>(tensor);
      case lockstep::DType::int64:
        return as_double<std::int64_t>(tensor);
      case lockstep::DType::uint8:
        return as_double<std::uint8_t>(tensor);
      default:
        return file_.values<double>(tensor);
    }
  }
  /// The first extent, which is the number of examples.
  std::size_t count(const std::string& tensor) const {
    return static_cast<std::size_t>(file_.at(tensor).shape.at(0));
  }
  /// The other extents, which are the shape of one example.
  lockstep::Shape example_shape(const std::string& tensor) const {
    const auto& whole = file_.at(tensor).shape;
    lockstep::Shape example{static_cast<int>(whole.size()) - 1, {1, 1, 1, 1, 1}};
    std::transform(whole.begin() + 1, whole.end(), example.extent.begin(),
                   [](std::uint64_t extent) { return static_cast<int>(extent); });
    return example;
  }

 private:
  template <class T>
  std::vector<double> as_double(const std::string& tensor) const {
    const auto values = file_.values<T>(tensor);
    std::vector<double> result(values.size());
    std::transform(values.begin(), values.end(), result.begin(),
                   [](T v) { return static_cast<double>(v); });
    return result;
  }

  lockstep::SafetensorsFile file_;
};

}  // namespace golden
