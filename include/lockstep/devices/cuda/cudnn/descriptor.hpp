/// \file
/// Descriptors of cuDNN's backend. Invariants: each has one owner; an error names what was being
/// described, in cuDNN's own words.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/devices/cuda/libraries/cudnn.hpp"

namespace lockstep::detail::cuda {

/// A descriptor: set its attributes, then `finalize`.
/// \code
///   Descriptor mode(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "the bias");
///   mode.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD).finalize();
/// \endcode
class Descriptor {
 public:
  Descriptor() = default;
  /// `what` ends "describing ... failed"; it is not copied.
  [[gnu::cold]] Descriptor(cudnnBackendDescriptorType_t type, const char* what) : what_(what) {
    say(cudnn().cudnnBackendCreateDescriptor(type, &descriptor_));
  }
  Descriptor(Descriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, nullptr)), what_(other.what_) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(what_, other.what_);
    return *this;
  }
  ~Descriptor() {
    if (descriptor_ != nullptr) cudnn().cudnnBackendDestroyDescriptor(descriptor_);
  }

  Descriptor& set(cudnnBackendAttributeName_t name, std::int64_t value) {
    return set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values) {
    return set(name, CUDNN_TYPE_INT64, values.size(), values.data());
  }
  Descriptor& set(cudnnBackendAttributeName_t name, float value) {
    return set(name, CUDNN_TYPE_FLOAT, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, bool value) {
    return set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnConvolutionMode_t value) {
    return set(name, CUDNN_TYPE_CONVOLUTION_MODE, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnPointwiseMode_t value) {
    return set(name, CUDNN_TYPE_POINTWISE_MODE, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendHeurMode_t value) {
    return set(name, CUDNN_TYPE_HEUR_MODE, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnHandle_t value) {
    return set(name, CUDNN_TYPE_HANDLE, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, std::string_view text) {
    return set(name, CUDNN_TYPE_CHAR, text.size(), text.data());
  }
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<void* const> values) {
    return set(name, CUDNN_TYPE_VOID_PTR, values.size(), values.data());
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& values) {
    std::vector<cudnnBackendDescriptor_t> all;
    for (const Descriptor& d : values) all.push_back(d.descriptor_);
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, all.size(), all.data());
  }
  Descriptor& finalize() {
    say(cudnn().cudnnBackendFinalize(descriptor_));
    return *this;
  }
  /// Whether cuDNN can do what is described.
  bool try_finalize() { return cudnn().cudnnBackendFinalize(descriptor_) == CUDNN_STATUS_SUCCESS; }

  /// A number of a finalised descriptor.
  std::int64_t number(cudnnBackendAttributeName_t name) const {
    std::int64_t value = 0, count = 0;
    say(cudnn().cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_INT64, 1, &count, &value));
    return value;
  }
  /// A text of a finalised descriptor.
  std::string characters(cudnnBackendAttributeName_t name) const {
    std::int64_t count = 0;
    say(cudnn().cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_CHAR, 0, &count, nullptr));
    std::string text(static_cast<std::size_t>(count), '\0');
    say(cudnn().cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_CHAR, count, &count,
                                         text.data()));
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  }
  /// Up to `most` parts of a finalised descriptor, which are of type `type`.
  std::vector<Descriptor> parts(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                                std::int64_t most) const {
    std::vector<Descriptor> all;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (std::int64_t i = 0; i < most; ++i) {
      all.emplace_back(type, what_);
      raw.push_back(all.back().descriptor_);
    }
    std::int64_t count = 0;
    say(cudnn().cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most,
                                         &count, raw.data()));
    if (count < most) all.erase(all.begin() + static_cast<std::ptrdiff_t>(count), all.end());
    return all;
  }
  /// The notes of a finalised engine.
  std::vector<cudnnBackendNumericalNote_t> notes() const {
    std::vector<cudnnBackendNumericalNote_t> all(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    std::int64_t count = 0;
    say(cudnn().cudnnBackendGetAttribute(
        descriptor_, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
        static_cast<std::int64_t>(all.size()), &count, all.data()));
    // A newer cuDNN may know more notes than there is room for.
    all.resize(std::min(all.size(), static_cast<std::size_t>(count)));
    return all;
  }

  cudnnBackendDescriptor_t get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ != nullptr; }

 private:
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  std::size_t count, const void* values) {
    say(cudnn().cudnnBackendSetAttribute(descriptor_, name, type, static_cast<std::int64_t>(count),
                                         values));
    return *this;
  }
  void say(cudnnStatus_t status) const {
    if (status != CUDNN_STATUS_SUCCESS) refuse(status);
  }
  [[noreturn, gnu::cold]] void refuse(cudnnStatus_t status) const {
    check(status, (std::string("describing ") + what_ + " to cuDNN").c_str());
    throw DeviceError("cuda: cuDNN reports an error that is none");
  }

  cudnnBackendDescriptor_t descriptor_ = nullptr;
  const char* what_ = "";
};

}  // namespace lockstep::detail::cuda
