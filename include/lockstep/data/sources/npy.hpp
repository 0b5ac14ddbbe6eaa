/// \file
/// NPY, numpy's file of one array: 93 'NUMPY', a version, a Python dictionary with dtype, order and
/// shape, then the elements. Invariants: a file is read whole or refused with a sentence; a number
/// becomes the same number in another type, or is refused, but a real one may be rounded to float.
///
/// Not part of <lockstep/lockstep.hpp>.
/// Source: numpy/lib/format.py (versions 1.0, 2.0 and 3.0).
#pragma once

#include <algorithm>
#include <array>
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
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/finite.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/core/text.hpp"
#include "lockstep/data/sources/tensors.hpp"
#include "lockstep/files/byte_reader.hpp"

namespace lockstep {

/// An array of numbers as numpy saved it.
struct NpyArray {
  std::string path;                  ///< the file, and within an NPZ file the array's name
  char kind = 'f';                   ///< 'b' bool, 'i' signed, 'u' unsigned, 'f' real
  std::size_t item_size = 4;         ///< bytes of a number: 1, 2, 4 or 8
  bool big_endian = false;           ///< most significant byte first
  bool fortran_order = false;        ///< the first axis runs fastest in `bytes`
  std::vector<std::size_t> extents;  ///< first axis: examples; empty: a single number
  std::vector<std::uint8_t> bytes;

  /// Number of elements.
  std::size_t size() const { return bytes.size() / item_size; }
  /// numpy's name of the type: "<f4".
  std::string dtype() const {
    return {item_size == 1 ? '|'
            : big_endian   ? '>'
                           : '<',
            kind, static_cast<char>('0' + static_cast<int>(item_size))};
  }
  /// The elements in C order, the last axis fastest. A real number may be rounded to float.
  /// \throws DataError if a number does not fit T, or real ones are asked for as integers.
  template <class T>
  std::vector<T> values() const;
};

namespace detail {

/// IEEE half precision.
inline double from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = bits >> 15 ? -1.0 : 1.0;
  if (exponent == 31)
    return fraction ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}

/// The number of `size` bytes at `from`, as an unsigned integer of the same bits.
inline std::uint64_t npy_bits(const std::uint8_t* from, std::size_t size, bool big_endian) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < size; ++i)
    bits |= std::uint64_t{from[i]} << 8 * (big_endian ? size - 1 - i : i);
  return bits;
}

/// `number` as T; nothing if it is another number there.
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

/// Reads the dictionary of an NPY header.
class NpyHeader {
 public:
  NpyHeader(std::string_view text, NpyArray& array) : text_(text), array_(array) {}

  [[gnu::cold]] void parse() {
    expect('{');
    while (!take('}')) {
      const std::string_view key = string();
      expect(':');
      if (key == "descr")
        once(descr_), descr();
      else if (key == "fortran_order")
        once(order_), order();
      else if (key == "shape")
        once(shape_), shape();
      else
        refuse({"its header has a key ", shown_name(key)});
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) refuse({"its header goes on after its dictionary"});
    if (!descr_ || !order_ || !shape_)
      refuse({"its header lacks 'descr', 'fortran_order' or 'shape'"});
  }

