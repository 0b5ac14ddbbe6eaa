/// \file
/// Recorded behaviour of Keras in data/keras_NAME.json, written by the scripts record_NAME.py in
/// the tests' folders.
#pragma once

#include <rapidjson/document.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "golden/golden_file.hpp"

namespace recorded {

using Json = rapidjson::Value;

inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double absent = -1;  ///< null in the file

inline rapidjson::Document read(const std::string& name) {
  const std::string path = golden::golden_folder() + "/keras_" + name + ".json";
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  rapidjson::Document document;
  document.Parse<rapidjson::kParseNanAndInfFlag | rapidjson::kParseFullPrecisionFlag>(text.c_str());
  if (document.HasParseError()) throw std::runtime_error(path + " is not JSON");
  return document;
}

inline double number(const Json& value) { return value.IsNull() ? absent : value.GetDouble(); }

inline std::vector<double> numbers(const Json& values) {
  std::vector<double> result;
  for (const Json& value : values.GetArray()) result.push_back(number(value));
  return result;
}

inline std::string text(const Json& value) { return {value.GetString(), value.GetStringLength()}; }

/// Names and values, in file order.
inline std::vector<std::pair<std::string, double>> logs(const Json& pairs) {
  std::vector<std::pair<std::string, double>> result;
  for (const Json& pair : pairs.GetArray()) result.emplace_back(text(pair[0]), number(pair[1]));
  return result;
}

}  // namespace recorded
