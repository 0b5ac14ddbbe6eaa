/// \file
/// Reads TensorBoard's event files: records with a bitwise CRC, and the parts of events that
/// lockstep writes.
#pragma once

#include <protozero/pbf_reader.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace testing {

/// CRC32C bit by bit, masked as in TFRecord.
inline std::uint32_t bitwise_masked_crc(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

template <class Number>
Number number_at(std::string_view bytes, std::size_t at) {
  Number number;
  std::memcpy(&number, bytes.substr(at, sizeof number).data(), sizeof number);
  return number;
}

/// The data of all complete records. \throws std::runtime_error if a CRC is wrong, or, unless
/// `may_be_torn`, if the last record is not complete.
inline std::vector<std::string> records_of(std::string_view bytes, bool may_be_torn = false) {
  std::vector<std::string> result;
  while (!bytes.empty()) {
    const bool has_length = bytes.size() >= 12;
    const auto length = has_length ? number_at<std::uint64_t>(bytes, 0) : 0;
    if (has_length && number_at<std::uint32_t>(bytes, 8) != bitwise_masked_crc(bytes.substr(0, 8)))
      throw std::runtime_error("CRC of a length is wrong");
    if (!has_length || bytes.size() < 16 + length) {
      if (may_be_torn) break;
      throw std::runtime_error("the last record is torn");
    }
    const std::string_view data = bytes.substr(12, length);
    if (number_at<std::uint32_t>(bytes, 12 + length) != bitwise_masked_crc(data))
      throw std::runtime_error("CRC of a record is wrong");
    result.emplace_back(data);
    bytes.remove_prefix(16 + length);
  }
  return result;
}

/// A Summary.Value.
struct SummaryValue {
  std::string tag, plugin, plugin_content, content;
  std::int32_t dtype = 0, data_class = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::string> strings;
  std::vector<float> floats;
  float simple_value = 0;
  bool is_simple = false;

  std::vector<double> doubles() const {
    std::vector<double> result(content.size() / sizeof(double));
    std::memcpy(result.data(), content.data(), content.size());
    return result;
  }
};

inline SummaryValue summary_value_of(protozero::pbf_reader value) {
  SummaryValue v;
  const auto read_shape = [&](protozero::pbf_reader shape) {
    while (shape.next(2)) {
      std::int64_t extent = 0;
      for (protozero::pbf_reader dim = shape.get_message(); dim.next(1);) extent = dim.get_int64();
      v.shape.push_back(extent);
    }
  };
  const auto read_tensor = [&](protozero::pbf_reader tensor) {
    while (tensor.next()) switch (tensor.tag()) {
        case 1:
          v.dtype = tensor.get_enum();
          break;
        case 2:
          read_shape(tensor.get_message());
          break;
        case 4:
          v.content = tensor.get_bytes();
          break;
        case 5:
          for (const float f : tensor.get_packed_float()) v.floats.push_back(f);
          break;
        case 8:
          v.strings.push_back(tensor.get_bytes());
          break;
        default:
          throw std::runtime_error("unknown field of a tensor");
      }
  };
  const auto read_metadata = [&](protozero::pbf_reader metadata) {
    while (metadata.next())
      if (metadata.tag() == 4)
        v.data_class = metadata.get_enum();
      else
        for (protozero::pbf_reader data = metadata.get_message(); data.next();) {
          std::string& to = data.tag() == 1 ? v.plugin : v.plugin_content;
          to = data.get_bytes();
        }
  };
  while (value.next()) switch (value.tag()) {
      case 1:
        v.tag = value.get_string();
        break;
      case 2:
        v.simple_value = value.get_float();
        v.is_simple = true;
        break;
      case 8:
        read_tensor(value.get_message());
        break;
      case 9:
        read_metadata(value.get_message());
        break;
      default:
        throw std::runtime_error("unknown field of a value");
    }
  return v;
}

/// An Event.
struct Event {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string version, graph;
  std::vector<SummaryValue> values;
  bool is_restart = false;  // a SessionLog with the status START
};

inline Event event_of(const std::string& data) {
  Event e;
  protozero::pbf_reader event(data);
  while (event.next()) switch (event.tag()) {
      case 1:
        e.wall_time = event.get_double();
        break;
      case 2:
        e.step = event.get_int64();
        break;
      case 3:
        e.version = event.get_string();
        break;
      case 4:
        e.graph = event.get_bytes();
        break;
      case 5:
        for (protozero::pbf_reader summary = event.get_message(); summary.next(1);)
          e.values.push_back(summary_value_of(summary.get_message()));
        break;
      case 7:
        for (protozero::pbf_reader log = event.get_message(); log.next(1);)
          e.is_restart = log.get_enum() == 1;
        break;
      default:
        throw std::runtime_error("unknown field of an event");
    }
  return e;
}

inline std::string bytes_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The events of all files of a folder, in the order of the files' names.
inline std::vector<Event> events_in(const std::filesystem::path& folder, bool may_be_torn = false) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::exists(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Event> result;
  for (const auto& file : files)
    for (const std::string& record : records_of(bytes_of_file(file), may_be_torn))
      result.push_back(event_of(record));
  return result;
}

/// The scalars in a folder: for each tag, steps and values.
using Points = std::vector<std::pair<std::int64_t, float>>;
inline std::map<std::string, Points> scalars_in(const std::filesystem::path& folder) {
  std::map<std::string, Points> result;
  for (const Event& e : events_in(folder))
    for (const SummaryValue& v : e.values)
      if (v.is_simple) result[v.tag].emplace_back(e.step, v.simple_value);
  return result;
}

/// The values with tensors in a folder, by tag and step.
inline std::map<std::string, std::map<std::int64_t, SummaryValue>> tensors_in(
    const std::filesystem::path& folder) {
  std::map<std::string, std::map<std::int64_t, SummaryValue>> result;
  for (const Event& e : events_in(folder))
    for (const SummaryValue& v : e.values)
      if (!v.is_simple) result[v.tag][e.step] = v;
  return result;
}

}  // namespace testing
