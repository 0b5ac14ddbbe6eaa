#pragma once

#include "lockstep/data/sources/npy.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>

#include "lockstep/core/format_text.hpp"
#include "lockstep/files/byte_reader.hpp"

namespace lockstep {

std::string NpyArray::dtype() const {
  return {item_size == 1 ? '|'
          : big_endian   ? '>'
                         : '<',
          kind, static_cast<char>('0' + static_cast<int>(item_size))};
}

}  // namespace lockstep

namespace lockstep::detail {

/// Recursive-descent parser for the dictionary of an NPY header, a subset of Python literals.
class NpyHeader {
 public:
  NpyHeader(std::string_view text, NpyArray& array) : text_(text), array_(array) {}

  void parse() {
    expect('{');
    while (!consume('}')) {
      const std::string_view key = string();
      expect(':');
      if (key == "descr")
        mark_seen(descr_), descr();
      else if (key == "fortran_order")
        mark_seen(order_), order();
      else if (key == "shape")
        mark_seen(shape_), shape();
      else
        refuse("its header has an unknown key {}", shown_name(key));
      if (!consume(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) refuse("its header continues after its dictionary");
    if (!descr_ || !order_ || !shape_)
      refuse("its header lacks 'descr', 'fortran_order' or 'shape'");
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(FormatText<Args...> fact, const Args&... args) const {
    throw DataError(array_.path, "{}; save the array again with numpy.save",
                    format_text<Args...>(fact, args...));
  }
  void mark_seen(bool& seen) const {
    if (seen) refuse("its header has a duplicate key");
    seen = true;
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
  }
  bool consume(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!consume(c))
      refuse("its header is not a numpy dictionary: no '{}' at byte {}", std::string_view(&c, 1),
             at_);
  }
  std::string_view string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"')
      refuse("its header is not a numpy dictionary: no string at byte {}", at_);
    const std::size_t begin = ++at_, end = text_.find(quote, begin);
    if (end == std::string_view::npos) refuse("its header has an unterminated string");
    at_ = end + 1;
    return text_.substr(begin, end - begin);
  }

  void descr() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[')
      throw DataError(
          array_.path,
          "is an array of records, not of numbers; save each field as a separate array");
    const std::string_view type = string();
    const auto is_supported = [](std::string_view t) {
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
    if (!is_supported(type))
      throw DataError(
          array_.path,
          "has dtype {}, but only bool, integers and floats of at most 8 bytes are supported; "
          "convert it with astype and save it again",
          shown_name(type));
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
    refuse("its header's 'fortran_order' is neither True nor False");
  }

  void shape() {
    expect('(');
    while (!consume(')')) {
      skip_space();
      std::uint64_t extent = 0;
      const std::size_t begin = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        extent = extent * 10 + static_cast<std::uint64_t>(text_[at_] - '0');
        if (extent >> 48 != 0) refuse("its header declares an extent of more than 2^48");
      }
      if (at_ == begin) refuse("its header's 'shape' has an invalid extent");
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // long suffix of Python 2
      array_.extents.push_back(static_cast<std::size_t>(extent));
      if (array_.extents.size() > 32) refuse("its header declares more than 32 axes");
      if (!consume(',')) {
        if (array_.extents.size() == 1) refuse("its header's 'shape' is not a tuple");
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

NpyArray parse_npy(std::span<const std::uint8_t> file, std::string path) {
  NpyArray array;
  array.path = std::move(path);
  const auto refuse = [&](const std::string& fact) {
    throw DataError(array.path, "{}; save the array again with numpy.save", fact);
  };
  constexpr std::string_view magic = "\x93NUMPY";
  if (file.size() < magic.size() ||
      !std::equal(magic.begin(), magic.end(), file.begin(),
                  [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; }))
    refuse("does not begin with the NPY magic string, 93 'NUMPY'");
  if (file.size() < 10) refuse("is truncated in its NPY header");
  const int major = file[6], minor = file[7];
  if (major < 1 || major > 3 || minor != 0)
    refuse(format_text("has NPY version {}.{}, but only 1.0, 2.0 and 3.0 are supported", major,
                       minor));
  const std::size_t start = major == 1 ? 10 : 12;
  if (file.size() < start) refuse("is truncated in its NPY header");
  const std::uint64_t length = npy_bits(file.data() + 8, start - 8, false);
  if (length > 10'000)  // numpy's own limit
    refuse(format_text("declares a header of {} bytes, more than the limit of 10000", length));
  if (length > file.size() - start) refuse("is truncated in its NPY header");
  NpyHeader({reinterpret_cast<const char*>(file.data()) + start, static_cast<std::size_t>(length)},
            array)
      .parse();

  const std::size_t data = file.size() - start - static_cast<std::size_t>(length);
  const bool none =
      std::find(array.extents.begin(), array.extents.end(), 0u) != array.extents.end();
  std::uint64_t needed = none ? 0 : array.item_size;
  for (const std::size_t extent : array.extents) {
    if (needed > 0 && extent > data / needed)  // needed * extent could overflow 64 bits
      refuse("is truncated: its header declares more elements than it has");
    needed *= extent;
  }
  if (needed > data) refuse("is truncated: its header declares more elements than it has");
  if (needed < data) refuse(format_text("has {} bytes after the array's data", data - needed));
  array.bytes.assign(file.end() - static_cast<std::ptrdiff_t>(data), file.end());
  return array;
}

Shape npy_shape(const NpyArray& array, bool numbers_are_labels) {
  const std::size_t rank = array.extents.size();
  if (rank == 0)
    throw DataError(array.path, "is a single number, not an array of examples; add an axis");
  if (rank > 5)
    throw DataError(
        array.path,
        "has {} axes, but examples have at most four, after the first axis, which counts them; "
        "reshape it",
        rank);
  Shape shape{static_cast<int>(rank) - 1, {1, 1, 1, 1, 1}};
  for (std::size_t axis = 1; axis < rank; ++axis) {
    if (array.extents[axis] < 1 ||
        array.extents[axis] > std::size_t{std::numeric_limits<int>::max()})
      throw DataError(
          array.path,
          "has an extent of {}, but the extents of examples must be 1 to 2147483647; reshape it",
          array.extents[axis]);
    shape.extent[axis - 1] = static_cast<int>(array.extents[axis]);
  }
  if (rank == 2 && numbers_are_labels && array.extents[1] == 1) return {};  // as in Keras' files
  if (rank == 1 && !numbers_are_labels) shape.rank = 1;  // Keras: (n) real numbers are (n, 1)
  return shape;
}

}  // namespace lockstep::detail

namespace lockstep {

NpyArray read_npy(const std::filesystem::path& path) {
  return detail::parse_npy(detail::read_whole(path), path.string());
}

}  // namespace lockstep
