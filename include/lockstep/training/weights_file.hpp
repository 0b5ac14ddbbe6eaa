/// \file
/// Reading and writing a model's parameters as a safetensors file. Invariants: names and shapes are
/// Keras'; a file that does not match exactly is rejected, with the name of the tensor, before the
/// model changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/dtype.hpp"
#include "lockstep/training/export/load_options.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

/// The values of all parameters as bytes, so that no code here depends on the element type.
template <class Byte>
struct ValueBytes {
  DType type;                      ///< of the elements
  std::span<Byte> weights, state;  ///< the flat buffers

  /// The bytes of one parameter.
  std::span<Byte> of(const ParameterInfo& p) const {
    const std::size_t element = size_of(type);
    return (p.trainable ? weights : state).subspan(p.offset * element, p.size() * element);
  }
};

/// Views of flat host buffers.
template <class T>
ValueBytes<const std::byte> bytes_of(const std::vector<T>& weights, const std::vector<T>& state) {
  return {dtype_of<T>, std::as_bytes(std::span(weights)), std::as_bytes(std::span(state))};
}
template <class T>
ValueBytes<std::byte> writable_bytes_of(std::vector<T>& weights, std::vector<T>& state) {
  return {dtype_of<T>, std::as_writable_bytes(std::span(weights)),
          std::as_writable_bytes(std::span(state))};
}

/// A shape as a safetensors file stores it.
LOCKSTEP_COLD_DECL std::vector<std::uint64_t> extents_of(const Shape& s);

/// Writes all parameters to a file, atomically; `before_rename` may be null. \throws FileError.
LOCKSTEP_COLD_DECL void write_weights(const std::string& path,
                                      const std::vector<ParameterInfo>& parameters,
                                      const ValueBytes<const std::byte>& values,
                                      const std::function<void()>& before_rename = {});

/// Reads all parameters into `values`, whose contents are undefined after an exception. Tensors of
/// F16, BF16, F32 and F64 are converted: exactly, except from F64 to float, which rounds.
/// \throws WeightsError for a tensor that is missing, unknown, of another dtype or shape, or has a
/// finite value beyond the range of the elements.
LOCKSTEP_COLD_DECL void read_weights(const std::string& path,
                                     const std::vector<ParameterInfo>& parameters,
                                     const ValueBytes<std::byte>& values);

/// Reads the parameters that `options` selects into `values`, and leaves the others as they are.
/// `values` are undefined after an exception. \throws WeightsError for a tensor that has a wrong
/// shape or dtype, or if nothing would be loaded; UsageError for a pattern or `strip` that matches
/// nothing, or a `strip` that gives two parameters the same tensor.
LOCKSTEP_COLD_DECL LoadReport read_weights(const std::string& path,
                                           const std::vector<ParameterInfo>& parameters,
                                           const ValueBytes<std::byte>& values,
                                           const LoadOptions& options);

/// SHA-256 over the tensors' bytes, in the order of their names sorted as byte strings.
LOCKSTEP_COLD_DECL std::string hash_weights(std::vector<ParameterInfo> parameters,
                                            const ValueBytes<const std::byte>& values);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/weights_file.ipp"
#endif