 private:
  [[noreturn]] void refuse(std::initializer_list<Piece> fact) const {
    throw DataError(array_.path, {text(fact), "; save the array again with numpy.save"});
  }
  void once(bool& seen) const {
    if (seen) refuse({"its header has a key twice"});
    seen = true;
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c))
      refuse({"its header is no dictionary of numpy: at byte ", at_, " there is no '",
              std::string_view(&c, 1), "'"});
  }
  std::string_view string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"')
      refuse({"its header is no dictionary of numpy: at byte ", at_, " there is no text"});
    const std::size_t begin = ++at_, end = text_.find(quote, begin);
    if (end == std::string_view::npos) refuse({"its header has a text without an end"});
    at_ = end + 1;
    return text_.substr(begin, end - begin);
  }

  void descr() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[')
      throw DataError(array_.path,
                      "is an array of records, not of numbers; save each field as its own array");
    const std::string_view type = string();
    const auto known = [](std::string_view t) {
      if (t.size() != 3 || std::string_view("<>|=").find(t[0]) == std::string_view::npos)
        return false;
      switch (t[1]) {
        case 'b':
          return t[2] == '1';
        case 'i':
        case 'u':
          return t[2] == '1' || (t[0] != '|' && (t[2] == '2' || t[2] == '4' || t[2] == '8'));
        case 'f':
          return t[0] != '|' && (t[2] == '2' || t[2] == '4' || t[2] == '8');
        default:
          return false;
      }
    };
    if (!known(type))
      throw DataError(array_.path, {"has elements of dtype ", shown_name(type),
                                    ", where bool, integers and reals of at most 8 bytes can be "
                                    "read; convert it with astype and save it again"});
    array_.kind = type[1];
    array_.item_size = static_cast<std::size_t>(type[2] - '0');
    array_.big_endian = type[0] == '>';
  }

  void order() {
    skip_space();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        array_.fortran_order = value;
        return;
      }
    }
    refuse({"its header's 'fortran_order' is neither True nor False"});
  }

  void shape() {
    expect('(');
    while (!take(')')) {
      skip_space();
      std::uint64_t extent = 0;
      const std::size_t begin = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        extent = extent * 10 + static_cast<std::uint64_t>(text_[at_] - '0');
        if (extent >> 48 != 0) refuse({"its header announces an extent of more than 2^48"});
      }
      if (at_ == begin) refuse({"its header's 'shape' has something that is no extent"});
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2
      array_.extents.push_back(static_cast<std::size_t>(extent));
      if (array_.extents.size() > 32) refuse({"its header announces more than 32 axes"});
      if (!take(',')) {
        if (array_.extents.size() == 1) refuse({"its header's 'shape' is no tuple"});
        expect(')');
        break;
      }
    }
  }

  std::string_view text_;
  NpyArray& array_;
  std::size_t at_ = 0;
  bool descr_ = false, order_ = false, shape_ = false;
};

/// The array in `file`, which is the whole content of the file that errors name `path`.
[[gnu::cold]] inline NpyArray parse_npy(std::span<const std::uint8_t> file, std::string path) {
  NpyArray array;
  array.path = std::move(path);
  const auto refuse = [&](std::initializer_list<Piece> fact) {
    throw DataError(array.path, {text(fact), "; save the array again with numpy.save"});
  };
  constexpr std::string_view magic = "\x93NUMPY";
  if (file.size() < magic.size() ||
      !std::equal(magic.begin(), magic.end(), file.begin(),
                  [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; }))
    refuse({"does not begin as an NPY file does, with 93 'NUMPY'"});
  if (file.size() < 10) refuse({"is truncated in its NPY header"});
  const int major = file[6], minor = file[7];
  if (major < 1 || major > 3 || minor != 0)
    refuse({"is of NPY version ", major, ".", minor, ", where 1.0, 2.0 and 3.0 can be read"});
  const std::size_t start = major == 1 ? 10 : 12;
  if (file.size() < start) refuse({"is truncated in its NPY header"});
  const std::uint64_t length = npy_bits(file.data() + 8, start - 8, false);
  if (length > 10'000)  // numpy's own limit
    refuse({"announces a header of ", length, " bytes, more than the limit of 10000"});
  if (length > file.size() - start) refuse({"is truncated in its NPY header"});
  NpyHeader({reinterpret_cast<const char*>(file.data()) + start, static_cast<std::size_t>(length)},
            array)
      .parse();

  const std::size_t data = file.size() - start - static_cast<std::size_t>(length);
  const bool none =
      std::find(array.extents.begin(), array.extents.end(), 0u) != array.extents.end();
  std::uint64_t needed = none ? 0 : array.item_size;
  for (const std::size_t extent : array.extents) {
    if (needed > 0 && extent > data / needed)  // needed * extent may not fit 64 bits
      refuse({"is truncated: its header announces more elements than it has"});
    needed *= extent;
  }
  if (needed > data) refuse({"is truncated: its header announces more elements than it has"});
  if (needed < data) refuse({"has ", data - needed, " bytes after the data of its header"});
  array.bytes.assign(file.end() - static_cast<std::ptrdiff_t>(data), file.end());
  return array;
}

/// Where element i of C order lies in Fortran order.
inline std::size_t fortran_place(std::size_t i, const std::vector<std::size_t>& extents,
                                 std::size_t count) {
  std::size_t place = 0, stride = count;
  for (std::size_t axis = extents.size(); axis-- > 0;) {
    stride /= extents[axis];
    place += i % extents[axis] * stride;
    i /= extents[axis];
  }
  return place;
}

/// The shape of one example of an array whose first axis counts examples.
[[gnu::cold]] inline Shape npy_shape(const NpyArray& array, bool numbers_are_labels) {
  const std::size_t rank = array.extents.size();
  if (rank == 0)
    throw DataError(array.path, "is a single number, not an array of examples; give it an axis");
  if (rank > 5)
    throw DataError(array.path, {"has ", rank,
                                 " axes, where an example has at most four, and the "
                                 "first counts examples; reshape it"});
  Shape shape{static_cast<int>(rank) - 1, {1, 1, 1, 1}};
  for (std::size_t axis = 1; axis < rank; ++axis) {
    if (array.extents[axis] < 1 ||
        array.extents[axis] > std::size_t{std::numeric_limits<int>::max()})
      throw DataError(array.path, {"has an extent of ", array.extents[axis],
                                   ", where an example's are 1 to 2147483647; reshape it"});
    shape.extent[axis - 1] = static_cast<int>(array.extents[axis]);
  }
  if (rank == 2 && numbers_are_labels && array.extents[1] == 1) return {};  // Keras' files have it
  if (rank == 1 && !numbers_are_labels) shape.rank = 1;  // Keras: (n) real numbers are (n, 1)
  return shape;
}

}  // namespace detail

