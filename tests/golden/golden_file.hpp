/// \file
/// Golden files of Keras, and how near a device must come to them.
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

/// Allowed error of what is stored in float64: see README.md.
template <class D>
inline constexpr double tolerance = sizeof(typename D::real) == sizeof(double) ? 1e-10 : 1e-5;

/// $LOCKSTEP_GOLDEN_DIR, for programs that run on another machine than they were built on; else the
/// folder of the sources.
inline std::string golden_folder() {
  const char* const folder = std::getenv("LOCKSTEP_GOLDEN_DIR");
  return folder == nullptr ? LOCKSTEP_GOLDEN_DIR : folder;
}

/// A file of the golden data.
class GoldenFile {
 public:
  /// `name`: without folder and ending.
  explicit GoldenFile(const std::string& name, const std::string& folder = golden_folder())
      : file_(lockstep::SafetensorsFile::read(folder + "/" + name + ".safetensors")) {}

  /// A tensor's elements, whatever number they are in the file.
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
  /// The first extent: examples.
  std::size_t count(const std::string& tensor) const {
    return static_cast<std::size_t>(file_.at(tensor).shape.at(0));
  }
  /// The others: the shape of one example.
  lockstep::Shape example_shape(const std::string& tensor) const {
    const auto& whole = file_.at(tensor).shape;
    lockstep::Shape example{static_cast<int>(whole.size()) - 1, {1, 1, 1, 1}};
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
