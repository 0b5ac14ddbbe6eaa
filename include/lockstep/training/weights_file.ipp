#pragma once

#include "lockstep/training/weights_file.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/error.hpp"
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

[[noreturn, gnu::cold]] inline void refuse_tensor(const SafetensorsFile& file,
                                                  const std::string& tensor,
                                                  const std::string& fact) {
  throw WeightsError(file.path(), "tensor '{}' {}", tensor, fact);
}

/// Copies the tensor `name` to a parameter's values. \throws WeightsError.
[[gnu::cold]] inline void copy_tensor(const SafetensorsFile& file, const std::string& name,
                                      const ParameterInfo& p, const ValueBytes<std::byte>& values) {
  const std::span<const std::byte> found = file.bytes(name, values.type);
  if (const auto& shape = file.at(name).shape; shape != extents_of(p.shape)) {
    std::string extents;
    for (const std::uint64_t extent : shape) add_item(extents, ", ", std::to_string(extent));
    refuse_tensor(file, name,
                  fmt::format("has shape ({}), but the model's is {}; use this model's weights",
                              extents, to_string(p.shape)));
  }
  std::copy(found.begin(), found.end(), values.of(p).begin());
}

void read_weights(const std::string& path, const std::vector<ParameterInfo>& parameters,
                  const ValueBytes<std::byte>& values) {
  const SafetensorsFile file = SafetensorsFile::read(path);
  for (const SafetensorsTensor& tensor : file.tensors()) {
    const auto known = [&](const ParameterInfo& p) { return p.name == tensor.name; };
    if (std::none_of(parameters.begin(), parameters.end(), known))
      refuse_tensor(file, tensor.name,
                    "is not in the model; use this model's weights, or remove the tensor");
  }
  for (const ParameterInfo& p : parameters) copy_tensor(file, p.name, p, values);
}

/// \throws UsageError for a pattern that matches none of the parameters.
[[gnu::cold]] inline void check_patterns(const char* option, const NamePatterns& patterns,
                                         const std::vector<ParameterInfo>& parameters) {
  for (const std::string& pattern : patterns) {
    const NamePatterns one(pattern);
    if (std::any_of(parameters.begin(), parameters.end(),
                    [&](const ParameterInfo& p) { return one.match(p.name); }))
      continue;
    std::string names;
    for (const ParameterInfo& p : parameters) add_item(names, ", ", p.name);
    throw UsageError(
        "load_weights: .{} has '{}', which matches no parameter of the model; its parameters are "
        "{}",
        option, pattern, names);
  }
}

/// \throws UsageError for a beginning that no parameter has.
[[gnu::cold]] inline void check_strip(const std::string& strip,
                                      const std::vector<ParameterInfo>& parameters) {
  if (!strip.empty() &&
      std::none_of(parameters.begin(), parameters.end(),
                   [&](const ParameterInfo& p) { return p.name.starts_with(strip); }))
    throw UsageError(
        "load_weights: .strip is '{}', but no parameter of the model begins with it; .strip is for "
        "the model's names, .prefix for the file's",
        strip);
}

LoadReport read_weights(const std::string& path, const std::vector<ParameterInfo>& parameters,
                        const ValueBytes<std::byte>& values, const LoadOptions& options) {
  check_patterns("only", options.only, parameters);
  check_patterns("skip", options.skip, parameters);
  check_strip(options.strip, parameters);
  const SafetensorsFile file = SafetensorsFile::read(path);
  LoadReport report;
  std::map<std::string, std::string, std::less<>> used;  // by tensor
  for (const ParameterInfo& p : parameters) {
    const bool selected =
        (options.only.empty() || options.only.match(p.name)) && !options.skip.match(p.name);
    if (!selected) {
      report.skipped.push_back(p.name);
      continue;
    }
    const std::size_t cut = p.name.starts_with(options.strip) ? options.strip.size() : 0;
    const std::string name = options.prefix + p.name.substr(cut);
    if (!file.contains(name)) {
      report.missing.push_back(p.name);
      continue;
    }
    if (const auto [first, is_new] = used.emplace(name, p.name); !is_new)
      throw UsageError(
          "load_weights: with .strip, the parameters '{}' and '{}' have the same tensor '{}' in the "
          "file; set .only to those that begin with '{}'",
          first->second, p.name, name, options.strip);
    copy_tensor(file, name, p, values);
    report.loaded.push_back(p.name);
  }
  for (const SafetensorsTensor& tensor : file.tensors())
    if (!used.contains(tensor.name)) report.unused.push_back(tensor.name);
  for (const std::string& pattern : options.only) {
    const NamePatterns one(pattern);
    if (std::none_of(report.loaded.begin(), report.loaded.end(),
                     [&](const std::string& name) { return one.match(name); }))
      throw WeightsError(
          file.path(),
          "has no tensor for the parameters that '{}' selects; it has {} tensors"
          "{}; compare the names, and set .strip or .prefix",
          pattern, file.tensors().size(),
          file.tensors().empty() ? "" : ", the first is '" + file.tensors()[0].name + "'");
  }
  if (report.loaded.empty())
    throw WeightsError(file.path(),
                       "has no tensor for the {} selected parameters of the model; compare the "
                       "names, and set .strip or .prefix",
                       report.missing.size());
  return report;
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