template <class T>
std::vector<T> NpyArray::values() const {
  static_assert(std::same_as<T, std::uint8_t> || std::same_as<T, std::int32_t> ||
                    std::same_as<T, float> || std::same_as<T, double>,
                "lockstep::NpyArray: values are std::uint8_t, std::int32_t, float or double; "
                "choose one of them");
  if (kind == 'f' && std::integral<T>)
    throw DataError(path, {"has real numbers (dtype ", dtype(),
                           "), where integers are wanted; convert it with astype"});
  const std::size_t count = size();
  std::vector<T> result(count);
  const auto fill = [&](auto as_number) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t place = fortran_order ? detail::fortran_place(i, extents, count) : i;
      const auto number =
          as_number(detail::npy_bits(bytes.data() + place * item_size, item_size, big_endian));
      const std::optional<T> value = detail::npy_number<T>(number);
      if (!value)
        throw DataError(path, {"element ", i, " (dtype ", dtype(), ") does not fit ",
                               std::same_as<T, std::uint8_t>   ? "a byte of 0 to 255"
                               : std::same_as<T, std::int32_t> ? "32 bits"
                               : std::same_as<T, float>        ? "a float"
                                                               : "a double",
                               "; convert it with astype"});
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

/// Reads what `numpy.save` wrote, plain or gzip: bool, integers and reals (half, single, double) of
/// either byte order, in C or Fortran order.
/// \throws FileError if the file cannot be read; DataError if it is no such array: damaged,
/// truncated, followed by further bytes, or of records, texts, objects or complex numbers.
/// \code
///   auto images = lockstep::read_npy("x_train.npy");
/// \endcode
[[gnu::cold]] inline NpyArray read_npy(const std::filesystem::path& path) {
  return detail::parse_npy(detail::read_whole(path), path.string());
}

/// Examples from two arrays whose first axes count them: `features` as `Element`, `targets` as
/// `Target` (the types of `Tensors`). Features, and targets of real numbers, of shape (n) become
/// (n, 1), as in Keras; of labels of shape (n) each is a target of shape ().
/// \throws DataError if an array has no such examples, a number does not fit its type, or the
/// numbers of examples differ.
/// \code
///   auto train = lockstep::tensors<std::uint8_t, std::int32_t>(lockstep::read_npy("x.npy"),
///                                                              lockstep::read_npy("y.npy"));
/// \endcode
template <class Element, class Target>
[[gnu::cold]] Tensors<Element, Target> tensors(const NpyArray& features, const NpyArray& targets) {
  const Shape shape = detail::npy_shape(features, false);
  const Shape target_shape = detail::npy_shape(targets, std::same_as<Target, std::int32_t>);
  if (features.extents[0] != targets.extents[0])
    throw DataError(targets.path,
                    {"has ", targets.extents[0], " targets, but ", features.path, " has ",
                     features.extents[0], " examples; take both from one data set"});
  return {features.values<Element>(), shape, targets.values<Target>(), target_shape};
}

}  // namespace lockstep
