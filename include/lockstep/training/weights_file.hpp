/// \file
/// A model's parameters as a safetensors file. Invariants: names and shapes are Keras'; a file that
/// does not fit exactly is refused, by the tensor at fault, before anything is changed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/sha256.hpp"
#include "lockstep/files/safetensors.hpp"
#include "lockstep/training/parameters.hpp"

namespace lockstep::detail {

template <class T>
std::span<const std::byte> bytes_of(const ParameterInfo& p, const std::vector<T>& weights,
                                    const std::vector<T>& state) {
  return std::as_bytes(std::span(p.trainable ? weights : state).subspan(p.offset, p.size()));
}

inline std::vector<std::uint64_t> extents_of(const Shape& s) {
  return {s.extent.begin(), s.extent.begin() + s.rank};
}

template <class T>
void write_weights(const std::string& path, const std::vector<ParameterInfo>& parameters,
                   const std::vector<T>& weights, const std::vector<T>& state) {
  std::vector<SafetensorsEntry> tensors;
  for (const ParameterInfo& p : parameters)
    tensors.push_back({p.name, dtype_of<T>, extents_of(p.shape), bytes_of(p, weights, state)});
  write_safetensors(path, std::move(tensors), {{"format", "lockstep"}});
}

/// `weights` and `state` are the caller's copies: after an error they are not to be used.
/// \throws WeightsError for a tensor that is missing, unknown, or of another shape or dtype.
template <class T>
void read_weights(const std::string& path, const std::vector<ParameterInfo>& parameters,
                  std::vector<T>& weights, std::vector<T>& state) {
  const SafetensorsFile file = SafetensorsFile::read(path);
  const auto refuse = [&](const std::string& tensor, const std::string& fact) {
    throw WeightsError(file.path(), {"tensor '", tensor, "' ", fact});
  };
  for (const SafetensorsTensor& tensor : file.tensors()) {
    const auto known = [&](const ParameterInfo& p) { return p.name == tensor.name; };
    if (std::none_of(parameters.begin(), parameters.end(), known))
      refuse(tensor.name,
             "is not in the model; use the weights of this model or remove the tensor");
  }
  for (const ParameterInfo& p : parameters) {
    const std::vector<T> values = file.values<T>(p.name);
    if (file.at(p.name).shape != extents_of(p.shape)) {
      std::string found;
      for (const std::uint64_t extent : file.at(p.name).shape)
        found += (found.empty() ? "" : ", ") + std::to_string(extent);
      refuse(p.name, "has shape (" + found + "), the model's is " + to_string(p.shape) +
                         "; use the weights of this model");
    }
    std::copy(values.begin(), values.end(),
              (p.trainable ? weights : state).begin() + static_cast<std::ptrdiff_t>(p.offset));
  }
}

/// Over the tensors' bytes alone, names sorted as byte strings.
template <class T>
std::string hash_weights(std::vector<ParameterInfo> parameters, const std::vector<T>& weights,
                         const std::vector<T>& state) {
  std::sort(parameters.begin(), parameters.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  Sha256 sha;
  for (const ParameterInfo& p : parameters) sha.update(bytes_of(p, weights, state));
  return sha.hex();
}

}  // namespace lockstep::detail
