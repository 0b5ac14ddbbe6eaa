/// \file
/// The fields of an example: what a pipeline yields, a batch holds and a step reads. Invariants:
/// the number, roles and types of fields are constants of a pipeline's type; features come first,
/// then targets, then weights; an example's value of a field has the field's shape.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "lockstep/core/shape.hpp"

namespace lockstep {

/// The use of a field in a step: the network reads features, losses and metrics read targets and
/// the weight of an example.
enum class FieldRole : std::uint8_t { feature, target, weight };

/// `real`: float or double, as the device computes. `int32`: std::int32_t.
enum class FieldType : std::uint8_t { real, int32 };

/// The part of a field that is a constant of a pipeline's type.
struct FieldKind {
  FieldRole role = FieldRole::feature;
  FieldType type = FieldType::real;
  bool operator==(const FieldKind&) const = default;
};

/// One field, such as the input image of a network or the labels of its loss.
struct Field {
  std::string_view name;
  Shape shape;  ///< of one example's value
  FieldType type = FieldType::real;
  FieldRole role = FieldRole::feature;
};

/// C++ type of a field's elements on a device that computes in T.
template <FieldType type, class T>
using field_element = std::conditional_t<type == FieldType::int32, std::int32_t, T>;

/// Field type of targets declared as `Target`: std::int32_t for labels, otherwise real values.
template <class Target>
inline constexpr FieldType field_type_of =
    std::is_same_v<Target, std::int32_t> ? FieldType::int32 : FieldType::real;

/// Bytes of one element on a device that computes in T.
template <class T>
constexpr std::size_t bytes_of_element(FieldType type) {
  return type == FieldType::int32 ? sizeof(std::int32_t) : sizeof(T);
}

/// The kinds of a pipeline's fields, in order.
/// \code
///   // images with labels
///   using fields = ls::Fields<ls::FieldKind{ls::FieldRole::feature, ls::FieldType::real},
///                             ls::FieldKind{ls::FieldRole::target, ls::FieldType::int32}>;
/// \endcode
template <FieldKind... Kinds>
struct Fields {
  static constexpr std::size_t size = sizeof...(Kinds);
  static constexpr std::array<FieldKind, size> kinds{Kinds...};

  static constexpr std::size_t count(FieldRole role) {
    return (std::size_t{0} + ... + (Kinds.role == role ? 1u : 0u));
  }
  /// Position of the first field of this role; `size` if none has it.
  static constexpr std::size_t first(FieldRole role) {
    std::size_t at = 0;
    while (at < size && kinds[at].role != role) ++at;
    return at;
  }
  static constexpr bool has(FieldRole role) { return count(role) > 0; }
  static constexpr bool are_ordered() {
    for (std::size_t i = 1; i < size; ++i)
      if (kinds[i].role < kinds[i - 1].role) return false;
    return true;
  }

  static_assert(are_ordered(),
                "lockstep::Fields: the order of fields is features, targets, weights; sort them");
};

/// Features and targets: the fields of most sources.
template <class Target>
using Labeled = Fields<FieldKind{FieldRole::feature, FieldType::real},
                       FieldKind{FieldRole::target, field_type_of<Target>}>;

namespace detail {

template <class F>
struct WithWeight;
template <FieldKind... Kinds>
struct WithWeight<Fields<Kinds...>> {
  static constexpr auto fields() {
    if constexpr (Fields<Kinds...>::has(FieldRole::weight))
      return Fields<Kinds...>();
    else
      return Fields<Kinds..., FieldKind{FieldRole::weight, FieldType::real}>();
  }
};

template <class F>
inline constexpr bool is_fields = false;
template <FieldKind... Kinds>
inline constexpr bool is_fields<Fields<Kinds...>> = true;

}  // namespace detail

/// The fields F, followed by a weight unless F has one.
template <class F>
using with_weight = decltype(detail::WithWeight<F>::fields());

/// Destinations of a gather: one pointer for each field, to the value of the first item. Null: the
/// field is not wanted.
template <class T, class F>
class Rows {
  template <FieldRole role>
  using element =
      field_element<F::has(role) ? F::kinds[F::first(role) < F::size ? F::first(role) : 0].type
                                 : FieldType::real,
                    T>;

 public:
  using X = element<FieldRole::feature>;
  using Y = element<FieldRole::target>;

  Rows() = default;
  /// The first feature, the first target and the weight, each if F has it.
  explicit Rows(X* x, Y* y = nullptr, T* w = nullptr) {
    set<FieldRole::feature>(x);
    set<FieldRole::target>(y);
    set<FieldRole::weight>(w);
  }

  /// The first field of a role; null if F has none or the field is not wanted.
  template <FieldRole role>
  element<role>* get() const {
    if constexpr (F::has(role))
      return static_cast<element<role>*>(at_[F::first(role)]);
    else
      return nullptr;
  }
  X* x() const { return get<FieldRole::feature>(); }
  Y* y() const { return get<FieldRole::target>(); }
  T* w() const { return get<FieldRole::weight>(); }

  void* operator[](std::size_t field) const { return at_[field]; }
  void*& operator[](std::size_t field) { return at_[field]; }

  /// Whether a field other than the weight is wanted.
  bool wants_values() const {
    for (std::size_t i = 0; i < F::size; ++i)
      if (F::kinds[i].role != FieldRole::weight && at_[i] != nullptr) return true;
    return false;
  }
  /// The same destinations for data with the fields G, which are those of F, except that a field of
  /// `role` may be missing in one of both. `role`: not wanted.
  template <class G>
  Rows<T, G> without(FieldRole role) const {
    Rows<T, G> result;
    for (std::size_t i = 0, k = 0; i < F::size; ++i) {
      if (F::kinds[i].role == role) continue;
      while (k < G::size && G::kinds[k].role == role) ++k;
      result[k++] = at_[i];
    }
    return result;
  }
  /// Only the fields of this role.
  Rows only(FieldRole role) const {
    Rows result;
    for (std::size_t i = 0; i < F::size; ++i)
      if (F::kinds[i].role == role) result[i] = at_[i];
    return result;
  }
  /// The destinations of the items after the first `count`. `shape(i)`: of field i.
  template <class D>
  Rows after(std::size_t count, const D& shaped) const {
    Rows result;
    for (std::size_t i = 0; i < F::size; ++i)
      if (at_[i] != nullptr)
        result[i] = static_cast<std::byte*>(at_[i]) +
                    count * shaped.shape(i).size() * bytes_of_element<T>(F::kinds[i].type);
    return result;
  }

 private:
  template <FieldRole role, class E>
  void set([[maybe_unused]] E* p) {
    if constexpr (F::has(role)) at_[F::first(role)] = p;
  }

  std::array<void*, F::size> at_{};
};

}  // namespace lockstep
