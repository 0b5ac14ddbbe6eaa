/// \file
/// Builds an ONNX graph whose values have two forms: channels last, as lockstep computes, and
/// channels first, as ONNX' convolutions and poolings do. Invariants: a value is transposed at most
/// once, and only if a node needs its other form; names of values are unique.
/// Source: onnx/onnx.proto and docs/Operators.md of ONNX 1.13.
/// \code
///   input (N, 28, 28, 1) -> Transpose -> Conv -> Relu -> MaxPool -> Transpose -> Reshape -> MatMul
///   channels last           channels first                          channels last
/// \endcode
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/training/export/architecture.hpp"

namespace lockstep::detail {

/// The version of the operators, and the first version of the file format that has it.
inline constexpr std::int64_t onnx_opset = 18, onnx_ir_version = 8;

/// The limit of a protocol buffer, less some room for the messages around the nodes and constants.
inline constexpr std::size_t most_onnx_bytes =
    std::size_t{std::numeric_limits<std::int32_t>::max()} - 65'536;
/// \throws UsageError.
[[noreturn]] LOCKSTEP_COLD_DECL void refuse_onnx_size(std::size_t bytes);

/// The form of a value with rank 2 or more; they are equal for a vector.
enum class Channels { last, first };

/// An attribute of a node.
struct OnnxAttribute {
  std::string_view name;
  std::variant<std::int64_t, float, std::string_view, std::vector<std::int64_t>> value;
};

/// An output of a layer: one example has shape `shape`, channels last; a batch has one axis more.
class OnnxValue {
 public:
  OnnxValue() = default;
  OnnxValue(std::string name, Shape shape, Channels channels) : shape_(shape), channels_(channels) {
    name_[static_cast<std::size_t>(channels)] = std::move(name);
  }
  const Shape& shape() const { return shape_; }
  /// The form in which it was computed.
  Channels channels() const { return channels_; }

 private:
  friend class OnnxBuilder;
  std::string& in(Channels layout) { return name_[static_cast<std::size_t>(layout)]; }

  std::array<std::string, 2> name_;  ///< by form; empty: not computed
  Shape shape_{};
  Channels channels_ = Channels::last;
};

/// A graph under construction.
class OnnxBuilder {
 public:
  /// `reserved`: names of inputs and outputs.
  [[gnu::cold]] explicit OnnxBuilder(const std::vector<std::string>& reserved) {
    for (const std::string& name : reserved) names_[name] = 1;
  }

  /// The name of `value` in the form `layout`; adds a Transpose if it does not have it yet.
  LOCKSTEP_COLD_DECL std::string use(OnnxValue& value, Channels layout);

  /// Adds a node with one output. \returns its name, which begins with `scope`.
  LOCKSTEP_COLD_DECL std::string add(std::string_view op, std::string_view scope,
                                     std::vector<std::string> inputs,
                                     std::initializer_list<OnnxAttribute> attributes = {});
  /// The same with a given name of the output.
  LOCKSTEP_COLD_DECL void add_named(std::string_view op, const std::string& output,
                                    const std::vector<std::string>& inputs,
                                    std::initializer_list<OnnxAttribute> attributes = {});

  /// Adds a constant. \returns its name: `name`, or with a number if that is taken. A constant of
  /// equal name and values is added once, so that calls of a shared layer have one.
  LOCKSTEP_COLD_DECL std::string constant(const std::string& name,
                                          std::span<const std::int64_t> extents,
                                          std::span<const float> values);
  LOCKSTEP_COLD_DECL std::string constant(const std::string& name,
                                          const std::vector<std::int64_t>& values);
  /// A constant without axes.
  LOCKSTEP_COLD_DECL std::string constant(const std::string& name, float value);

  /// The finished model as bytes. \throws UsageError above 2 GiB, the limit of the format.
  LOCKSTEP_COLD_DECL std::string model(std::string_view name,
                                       std::span<const ArchitecturePart> inputs,
                                       std::span<const ArchitecturePart> outputs) const;

 private:
  LOCKSTEP_COLD_DECL std::string unique(std::string name);

  std::string nodes_, initializers_;  ///< fields of a GraphProto
  std::map<std::string, int, std::less<>> names_;
  std::map<std::string, std::string> constants_;  ///< given names, by name, extents and values
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/onnx/graph_builder.ipp"
#endif
