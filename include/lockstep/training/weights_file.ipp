#pragma once

#include "lockstep/training/weights_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/bfloat16.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/core/numbers/float16.hpp"
#include "lockstep/core/numbers/sha256.hpp"
#include "lockstep/core/quote.hpp"
#include "lockstep/files/atomic_file.hpp"
#include "lockstep/files/safetensors.hpp"

namespace lockstep::detail {

std::vector<std::uint64_t> extents_of(const Shape& s) {
  return {s.extent.begin(), s.extent.begin() + s.rank};
}

void write_weights(const std::string& path, const std::vector<ParameterInfo>& parameters,
                   const ValueBytes<const std::byte>& values,
                   const std::function<void()>& before_rename) {
  std::vector<SafetensorsEntry> tensors;
  for (const ParameterInfo& p : parameters)
    tensors.push_back({p.name, values.type, extents_of(p.shape), values.of(p)});
  const std::string head = safetensors_head(path, tensors, {{"format", "lockstep"}});
  AtomicFile file(path);
  file.write(head);
  for (const SafetensorsEntry& tensor : tensors) file.write(tensor.bytes);
  file.sync();
  if (before_rename) before_rename();
  file.commit();
}

[[noreturn, gnu::cold]] inline void refuse_tensor(const SafetensorsFile& file,
                                                  const std::string& tensor,
                                                  const std::string& fact) {
  throw WeightsError(file.path(), "tensor {} {}", shown_name(tensor), fact);
}

/// Converts unaligned elements of type From. \returns the first finite value that To cannot hold.
template <class From, class To>
[[gnu::cold]] std::optional<double> convert_elements(std::span<const std::byte> from,
                                                     std::span<std::byte> to) {
  for (std::size_t i = 0; i < to.size() / sizeof(To); ++i) {
    From value;
    std::memcpy(&value, from.data() + i * sizeof(From), sizeof(From));
    const auto wide = static_cast<double>(value);
    if (is_finite(wide) && std::abs(wide) > static_cast<double>(std::numeric_limits<To>::max()))
      return wide;
    const auto converted = static_cast<To>(value);
    std::memcpy(to.data() + i * sizeof(To), &converted, sizeof(To));
  }
  return std::nullopt;
}

/// Writes a tensor's values as elements of `type`, float32 or float64: exact from a smaller type,
/// otherwise rounded. \throws WeightsError for another type, or a value beyond the range.
[[gnu::cold]] inline void convert_tensor(const SafetensorsFile& file, const SafetensorsTensor& from,
                                         DType type, std::span<std::byte> to) {
  const auto convert = [&]<class From>(From) {
    return type == DType::float64 ? convert_elements<From, double>(from.bytes, to)
                                  : convert_elements<From, float>(from.bytes, to);
  };
  std::optional<double> beyond;
  if (from.dtype == DType::float16)
    beyond = convert(float16{});
  else if (from.dtype == DType::bfloat16)
    beyond = convert(bfloat16{});
  else if (from.dtype == DType::float32)
    beyond = convert(float{});
  else if (from.dtype == DType::float64)
    beyond = convert(double{});
  else
    refuse_tensor(file, from.name,
                  format_text("is {}, but weights are F16, BF16, F32 or F64; convert the file",
                              from.dtype_name));
  if (beyond)
    refuse_tensor(
        file, from.name,
        format_text("has the value {}, which is beyond the range of {}; train in float64, "
                    "or scale the weights",
                    *beyond, name_of(type)));
}

/// Copies the tensor `name` to a parameter's values. \throws WeightsError.
[[gnu::cold]] inline void copy_tensor(const SafetensorsFile& file, const std::string& name,
                                      const ParameterInfo& p, const ValueBytes<std::byte>& values) {
  const SafetensorsTensor& found = file.at(name);
  if (const auto& shape = found.shape; shape != extents_of(p.shape)) {
    std::string extents;
    for (const std::uint64_t extent : shape) add_item(extents, ", ", std::to_string(extent));
    refuse_tensor(file, name,
                  format_text("has shape ({}), but the model's is {}; use this model's weights",
                              extents, to_string(p.shape)));
  }
  const std::span<std::byte> to = values.of(p);
  if (found.dtype == values.type)
    std::copy(found.bytes.begin(), found.bytes.end(), to.begin());
  else
    convert_tensor(file, found, values.type, to);
}

/// The remedy for a tensor whose name no parameter has: the option that would make this file
/// a part of the model, or the model a part of the file; otherwise that it belongs to another
/// model.
[[gnu::cold]] inline std::string remedy_for(const SafetensorsFile& file,
                                            const std::vector<ParameterInfo>& parameters) {
  std::set<std::string_view> of_file, of_model;
  for (const SafetensorsTensor& tensor : file.tensors()) of_file.insert(tensor.name);
  for (const ParameterInfo& p : parameters) of_model.insert(p.name);
  /// The beginnings with which all names of `part` are in `whole`.
  const auto beginnings = [](const auto& part, const auto& whole) {
    std::string found;
    if (part.empty()) return found;
    for (const std::string_view longer : whole) {
      const std::string_view first = *part.begin();
      if (longer.size() < first.size() + 2 || !longer.ends_with(first)) continue;
      const std::string beginning(longer.substr(0, longer.size() - first.size()));
      if (beginning.ends_with('/') && std::all_of(part.begin(), part.end(), [&](const auto name) {
            return whole.contains(beginning + std::string(name));
          }))
        add_item(found, " or ", shown_name(beginning));
    }
    return found;
  };
  if (const std::string more = beginnings(of_model, of_file); !more.empty())
    return "load a part of the file with .prefix = " + more;
  if (const std::string more = beginnings(of_file, of_model); !more.empty())
    return "load a part of the model with .strip = " + more;
  return "use this model's weights, or remove the tensor";
}

void read_weights(const std::string& path, const std::vector<ParameterInfo>& parameters,
                  const ValueBytes<std::byte>& values) {
  const SafetensorsFile file = SafetensorsFile::read(path);
  for (const SafetensorsTensor& tensor : file.tensors()) {
    const auto known = [&](const ParameterInfo& p) { return p.name == tensor.name; };
    if (std::none_of(parameters.begin(), parameters.end(), known))
      refuse_tensor(file, tensor.name, "is not in the model; " + remedy_for(file, parameters));
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

/// The beginnings of names that .prefix and .strip can be, those of blocks, as a clause for a
/// message: "; the beginnings of its names are 'decoder/', 'encoder/'". Empty if there are none.
template <class Named>
[[gnu::cold]] std::string beginnings_of(const std::vector<Named>& all) {
  static constexpr std::size_t most = 8;
  std::set<std::string, std::less<>> found;
  for (const Named& one : all) {
    const std::string_view name = one.name;
    const std::size_t parameter = name.rfind('/');
    for (std::size_t slash = name.find('/'); slash < parameter; slash = name.find('/', slash + 1))
      found.emplace(name.substr(0, slash + 1));
  }
  std::string text;
  for (std::size_t shown = 0; const std::string& beginning : found)
    if (shown++ < most) add_item(text, ", ", shown_name(beginning));
  if (found.size() > most) text += ", ...";
  return found.empty() ? "" : "; the beginnings of its names are " + text;
}

/// \throws UsageError for a beginning that no parameter has.
[[gnu::cold]] inline void check_strip(const std::string& strip,
                                      const std::vector<ParameterInfo>& parameters) {
  if (!strip.empty() &&
      std::none_of(parameters.begin(), parameters.end(),
                   [&](const ParameterInfo& p) { return p.name.starts_with(strip); }))
    throw UsageError(
        "load_weights: .strip is '{}', but no parameter of the model begins with it{}; .strip is for "
        "the model's names, .prefix for the file's",
        strip, beginnings_of(parameters));
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
          "{}{}; compare the names, and set .strip or .prefix",
          pattern, file.tensors().size(),
          file.tensors().empty() ? "" : ", the first is " + shown_name(file.tensors()[0].name),
          beginnings_of(file.tensors()));
  }
  if (report.loaded.empty())
    throw WeightsError(file.path(),
                       "has no tensor for the {} selected parameters of the model{}; compare the "
                       "names, and set .strip or .prefix",
                       report.missing.size(), beginnings_of(file.tensors()));
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
