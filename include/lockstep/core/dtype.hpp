/// \file
/// Names and sizes of the element types in memory and in files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

/// Element type of a tensor, in memory or in a file.
enum class DType {
  boolean,
  uint8,
  int8,
  uint16,
  int16,
  float16,
  bfloat16,
  uint32,
  int32,
  float32,
  uint64,
  int64,
  float64
};

/// Bytes of one element.
constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::boolean:
    case DType::uint8:
    case DType::int8:
      return 1;
    case DType::uint16:
    case DType::int16:
    case DType::float16:
    case DType::bfloat16:
      return 2;
    case DType::uint32:
    case DType::int32:
    case DType::float32:
      return 4;
    case DType::uint64:
    case DType::int64:
    case DType::float64:
      return 8;
  }
  return 0;
}

/// Keras' name, such as "float32".
constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::boolean:
      return "bool";
    case DType::uint8:
      return "uint8";
    case DType::int8:
      return "int8";
    case DType::uint16:
      return "uint16";
    case DType::int16:
      return "int16";
    case DType::float16:
      return "float16";
    case DType::bfloat16:
      return "bfloat16";
    case DType::uint32:
      return "uint32";
    case DType::int32:
      return "int32";
    case DType::float32:
      return "float32";
    case DType::uint64:
      return "uint64";
    case DType::int64:
      return "int64";
    case DType::float64:
      return "float64";
  }
  return "?";
}

/// `dtype_of<float> == DType::float32`; defined for the C++ types that have a DType.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "lockstep::dtype_of: this C++ type is not a tensor element type");
  return DType::float32;
}();
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::uint8;
template <>
inline constexpr DType dtype_of<std::int8_t> = DType::int8;
template <>
inline constexpr DType dtype_of<std::uint16_t> = DType::uint16;
template <>
inline constexpr DType dtype_of<std::int16_t> = DType::int16;
template <>
inline constexpr DType dtype_of<std::uint32_t> = DType::uint32;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::int32;
template <>
inline constexpr DType dtype_of<float> = DType::float32;
template <>
inline constexpr DType dtype_of<std::uint64_t> = DType::uint64;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::int64;
template <>
inline constexpr DType dtype_of<double> = DType::float64;

}  // namespace lockstep
