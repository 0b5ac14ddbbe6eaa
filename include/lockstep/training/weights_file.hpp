/// \file
/// A model's parameters as a safetensors file. Invariants: names and shapes are Keras'; a file that
/// does not fit exactly is refused, by the tensor at fault, before anything is changed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/dtype.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

/// The values of all parameters, weights and state, whatever the type of their elements.
template <class Byte>
struct ValueBytes {
  DType type;
  std::span<Byte> weights, state;

  std::span<Byte> of(const ParameterInfo& p) const {
    const std::size_t element = size_of(type);
    return (p.trainable ? weights : state).subspan(p.offset * element, p.size() * element);
  }
};

template <class T>
ValueBytes<const std::byte> bytes_of(const std::vector<T>& weights, const std::vector<T>& state) {
  return {dtype_of<T>, std::as_bytes(std::span(weights)), std::as_bytes(std::span(state))};
}
template <class T>
ValueBytes<std::byte> writable_bytes_of(std::vector<T>& weights, std::vector<T>& state) {
  return {dtype_of<T>, std::as_writable_bytes(std::span(weights)),
          std::as_writable_bytes(std::span(state))};
}

LOCKSTEP_COLD_DECL void write_weights(const std::string& path,
                                      const std::vector<ParameterInfo>& parameters,
                                      const ValueBytes<const std::byte>& values);

/// `values` are the caller's copies: after an error they are not to be used.
/// \throws WeightsError for a tensor that is missing, unknown, or of another shape or dtype.
LOCKSTEP_COLD_DECL void read_weights(const std::string& path,
                                     const std::vector<ParameterInfo>& parameters,
                                     const ValueBytes<std::byte>& values);

/// Over the tensors' bytes alone, names sorted as byte strings.
LOCKSTEP_COLD_DECL std::string hash_weights(std::vector<ParameterInfo> parameters,
                                            const ValueBytes<const std::byte>& values);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/weights_file.ipp"
#endif
