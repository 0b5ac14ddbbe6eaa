/// \file
/// Lists of types. Invariants: no recursion over a list; one instantiation per distinct type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/rng.hpp"

namespace lockstep {

/// A list of types.
template <class... Ts>
struct List {
  static constexpr std::size_t size = sizeof...(Ts);
};

/// A value as a type. Converts to the value, so a function can accept `const V&` (compiled once per
/// type) or `Constant<v>` (compiled once per value); overload resolution prefers the latter.
template <auto V>
struct Constant {
  using value_type = std::remove_cvref_t<decltype(V)>;
  static constexpr value_type value = V;
  constexpr operator const value_type&() const { return value; }
};

namespace detail {

template <class>
inline constexpr bool always_false = false;

template <class T>
constexpr std::string_view pretty_function() {
  return __PRETTY_FUNCTION__;
}

/// A number that identifies a type. Not an address: under UBSan, g++ 12 cannot compare addresses in
/// constant expressions.
template <class T>
inline constexpr std::uint64_t type_id = hash_name(pretty_function<T>());

/// Name of a class template without namespace and arguments: "Conv2D" for lockstep::Conv2D<32, 3>.
template <class T>
constexpr std::string_view class_name() {
  constexpr std::string_view whole = pretty_function<T>();
  std::string_view name = whole.substr(whole.find("T = ") + 4);
  name = name.substr(0, name.find_first_of("<;]"));
  const std::size_t scope = name.rfind("::");
  return scope == std::string_view::npos ? name : name.substr(scope + 2);
}

template <std::size_t I, class T>
struct Indexed {
  using type = T;
};
template <class, class...>
struct IndexedPack;
template <std::size_t... I, class... Ts>
struct IndexedPack<std::index_sequence<I...>, Ts...> : Indexed<I, Ts>... {};
template <std::size_t I, class T>
Indexed<I, T> indexed_at(const Indexed<I, T>*);

/// The I-th type of Ts.
template <std::size_t I, class... Ts>
using At = typename decltype(indexed_at<I>(
    static_cast<IndexedPack<std::index_sequence_for<Ts...>, Ts...>*>(nullptr)))::type;

/// Index of T in the list; -1 if absent.
template <class T, class... Ts>
constexpr int index_in(List<Ts...>) {
  int i = 0, found = -1;
  for (const bool equal : std::initializer_list<bool>{std::is_same_v<T, Ts>..., false}) {
    if (equal && found < 0) found = i;
    ++i;
  }
  return found;
}

template <class... Ts>
struct Unique {
  struct First {
    std::array<std::size_t, sizeof...(Ts) + 1> position{};
    std::size_t count = 0;
  };
  static constexpr First first = [] {
    const std::array<std::uint64_t, sizeof...(Ts) + 1> id{type_id<Ts>..., 0};
    First result;
    for (std::size_t i = 0; i + 1 < id.size(); ++i) {
      bool seen = false;
      for (std::size_t k = 0; k < result.count && !seen; ++k)
        seen = id[result.position[k]] == id[i];
      if (!seen) result.position[result.count++] = i;
    }
    return result;
  }();
  template <std::size_t... I>
  static auto pick(std::index_sequence<I...>) -> List<At<first.position[I], Ts...>...>;
  using type = decltype(pick(std::make_index_sequence<first.count>{}));
};

template <class... Lists>
struct Concat {
  using type = List<>;
};
template <class... A>
struct Concat<List<A...>> {
  using type = List<A...>;
};
template <class... A, class... B, class... Rest>
struct Concat<List<A...>, List<B...>, Rest...> : Concat<List<A..., B...>, Rest...> {};

template <class>
struct UniqueOf;
template <class... Ts>
struct UniqueOf<List<Ts...>> : Unique<Ts...> {};

/// All types of the lists, without duplicates, in order of first appearance.
template <class... Lists>
using Union = typename UniqueOf<typename Concat<typename UniqueOf<Lists>::type...>::type>::type;

static_assert(
    std::is_same_v<Union<List<int, char, int>, List<>, List<char, long>>, List<int, char, long>>);
static_assert(index_in<char>(List<int, char>{}) == 1 && index_in<long>(List<int, char>{}) == -1);
static_assert(class_name<std::string_view>() == "basic_string_view");

}  // namespace detail
}  // namespace lockstep
