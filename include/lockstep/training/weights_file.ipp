#pragma once

#include "lockstep/training/weights_file.hpp"

#include <algorithm>
#include <utility>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/sha256.hpp"
#include "lockstep/files/safetensors.hpp"

namespace lockstep::detail {

std::vector<std::uint64_t> extents_of(const Shape& s) {
  return {s.extent.begin(), s.extent.begin() + s.rank};
}

void write_weights(const std::string& path, const std::vector<ParameterInfo>& parameters,
                   const ValueBytes<const std::byte>& values) {
  std::vector<SafetensorsEntry> tensors;
  for (const ParameterInfo& p : parameters)
    tensors.push_back({p.name, values.type, extents_of(p.shape), values.of(p)});
  write_safetensors(path, std::move(tensors), {{"format", "lockstep"}});
}

void read_weights(const std::string& path, const std::vector<ParameterInfo>& parameters,
                  const ValueBytes<std::byte>& values) {
  const SafetensorsFile file = SafetensorsFile::read(path);
  const auto refuse = [&](const std::string& tensor, const std::string& fact) {
    throw WeightsError(file.path(), "tensor '{}' {}", tensor, fact);
  };
  for (const SafetensorsTensor& tensor : file.tensors()) {
    const auto known = [&](const ParameterInfo& p) { return p.name == tensor.name; };
    if (std::none_of(parameters.begin(), parameters.end(), known))
      refuse(tensor.name, "is not in the model; use this model's weights, or remove the tensor");
  }
  for (const ParameterInfo& p : parameters) {
    const std::span<const std::byte> found = file.bytes(p.name, values.type);
    if (const auto& shape = file.at(p.name).shape; shape != extents_of(p.shape)) {
      std::string extents;
      for (const std::uint64_t extent : shape) add_item(extents, ", ", std::to_string(extent));
      refuse(p.name, fmt::format("has shape ({}), but the model's is {}; use this model's weights",
                                 extents, to_string(p.shape)));
    }
    std::copy(found.begin(), found.end(), values.of(p).begin());
  }
}

std::string hash_weights(std::vector<ParameterInfo> parameters,
                         const ValueBytes<const std::byte>& values) {
  std::sort(parameters.begin(), parameters.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  Sha256 sha;
  for (const ParameterInfo& p : parameters) sha.update(values.of(p));
  return sha.hex();
}

}  // namespace lockstep::detail
