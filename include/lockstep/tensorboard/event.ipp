#pragma once

#include "lockstep/tensorboard/event.hpp"

#include <protozero/pbf_writer.hpp>

#include <array>
#include <bit>
#include <type_traits>
#include <variant>

#include "lockstep/core/utf8.hpp"

namespace lockstep::detail {

static_assert(std::endian::native == std::endian::little, "tensor_content is little-endian");

// Field numbers, named after message and field.
struct EventField {
  enum Number : std::uint32_t {
    wall_time = 1,
    step = 2,
    file_version = 3,
    graph = 4,
    summary = 5,
    session_log = 7
  };
};
struct ValueField {
  enum Number : std::uint32_t { tag = 1, simple_value = 2, tensor = 8, metadata = 9 };
};
struct TensorField {
  enum Number : std::uint32_t { dtype = 1, shape = 2, content = 4, float_val = 5, string_val = 8 };
};
enum class TensorType : std::int32_t { float32 = 1, float64 = 2, text = 7 };
enum class DataClass : std::int32_t { none = 0, scalar = 1, tensor = 2, blobs = 3 };

/// Writes a field of the type string. Readers stop at an event with a string that is not UTF-8, and
/// lose the rest of the file.
inline void add_utf8(protozero::pbf_writer& to, std::uint32_t number, std::string_view text) {
  if (is_utf8(text))
    to.add_string(number, text.data(), text.size());
  else
    to.add_string(number, to_utf8(text));
}

/// Writes a TensorShapeProto as field `number` of `to`; -1 is an unknown extent. A pbf_writer drops
/// a nested message without content, which here means rank 0 or extent 0; add_message keeps it.
[[gnu::cold]] inline void add_shape(protozero::pbf_writer& to, std::uint32_t number,
                                    std::span<const std::int64_t> extents) {
  std::string message;
  protozero::pbf_writer shape(message);
  for (const std::int64_t extent : extents) {
    std::string dim;
    if (extent != 0) protozero::pbf_writer(dim).add_int64(1, extent);
    shape.add_message(2, dim);
  }
  to.add_message(number, message);
}

/// Writes a Summary.Value whose content is a tensor. `fill(tensor)` writes the tensor's elements.
template <class Fill>
void append_tensor(std::string& summary, std::string_view tag, TensorType type,
                   std::span<const std::int64_t> extents, const Fill& fill, std::string_view plugin,
                   DataClass data_class, std::string_view plugin_content = {}) {
  protozero::pbf_writer to(summary);
  protozero::pbf_writer value(to, 1);
  add_utf8(value, ValueField::tag, tag);
  {
    protozero::pbf_writer tensor(value, ValueField::tensor);
    tensor.add_enum(TensorField::dtype, static_cast<std::int32_t>(type));
    add_shape(tensor, TensorField::shape, extents);
    fill(tensor);
  }
  protozero::pbf_writer metadata(value, ValueField::metadata);
  {
    protozero::pbf_writer data(metadata, 1);
    data.add_string(1, plugin.data(), plugin.size());
    if (!plugin_content.empty()) data.add_bytes(2, plugin_content.data(), plugin_content.size());
  }
  if (data_class != DataClass::none) metadata.add_enum(4, static_cast<std::int32_t>(data_class));
}

void append_scalar(std::string& summary, std::string_view tag, double value) {
  protozero::pbf_writer to(summary);
  protozero::pbf_writer message(to, 1);
  add_utf8(message, ValueField::tag, tag);
  message.add_float(ValueField::simple_value, static_cast<float>(value));
}

void append_tensor_scalar(std::string& summary, std::string_view tag, double value) {
  const std::array number{static_cast<float>(value)};
  append_tensor(
      summary, tag, TensorType::float32, {},
      [&](protozero::pbf_writer& tensor) {
        tensor.add_packed_float(TensorField::float_val, number.begin(), number.end());
      },
      "scalars", DataClass::scalar);
}

void append_histogram(std::string& summary, std::string_view tag,
                      std::span<const HistogramBucket> buckets) {
  static_assert(sizeof(HistogramBucket) == 3 * sizeof(double));  // rows of the tensor
  const std::array extents{static_cast<std::int64_t>(buckets.size()), std::int64_t{3}};
  append_tensor(
      summary, tag, TensorType::float64, extents,
      [&](protozero::pbf_writer& tensor) {
        tensor.add_bytes(TensorField::content, reinterpret_cast<const char*>(buckets.data()),
                         buckets.size_bytes());
      },
      "histograms", DataClass::tensor);
}

void append_images(std::string& summary, std::string_view tag, const Shape& image,
                   std::span<const std::string> png) {
  const std::array extents{static_cast<std::int64_t>(png.size() + 2)};
  append_tensor(
      summary, tag, TensorType::text, extents,
      [&](protozero::pbf_writer& tensor) {
        tensor.add_bytes(TensorField::string_val, std::to_string(image[1]));  // width first
        tensor.add_bytes(TensorField::string_val, std::to_string(image[0]));
        for (const std::string& file : png) tensor.add_bytes(TensorField::string_val, file);
      },
      "images", DataClass::blobs);
}

void append_text(std::string& summary, std::string_view tag, std::string_view text) {
  append_tensor(
      summary, tag, TensorType::text, {},
      [&](protozero::pbf_writer& tensor) {
        add_utf8(tensor, TensorField::string_val, text);  // shown as Markdown
      },
      "text", DataClass::tensor);
}

/// A value whose content is that of the plugin hparams; the tensor is empty.
[[gnu::cold]] inline void append_hparams_data(std::string& summary, std::string_view tag,
                                              std::string_view content) {
  const std::array extents{std::int64_t{0}};
  append_tensor(
      summary, tag, TensorType::float32, extents, [](protozero::pbf_writer&) {}, "hparams",
      DataClass::none, content);
}

void append_session_start(std::string& summary, std::span<const HParam> hparams, double time) {
  std::string content;
  {
    protozero::pbf_writer data(content);
    protozero::pbf_writer start(data, 3);
    for (const HParam& p : hparams) {
      protozero::pbf_writer entry(start, 1);
      add_utf8(entry, 1, p.name);
      protozero::pbf_writer value(entry, 2);  // a google.protobuf.Value
      std::visit(
          [&](const auto& v) {
            using V = std::remove_cvref_t<decltype(v)>;
            if constexpr (std::is_same_v<V, double>)
              value.add_double(2, v);
            else if constexpr (std::is_same_v<V, bool>)
              value.add_bool(4, v);
            else
              add_utf8(value, 3, v);
          },
          p.value.get());
    }
    start.add_double(5, time);
  }
  append_hparams_data(summary, "_hparams_/session_start_info", content);
}

void append_session_end(std::string& summary, SessionStatus status, double time) {
  std::string content;
  {
    protozero::pbf_writer data(content);
    protozero::pbf_writer end(data, 4);
    end.add_enum(1, static_cast<std::int32_t>(status));
    end.add_double(2, time);
  }
  append_hparams_data(summary, "_hparams_/session_end_info", content);
}

std::string summary_event(double wall_time, std::int64_t step, std::string_view summary) {
  std::string event;
  protozero::pbf_writer to(event);
  to.add_double(EventField::wall_time, wall_time);
  to.add_int64(EventField::step, step);
  to.add_message(EventField::summary, summary.data(), summary.size());
  return event;
}

std::string version_event(double wall_time) {
  std::string event;
  protozero::pbf_writer to(event);
  to.add_double(EventField::wall_time, wall_time);
  to.add_string(EventField::file_version, "brain.Event:2");
  return event;
}

std::string restart_event(double wall_time, std::int64_t step) {
  std::string event;
  protozero::pbf_writer to(event);
  to.add_double(EventField::wall_time, wall_time);
  to.add_int64(EventField::step, step);
  protozero::pbf_writer(to, EventField::session_log).add_enum(1, 1);  // status: START
  return event;
}

/// Writes a NodeDef, as field 1 of a GraphDef.
[[gnu::cold]] inline void add_node(protozero::pbf_writer& graph, const GraphNode& node) {
  protozero::pbf_writer to(graph, 1);
  add_utf8(to, 1, node.name);
  add_utf8(to, 2, node.op);
  for (const std::string& input : node.inputs) add_utf8(to, 3, input);
  for (const auto& [key, text] : node.attributes) {
    protozero::pbf_writer entry(to, 5);
    add_utf8(entry, 1, key);
    protozero::pbf_writer value(entry, 2);  // an AttrValue
    value.add_bytes(2, text);
  }
  if (!node.output) return;
  std::array<std::int64_t, 5> extents{-1};  // the batch
  for (int axis = 0; axis < node.output->rank; ++axis)
    extents[static_cast<std::size_t>(axis) + 1] = (*node.output)[axis];
  protozero::pbf_writer entry(to, 5);
  entry.add_string(1, "_output_shapes");
  protozero::pbf_writer value(entry, 2);
  protozero::pbf_writer list(value, 1);
  add_shape(list, 7, std::span(extents).first(static_cast<std::size_t>(node.output->rank) + 1));
}

std::string graph_event(double wall_time, std::span<const GraphNode> nodes) {
  std::string graph;
  {
    protozero::pbf_writer to(graph);
    for (const GraphNode& node : nodes) add_node(to, node);
    protozero::pbf_writer versions(to, 4);
    versions.add_int32(1, 22);  // a version of TensorFlow's graphs that TensorBoard reads
  }
  std::string event;
  protozero::pbf_writer to(event);
  to.add_double(EventField::wall_time, wall_time);
  to.add_bytes(EventField::graph, graph);
  return event;
}

}  // namespace lockstep::detail
