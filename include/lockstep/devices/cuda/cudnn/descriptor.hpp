/// \file
/// Descriptors of cuDNN's backend API. Invariants: each has one owner; an error names the object
/// being described and quotes cuDNN.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/libraries/cudnn.hpp"

namespace lockstep::detail::cuda {

/// A backend descriptor: set its attributes, then call `finalize`.
/// \code
///   Descriptor mode(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "the bias");
///   mode.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD).finalize();
/// \endcode
class Descriptor {
 public:
  Descriptor() = default;
  /// `what` completes "describing ... to cuDNN failed" and must outlive the descriptor.
  LOCKSTEP_COLD_DECL Descriptor(cudnnBackendDescriptorType_t type, const char* what);
  Descriptor(Descriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, nullptr)), what_(other.what_) {}
  LOCKSTEP_DECL Descriptor& operator=(Descriptor&& other) noexcept;
  LOCKSTEP_DECL ~Descriptor();

  /// Each `set` writes an attribute and returns the descriptor. \throws DeviceError.
  LOCKSTEP_DECL Descriptor& set(cudnnBackendAttributeName_t name, std::int64_t value);
  LOCKSTEP_DECL Descriptor& set(cudnnBackendAttributeName_t name,
                                std::span<const std::int64_t> values);
  LOCKSTEP_DECL Descriptor& set(cudnnBackendAttributeName_t name, float value);
  LOCKSTEP_DECL Descriptor& set(cudnnBackendAttributeName_t name, bool value);
  LOCKSTEP_DECL Descriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  LOCKSTEP_DECL Descriptor& set(cudnnBackendAttributeName_t name, cudnnConvolutionMode_t value);
  LOCKSTEP_DECL Descriptor& set(cudnnBackendAttributeName_t name, cudnnPointwiseMode_t value);
  LOCKSTEP_DECL Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendHeurMode_t value);
  LOCKSTEP_DECL Descriptor& set(cudnnBackendAttributeName_t name, cudnnHandle_t value);
  LOCKSTEP_DECL Descriptor& set(cudnnBackendAttributeName_t name, std::string_view text);
  LOCKSTEP_DECL Descriptor& set(cudnnBackendAttributeName_t name, std::span<void* const> values);
  LOCKSTEP_DECL Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value);
  LOCKSTEP_DECL Descriptor& set(cudnnBackendAttributeName_t name,
                                const std::vector<Descriptor>& values);
  /// Freezes the attributes. \throws DeviceError if cuDNN does not support them.
  LOCKSTEP_DECL Descriptor& finalize();
  /// Returns false if cuDNN does not support what is described.
  LOCKSTEP_DECL bool try_finalize();

  /// An integer attribute of a finalised descriptor.
  LOCKSTEP_DECL std::int64_t number(cudnnBackendAttributeName_t name) const;
  /// A text attribute of a finalised descriptor.
  LOCKSTEP_DECL std::string characters(cudnnBackendAttributeName_t name) const;
  /// Up to `most` descriptors of type `type` that a finalised descriptor contains.
  LOCKSTEP_DECL std::vector<Descriptor> parts(cudnnBackendAttributeName_t name,
                                              cudnnBackendDescriptorType_t type,
                                              std::int64_t most) const;
  /// The numerical notes of a finalised engine.
  LOCKSTEP_DECL std::vector<cudnnBackendNumericalNote_t> notes() const;

  cudnnBackendDescriptor_t get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ != nullptr; }

 private:
  LOCKSTEP_DECL Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                std::size_t count, const void* values);
  /// \throws DeviceError that names `what` unless the status is success.
  LOCKSTEP_DECL void check_status(cudnnStatus_t status) const;
  [[noreturn]] LOCKSTEP_COLD_DECL void refuse(cudnnStatus_t status) const;

  cudnnBackendDescriptor_t descriptor_ = nullptr;
  const char* what_ = "";
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/cudnn/descriptor.ipp"
#endif
