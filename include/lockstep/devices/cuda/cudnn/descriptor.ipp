#pragma once

#include "lockstep/devices/cuda/cudnn/descriptor.hpp"

namespace lockstep::detail::cuda {

Descriptor::Descriptor(cudnnBackendDescriptorType_t type, const char* what) : what_(what) {
  check_status(cudnn().cudnnBackendCreateDescriptor(type, &descriptor_));
}

// Swaps; the other object destroys the old descriptor.
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(what_, other.what_);
  return *this;
}

Descriptor::~Descriptor() {
  if (descriptor_ != nullptr) cudnn().cudnnBackendDestroyDescriptor(descriptor_);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, std::int64_t value) {
  return set(name, CUDNN_TYPE_INT64, 1, &value);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name,
                            std::span<const std::int64_t> values) {
  return set(name, CUDNN_TYPE_INT64, values.size(), values.data());
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, float value) {
  return set(name, CUDNN_TYPE_FLOAT, 1, &value);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, bool value) {
  return set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnConvolutionMode_t value) {
  return set(name, CUDNN_TYPE_CONVOLUTION_MODE, 1, &value);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnPointwiseMode_t value) {
  return set(name, CUDNN_TYPE_POINTWISE_MODE, 1, &value);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendHeurMode_t value) {
  return set(name, CUDNN_TYPE_HEUR_MODE, 1, &value);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnHandle_t value) {
  return set(name, CUDNN_TYPE_HANDLE, 1, &value);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, std::string_view text) {
  return set(name, CUDNN_TYPE_CHAR, text.size(), text.data());
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, std::span<void* const> values) {
  return set(name, CUDNN_TYPE_VOID_PTR, values.size(), values.data());
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& value) {
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name,
                            const std::vector<Descriptor>& values) {
  std::vector<cudnnBackendDescriptor_t> all;
  for (const Descriptor& d : values) all.push_back(d.descriptor_);
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, all.size(), all.data());
}

Descriptor& Descriptor::finalize() {
  check_status(cudnn().cudnnBackendFinalize(descriptor_));
  return *this;
}

bool Descriptor::try_finalize() {
  return cudnn().cudnnBackendFinalize(descriptor_) == CUDNN_STATUS_SUCCESS;
}

std::int64_t Descriptor::number(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0, count = 0;
  check_status(
      cudnn().cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_INT64, 1, &count, &value));
  return value;
}

// The first call asks for the length, the second one copies the text.
std::string Descriptor::characters(cudnnBackendAttributeName_t name) const {
  std::int64_t count = 0;
  check_status(
      cudnn().cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_CHAR, 0, &count, nullptr));
  std::string text(static_cast<std::size_t>(count), '\0');
  check_status(cudnn().cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_CHAR, count, &count,
                                                text.data()));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

std::vector<Descriptor> Descriptor::parts(cudnnBackendAttributeName_t name,
                                          cudnnBackendDescriptorType_t type,
                                          std::int64_t most) const {
  std::vector<Descriptor> all;
  std::vector<cudnnBackendDescriptor_t> raw;
  // cuDNN fills descriptors that the caller has created, so `most` empty ones are passed.
  for (std::int64_t i = 0; i < most; ++i) {
    all.emplace_back(type, what_);
    raw.push_back(all.back().descriptor_);
  }
  std::int64_t count = 0;
  check_status(cudnn().cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                most, &count, raw.data()));
  if (count < most) all.erase(all.begin() + static_cast<std::ptrdiff_t>(count), all.end());
  return all;
}

std::vector<cudnnBackendNumericalNote_t> Descriptor::notes() const {
  std::vector<cudnnBackendNumericalNote_t> all(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  std::int64_t count = 0;
  check_status(cudnn().cudnnBackendGetAttribute(
      descriptor_, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
      static_cast<std::int64_t>(all.size()), &count, all.data()));
  // A newer cuDNN may return more notes than this version's headers define.
  all.resize(std::min(all.size(), static_cast<std::size_t>(count)));
  return all;
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            std::size_t count, const void* values) {
  check_status(cudnn().cudnnBackendSetAttribute(descriptor_, name, type,
                                                static_cast<std::int64_t>(count), values));
  return *this;
}

void Descriptor::check_status(cudnnStatus_t status) const {
  if (status != CUDNN_STATUS_SUCCESS) refuse(status);
}

// check throws for every status but success, for which `refuse` is not called.
void Descriptor::refuse(cudnnStatus_t status) const {
  check(status, (std::string("describing ") + what_ + " to cuDNN").c_str());
  throw DeviceError("cuda: cuDNN returned an unexpected status");
}

}  // namespace lockstep::detail::cuda
