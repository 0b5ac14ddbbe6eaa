#pragma once

#include "lockstep/onnx/graph_builder.hpp"

#include <protozero/pbf_writer.hpp>

#include <bit>
#include <type_traits>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/core/version.hpp"

namespace lockstep::detail {

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");

// Field numbers, named after message and field.
struct ModelField {
  enum Number : std::uint32_t {
    ir_version = 1,
    producer_name = 2,
    producer_version = 3,
    graph = 7,
    opset_import = 8
  };
};
struct GraphField {
  enum Number : std::uint32_t { node = 1, name = 2, initializer = 5, input = 11, output = 12 };
};
struct NodeField {
  enum Number : std::uint32_t { input = 1, output = 2, name = 3, op_type = 4, attribute = 5 };
};
struct AttributeField {
  enum Number : std::uint32_t { name = 1, f = 2, i = 3, s = 4, ints = 8, type = 20 };
};
struct ConstantField {
  enum Number : std::uint32_t { dims = 1, data_type = 2, name = 8, raw_data = 9 };
};
enum class AttributeType : std::int32_t { float32 = 1, integer = 2, text = 3, integers = 7 };
enum class OnnxType : std::int32_t { float32 = 1, int64 = 7 };

[[gnu::cold]] inline void add_text(protozero::pbf_writer& to, std::uint32_t field,
                                   std::string_view text) {
  to.add_string(field, text.data(), text.size());
}

[[gnu::cold]] inline std::string attribute_message(const OnnxAttribute& attribute) {
  std::string message;
  protozero::pbf_writer to(message);
  add_text(to, AttributeField::name, attribute.name);
  const auto set_type = [&](AttributeType type) {
    to.add_enum(AttributeField::type, static_cast<std::int32_t>(type));
  };
  std::visit(
      [&]<class V>(const V& v) {
        if constexpr (std::is_same_v<V, std::int64_t>) {
          to.add_int64(AttributeField::i, v);
          set_type(AttributeType::integer);
        } else if constexpr (std::is_same_v<V, float>) {
          to.add_float(AttributeField::f, v);
          set_type(AttributeType::float32);
        } else if constexpr (std::is_same_v<V, std::string_view>) {
          add_text(to, AttributeField::s, v);
          set_type(AttributeType::text);
        } else {
          for (const std::int64_t n : v) to.add_int64(AttributeField::ints, n);
          set_type(AttributeType::integers);
        }
      },
      attribute.value);
  return message;
}

[[gnu::cold]] inline std::string constant_message(const std::string& name, OnnxType type,
                                                  std::span<const std::int64_t> extents,
                                                  std::span<const std::byte> values) {
  std::string message;
  protozero::pbf_writer to(message);
  for (const std::int64_t extent : extents) to.add_int64(ConstantField::dims, extent);
  to.add_int32(ConstantField::data_type, static_cast<std::int32_t>(type));
  to.add_string(ConstantField::name, name);
  to.add_bytes(ConstantField::raw_data, reinterpret_cast<const char*>(values.data()),
               values.size());
  return message;
}

/// A ValueInfoProto of float32; the first extent is the batch, "N".
[[gnu::cold]] inline std::string value_message(std::string_view name, const Shape& shape) {
  std::string extents;
  protozero::pbf_writer to_extents(extents);
  {
    protozero::pbf_writer batch(to_extents, 1);
    add_text(batch, 2, "N");
  }
  for (int axis = 0; axis < shape.rank; ++axis) {
    protozero::pbf_writer extent(to_extents, 1);
    extent.add_int64(1, shape[axis]);
  }
  std::string message;
  protozero::pbf_writer to(message);
  add_text(to, 1, name);
  protozero::pbf_writer type(to, 2);
  protozero::pbf_writer tensor(type, 1);
  tensor.add_int32(1, static_cast<std::int32_t>(OnnxType::float32));
  tensor.add_message(2, extents);
  return message;
}

std::string OnnxBuilder::unique(std::string name) {
  const int before = names_[name]++;
  if (before == 0) return name;
  return unique(format_text("{}_{}", name, before));
}

std::string OnnxBuilder::use(OnnxValue& value, Channels layout) {
  const int rank = value.shape_.rank;
  if (rank < 2) layout = value.channels_;
  if (std::string& name = value.in(layout); !name.empty()) return name;
  const std::string& other = value.in(value.channels_);
  std::vector<std::int64_t> order{0};
  if (layout == Channels::first) order.push_back(rank);
  for (int axis = 1; axis < rank; ++axis) order.push_back(axis + (layout == Channels::last));
  if (layout == Channels::last) order.push_back(1);
  const std::string_view scope = std::string_view(other).substr(0, other.rfind('/'));
  return value.in(layout) = add("Transpose", scope, {other}, {{"perm", order}});
}

std::string OnnxBuilder::add(std::string_view op, std::string_view scope,
                             std::vector<std::string> inputs,
                             std::initializer_list<OnnxAttribute> attributes) {
  std::string output = unique(format_text("{}/{}", scope, op));
  add_named(op, output, inputs, attributes);
  return output;
}

void OnnxBuilder::add_named(std::string_view op, const std::string& output,
                            const std::vector<std::string>& inputs,
                            std::initializer_list<OnnxAttribute> attributes) {
  std::string message;
  protozero::pbf_writer to(message);
  for (const std::string& input : inputs) to.add_string(NodeField::input, input);
  to.add_string(NodeField::output, output);
  to.add_string(NodeField::name, output);
  add_text(to, NodeField::op_type, op);
  for (const OnnxAttribute& attribute : attributes)
    to.add_message(NodeField::attribute, attribute_message(attribute));
  protozero::pbf_writer(nodes_).add_message(GraphField::node, message);
}

std::string OnnxBuilder::constant(const std::string& name, std::span<const std::int64_t> extents,
                                  std::span<const float> values) {
  std::string key = name;
  for (const std::int64_t extent : extents) key += format_text(" {}", extent);
  const auto bytes = std::as_bytes(values);
  key += format_text(" {}", hash_name({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  std::string& given = constants_[key];
  if (!given.empty()) return given;
  given = unique(name);
  protozero::pbf_writer(initializers_)
      .add_message(GraphField::initializer,
                   constant_message(given, OnnxType::float32, extents, std::as_bytes(values)));
  return given;
}
std::string OnnxBuilder::constant(const std::string& name,
                                  const std::vector<std::int64_t>& values) {
  const std::string given = unique(name);
  const std::array<std::int64_t, 1> extents{static_cast<std::int64_t>(values.size())};
  protozero::pbf_writer(initializers_)
      .add_message(GraphField::initializer, constant_message(given, OnnxType::int64, extents,
                                                             std::as_bytes(std::span(values))));
  return given;
}
std::string OnnxBuilder::constant(const std::string& name, float value) {
  return constant(name, {}, std::span<const float>(&value, 1));
}

void refuse_onnx_size(std::size_t bytes) {
  throw UsageError(
      "export_onnx: the model has {} bytes, but an ONNX file without external data has at most "
      "2 GiB; use save_weights and save_architecture",
      bytes);
}

std::string OnnxBuilder::model(std::string_view name, std::span<const ArchitecturePart> inputs,
                               std::span<const ArchitecturePart> outputs) const {
  if (const std::size_t bytes = nodes_.size() + initializers_.size(); bytes > most_onnx_bytes)
    refuse_onnx_size(bytes);
  std::string graph = nodes_;
  protozero::pbf_writer to_graph(graph);
  add_text(to_graph, GraphField::name, name);
  graph += initializers_;
  for (const ArchitecturePart& p : inputs)
    to_graph.add_message(GraphField::input, value_message(p.name, p.shape));
  for (const ArchitecturePart& p : outputs)
    to_graph.add_message(GraphField::output, value_message(p.name, p.shape));

  std::string model;
  protozero::pbf_writer to(model);
  to.add_int64(ModelField::ir_version, onnx_ir_version);
  add_text(to, ModelField::producer_name, "lockstep");
  add_text(to, ModelField::producer_version, LOCKSTEP_VERSION);
  to.add_message(ModelField::graph, graph);
  protozero::pbf_writer opset(to, ModelField::opset_import);
  opset.add_int64(2, onnx_opset);
  return model;
}

}  // namespace lockstep::detail
