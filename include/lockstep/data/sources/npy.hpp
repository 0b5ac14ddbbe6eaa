/// \file
/// NPY, numpy's file format for one array.
///
///     93 'NUMPY' | version, 2 bytes | header length, 2 or 4 bytes | dictionary | elements
///
/// The dictionary is a Python literal with dtype, order and shape. Invariants: a file is read
/// completely or refused with an error; a number keeps its value in another type or is refused,
/// except that real numbers may be rounded to float.
///
/// Not part of <lockstep/lockstep.hpp>.
/// Source: numpy/lib/format.py (versions 1.0, 2.0 and 3.0).
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

/// An array of numbers as saved by numpy.
struct NpyArray {
  std::string path;                  ///< the file, and for an NPZ file the name of the array
  char kind = 'f';                   ///< 'b' bool, 'i' signed, 'u' unsigned, 'f' real
  std::size_t item_size = 4;         ///< bytes per number: 1, 2, 4 or 8
  bool big_endian = false;           ///< most significant byte first
  bool fortran_order = false;        ///< the first axis varies fastest in `bytes`
  std::vector<std::size_t> extents;  ///< the first axis counts examples; empty for a scalar
  std::vector<std::uint8_t> bytes;

  /// Number of elements.
  std::size_t size() const { return bytes.size() / item_size; }
  /// numpy's name of the type, such as "<f4".
  LOCKSTEP_COLD_DECL std::string dtype() const;
  /// The elements in C order, the last axis varying fastest. Real numbers may be rounded to float.
  /// \throws DataError if a number does not fit in T, or the array has real numbers and T is
  /// integral.
  template <class T>
  std::vector<T> values() const;
};

namespace detail {

/// Converts IEEE half precision to double, exactly.
inline double from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = bits >> 15 ? -1.0 : 1.0;
  if (exponent == 31)
    return fraction ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}

/// The `size` bytes at `from` as an unsigned integer with the same bits.
inline std::uint64_t npy_bits(const std::uint8_t* from, std::size_t size, bool big_endian) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < size; ++i)
    bits |= std::uint64_t{from[i]} << 8 * (big_endian ? size - 1 - i : i);
  return bits;
}

/// Converts `number` to T; nothing if the value would change, except for rounding between
/// floating-point types.
template <class T, class From>
std::optional<T> npy_number(From number) {
  if constexpr (std::floating_point<From>) {
    if constexpr (std::floating_point<T>) {
      const double wide = static_cast<double>(number);
      if (is_finite(wide) && std::abs(wide) > static_cast<double>(std::numeric_limits<T>::max()))
        return std::nullopt;
      return static_cast<T>(number);
    } else {
      return std::nullopt;
    }
  } else if constexpr (std::integral<T>) {
    if (!std::in_range<T>(number)) return std::nullopt;
    return static_cast<T>(number);
  } else {
    constexpr int digits = std::numeric_limits<T>::digits;
    const auto magnitude = number < From{} ? 0 - static_cast<std::uint64_t>(number)
                                           : static_cast<std::uint64_t>(number);
    const int width =
        magnitude == 0 ? 0 : 64 - std::countl_zero(magnitude) - std::countr_zero(magnitude);
    if (width > digits) return std::nullopt;
    return static_cast<T>(number);
  }
}

/// Parses the array in `file`, the complete contents of the file that errors call `path`.
LOCKSTEP_COLD_DECL NpyArray parse_npy(std::span<const std::uint8_t> file, std::string path);

/// The position in Fortran order of element i of C order.
inline std::size_t fortran_index(std::size_t i, const std::vector<std::size_t>& extents,
                                 std::size_t count) {
  std::size_t position = 0, stride = count;
  for (std::size_t axis = extents.size(); axis-- > 0;) {
    stride /= extents[axis];
    position += i % extents[axis] * stride;
    i /= extents[axis];
  }
  return position;
}

