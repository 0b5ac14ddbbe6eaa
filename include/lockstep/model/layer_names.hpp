/// \file
/// Names of layers: Keras' numbering, and the paths of named blocks. Invariants: a named block
/// numbers its layers from 0, as a Keras model of its own, so their names within it do not depend
/// on the model around it; names outside do not depend on the layers inside.
/// \code
///   Dense, Decoder{Dense, Dense}, Dense    dense, decoder/dense, decoder/dense_1, dense_1
/// \endcode
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/concepts/layer.hpp"
#include "lockstep/core/row_part.hpp"
#include "lockstep/model/index.hpp"

namespace lockstep::detail {

/// Counts the layers of each name in the current block, whose names are the last ones of the list.
template <std::size_t Size>
struct NameNumbers {
  std::array<std::pair<std::string_view, int>, Size + 1> known{};
  std::size_t first = 0, end = 0;  ///< names of the current block

  /// 0 for "conv2d", 1 for "conv2d_1".
  constexpr int next(std::string_view name) {
    for (std::size_t i = first; i < end; ++i)
      if (known[i].first == name) return known[i].second++;
    known[end++] = {name, 1};
    return 0;
  }
  /// Begins a block. Returns the argument of leave.
  constexpr std::size_t enter() { return std::exchange(first, end); }
  constexpr void leave(std::size_t outer) {
    end = first;
    first = outer;
  }

  /// Whether a name of the current block is the numbered form of another one: a "dense_1" next to
  /// two "dense".
  constexpr bool has_equal_names() const {
    for (std::size_t i = first; i < end; ++i) {
      const std::string_view name = known[i].first;
      std::size_t digits = name.size();
      while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
      if (digits == name.size() || name.size() - digits > 6 || digits < 2 ||
          name[digits - 1] != '_' || name[digits] == '0')
        continue;
      int number = 0;
      for (const char c : name.substr(digits)) number = 10 * number + (c - '0');
      for (std::size_t k = first; k < end; ++k)
        if (known[k].first == name.substr(0, digits - 1) && number < known[k].second) return true;
    }
    return false;
  }
};

/// The paths of a model's named blocks, "encoder" or "decoder_1/head", in the order in which Graph
/// enters them. Filled by the same walk as Graph.
template <std::size_t Blocks, std::size_t Characters, std::size_t Names, std::size_t Calls = 0>
struct BlockPaths {
  struct Range {
    std::size_t begin = 0, size = 0;
  };
  std::array<char, Characters + 1> text{};
  std::array<Range, Blocks + 1> range{};
  NameNumbers<Names> numbers{};
  std::size_t used = 0, blocks = 0;
  Range current{};
  bool equal_names = false;
  int position = 0;
  std::array<std::uint64_t, Calls + 1> shared{};  ///< hashes of the keys of Shared
  std::size_t shared_layers = 0;

  template <class L>
  constexpr ValueId add(ValueId v) {
    if constexpr (NamedBlock<L>) {
      within<L>([&] { return L::append(*this, v); });
    } else if constexpr (Composite<L>) {
      L::append(*this, v);
    } else {
      numbers.next(L::name);
    }
    return v;
  }
  template <class L, class Fault, class... Operands>
  constexpr ValueId add_layer(Fault, ValueId v, Operands...) {
    numbers.next(L::name);
    return v;
  }
  template <class L, class F>
  constexpr auto within(const F& append) {
    const Range outer = std::exchange(current, path_in_current(L::name));
    range[blocks++] = current;
    const std::size_t outer_names = numbers.enter();
    const auto out = append();
    finish();
    numbers.leave(outer_names);
    current = outer;
    return out;
  }
  /// A further call has the names of the first.
  template <class S>
  constexpr ValueId share(ValueId v) {
    for (std::size_t i = 0; i < shared_layers; ++i)
      if (shared[i] == S::key_hash) return v;
    shared[shared_layers++] = S::key_hash;
    return add<typename S::layer>(v);
  }
  template <class T>
  constexpr ValueId tie(ValueId v) {
    numbers.next(T::label);
    return v;
  }
  constexpr ValueId part(ValueId v, const RowPart& p) {
    numbers.next(p.name);
    return v;
  }
  template <class L, std::size_t Count>
  constexpr auto results(ValueId row) {
    std::array<ValueId, results_of<L, Count>> all{};
    const auto parts = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return L::results((static_cast<void>(I), Shape{})...);
    }(std::make_index_sequence<Count>{});
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = part(row, {parts[i].name.empty() ? "result" : parts[i].name, {}});
    return all;
  }
  constexpr ValueId add_output(ValueId v, std::size_t) { return v; }
  constexpr void receives(ValueId, const Shape&) {}
  constexpr void keeps_shape(ValueId, ValueId) {}
  constexpr int enter_segment() { return -1; }
  constexpr void leave_segment(int) {}

  /// Ends the current block: compares its names.
  constexpr void finish() { equal_names = equal_names || numbers.has_equal_names(); }

  /// Views of `text`, which must have static storage duration.
  constexpr std::array<std::string_view, Blocks> views() const {
    std::array<std::string_view, Blocks> result{};
    for (std::size_t i = 0; i < Blocks; ++i)
      result[i] = {text.data() + range[i].begin, range[i].size};
    return result;
  }

  /// Upper bound of the length of a name in a path, with its number and slash.
  static constexpr std::size_t length_of(std::string_view name) { return name.size() + 12; }

 private:
  constexpr void append(std::string_view part) {
    for (const char c : part) text[used++] = c;
  }
  constexpr Range path_in_current(std::string_view name) {
    const std::size_t begin = used;
    for (std::size_t i = 0; i < current.size; ++i) text[used++] = text[current.begin + i];
    if (current.size > 0) append("/");
    append(name);
    if (const int number = numbers.next(name); number > 0) {
      append("_");
      int unit = 1;
      while (number / unit >= 10) unit *= 10;
      for (; unit > 0; unit /= 10) text[used++] = static_cast<char>('0' + number / unit % 10);
    }
    return {begin, used - begin};
  }
};

}  // namespace lockstep::detail