/// The shape of one example of an array whose first axis counts examples.
LOCKSTEP_COLD_DECL Shape npy_shape(const NpyArray& array, bool numbers_are_labels);

}  // namespace detail

template <class T>
std::vector<T> NpyArray::values() const {
  static_assert(std::same_as<T, std::uint8_t> || std::same_as<T, std::int32_t> ||
                    std::same_as<T, float> || std::same_as<T, double>,
                "lockstep::NpyArray: values are std::uint8_t, std::int32_t, float or double; "
                "choose one of them");
  if (kind == 'f' && std::integral<T>)
    throw DataError(
        path, "has real numbers (dtype {}), but integers are required; convert it with astype",
        dtype());
  const std::size_t count = size();
  std::vector<T> result(count);
  const auto fill = [&](auto as_number) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t position = fortran_order ? detail::fortran_index(i, extents, count) : i;
      const auto number =
          as_number(detail::npy_bits(bytes.data() + position * item_size, item_size, big_endian));
      const std::optional<T> value = detail::npy_number<T>(number);
      if (!value)
        throw DataError(path, "element {} (dtype {}) does not fit in {}; convert it with astype", i,
                        dtype(),
                        std::same_as<T, std::uint8_t>   ? "a byte, 0 to 255"
                        : std::same_as<T, std::int32_t> ? "32 bits"
                        : std::same_as<T, float>        ? "a float"
                                                        : "a double");
      result[i] = *value;
    }
  };
  if (kind == 'b' || kind == 'u') {
    if constexpr (std::same_as<T, std::uint8_t>)
      if (item_size == 1 && kind == 'u' && !fortran_order) return bytes;
    if (kind == 'b')
      fill([](std::uint64_t bits) { return std::uint64_t{bits != 0}; });
    else
      fill([](std::uint64_t bits) { return bits; });
  } else if (kind == 'i') {
    const int unused = 64 - 8 * static_cast<int>(item_size);
    fill([=](std::uint64_t bits) { return static_cast<std::int64_t>(bits << unused) >> unused; });
  } else if (item_size == 2) {
    fill([](std::uint64_t bits) { return detail::from_half(static_cast<std::uint16_t>(bits)); });
  } else if (item_size == 4) {
    fill([](std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); });
  } else {
    fill([](std::uint64_t bits) { return std::bit_cast<double>(bits); });
  }
  return result;
}

/// Reads a file written by `numpy.save`, plain or gzip: bool, integers and floats (half, single,
/// double) of either byte order, in C or Fortran order.
/// \throws FileError if the file cannot be read; DataError if it is not such an array: damaged,
/// truncated, followed by further bytes, or of records, strings, objects or complex numbers.
/// \code
///   auto images = lockstep::read_npy("x_train.npy");
/// \endcode
LOCKSTEP_COLD_DECL NpyArray read_npy(const std::filesystem::path& path);

/// Makes examples from two arrays whose first axes count them: `features` as `Element`, `targets`
/// as `Target` (the types of `Tensors`). Features and real-valued targets of shape (n) become (n,
/// 1), as in Keras; labels of shape (n) become targets of shape ().
/// \throws DataError if an array does not hold such examples, a number does not fit its type, or
/// the numbers of examples differ.
/// \code
///   auto train = lockstep::tensors<std::uint8_t, std::int32_t>(lockstep::read_npy("x.npy"),
///                                                              lockstep::read_npy("y.npy"));
/// \endcode
template <class Element, class Target>
Tensors<Element, Target> tensors(const NpyArray& features, const NpyArray& targets) {
  const Shape shape = detail::npy_shape(features, false);
  const Shape target_shape = detail::npy_shape(targets, std::same_as<Target, std::int32_t>);
  if (features.extents[0] != targets.extents[0])
    throw DataError(targets.path,
                    "has {} targets, but {} has {} examples; use arrays of the same data set",
                    targets.extents[0], features.path, features.extents[0]);
  return {features.values<Element>(), shape, targets.values<Target>(), target_shape};
}

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/sources/npy.ipp"
#endif
