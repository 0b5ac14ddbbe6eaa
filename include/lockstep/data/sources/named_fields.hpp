/// \file
/// Examples in memory as fields with names, such as the inputs and outputs of a network. Invariants:
/// all fields have the same number of examples; values keep the type in which they came.
///
/// Not part of <lockstep/lockstep.hpp>; include <lockstep/heads.hpp>.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/concepts/fields.hpp"
#include "lockstep/core/add_item.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep {

/// One field of examples in memory.
struct NamedField {
  using Values = std::variant<std::vector<std::uint8_t>, std::vector<std::int32_t>,
                              std::vector<float>, std::vector<double>>;
  FieldRole role = FieldRole::feature;
  std::string name;  ///< of the network's input or output
  Shape shape;       ///< of one example's value
  Values values;     ///< row after row
  std::string file;  ///< of origin; empty: the program's memory

  std::size_t elements() const {
    return std::visit([](const auto& all) { return all.size(); }, values);
  }
  std::size_t count() const { return elements() / shape.size(); }
};

/// An input of the network: values of `shape` for each example, row after row.
template <class V>
NamedField feature(std::string name, std::vector<V> values, const Shape& shape) {
  return {FieldRole::feature, std::move(name), shape, std::move(values), {}};
}
/// The targets of an output: labels, or real values.
template <class V>
NamedField target(std::string name, std::vector<V> values, const Shape& shape = {}) {
  return {FieldRole::target, std::move(name), shape, std::move(values), {}};
}
/// The sample weights of an output: one for each example, or for each position, such as the mask of
/// padded steps.
template <class V>
NamedField weight(std::string name, std::vector<V> values, const Shape& shape = {}) {
  return {FieldRole::weight, std::move(name), shape, std::move(values), {}};
}

/// A choice of fields from a file, see features, targets and weights.
struct FieldSelection {
  struct One {
    std::string name;               ///< of the network's input or output
    std::vector<std::string> from;  ///< arrays or columns
  };
  FieldRole role = FieldRole::feature;
  std::vector<One> fields;
};

namespace detail {

/// "name", "name=array" or "name=column,column".
[[gnu::cold]] inline FieldSelection::One selected_field(std::string_view text) {
  const std::size_t equals = text.find('=');
  FieldSelection::One one{std::string(text.substr(0, equals)), {}};
  std::string_view rest = equals == std::string_view::npos ? text : text.substr(equals + 1);
  for (std::size_t comma = rest.find(','); comma != std::string_view::npos;
       comma = rest.find(',')) {
    one.from.emplace_back(rest.substr(0, comma));
    rest.remove_prefix(comma + 1);
  }
  one.from.emplace_back(rest);
  return one;
}

[[gnu::cold]] inline const char* name_of(FieldRole role) {
  return role == FieldRole::feature ? "feature" : role == FieldRole::target ? "target" : "weight";
}

}  // namespace detail

/// Inputs of the network, by name; with "=", from an array of another name, or from columns.
/// \code
///   ls::features("image", "words=x_words")     // of an NPZ file
///   ls::features("numbers=area,rooms,age")     // of a CSV file
/// \endcode
template <std::convertible_to<std::string_view>... Names>
FieldSelection features(const Names&... names) {
  return {FieldRole::feature, {detail::selected_field(names)...}};
}
/// Targets, by the names of the outputs.
template <std::convertible_to<std::string_view>... Names>
FieldSelection targets(const Names&... names) {
  return {FieldRole::target, {detail::selected_field(names)...}};
}
/// Sample weights, by the names of the outputs.
template <std::convertible_to<std::string_view>... Names>
FieldSelection weights(const Names&... names) {
  return {FieldRole::weight, {detail::selected_field(names)...}};
}

/// The fields of a data set. Made by `named`, `read_npz` and `read_csv_fields`; `examples` makes a
/// pipeline of them.
/// \code
///   auto fields = ls::named(ls::feature("image", pixels, ls::shape(28, 28, 1)),
///                           ls::feature("words", words, ls::shape(64)),
///                           ls::target("digit", digits), ls::target("even", even));
///   auto train = ls::examples(model, fields) | ls::shuffle(10'000) | ls::batch(64);
/// \endcode
class NamedFields {
 public:
  /// \throws UsageError if a field is given twice, has no whole number of examples, or another
  /// number than the others.
  [[gnu::cold]] explicit NamedFields(std::vector<NamedField> fields) : fields_(std::move(fields)) {
    for (const NamedField& field : fields_) {
      const std::string where = place(field);
      for (int axis = 0; axis < field.shape.rank; ++axis)
        if (field.shape[axis] < 1)
          throw UsageError("data: {} has shape {}; every extent must be at least 1", where,
                           to_string(field.shape));
      if (field.elements() % field.shape.size() != 0)
        throw UsageError(
            "data: {} has {} values, which are not a whole number of examples of "
            "shape {}; check the shape",
            where, field.elements(), to_string(field.shape));
      for (const NamedField* other = fields_.data(); other != &field; ++other)
        if (other->role == field.role && other->name == field.name)
          throw UsageError("data: {} occurs twice; remove one", where);
      if (field.count() != fields_[0].count())
        throw UsageError("data: {} has {} examples, but {} has {}; give one value per example",
                         where, field.count(), place(fields_[0]), fields_[0].count());
    }
  }

  const std::vector<NamedField>& all() const { return fields_; }
  std::size_t count() const { return fields_.empty() ? 0 : fields_[0].count(); }
  bool has(FieldRole role) const {
    return std::any_of(fields_.begin(), fields_.end(),
                       [&](const NamedField& field) { return field.role == role; });
  }
  /// The field of this name; null if there is none.
  const NamedField* find(FieldRole role, std::string_view name) const {
    const auto at = std::find_if(fields_.begin(), fields_.end(), [&](const NamedField& field) {
      return field.role == role && field.name == name;
    });
    return at == fields_.end() ? nullptr : &*at;
  }
  /// "feature 'words' of train.npz".
  [[gnu::cold]] static std::string place(const NamedField& field) {
    return format_text("{} '{}'{}{}", detail::name_of(field.role), field.name,
                       field.file.empty() ? "" : " of ", field.file);
  }
  /// The names of a role, for messages.
  [[gnu::cold]] std::string names(FieldRole role) const {
    std::string result;
    for (const NamedField& field : fields_)
      if (field.role == role) add_item(result, ", ", field.name);
    return result.empty() ? "none" : result;
  }

 private:
  std::vector<NamedField> fields_;
};

/// Fields in memory. \throws UsageError as NamedFields.
template <std::same_as<NamedField>... Fields>
NamedFields named(Fields... fields) {
  std::vector<NamedField> all;
  all.reserve(sizeof...(Fields));
  (all.push_back(std::move(fields)), ...);
  return NamedFields(std::move(all));
}

namespace detail {

/// A part of a row that a field fills.
struct FilledPart {
  std::string_view name;
  Shape shape;
  std::size_t size = 1, offset = 0;
};

/// Converts a value of a field. \throws UsageError for a number that is not a T.
template <class T, class V>
T value_of_field(const NamedField& field, V value) {
  if constexpr (std::same_as<V, std::int32_t> && std::same_as<T, float>)
    if (static_cast<double>(static_cast<T>(value)) != static_cast<double>(value))
      throw UsageError("data: {} has {}, which float would round; use numbers up to 16777216",
                       NamedFields::place(field), value);
  if constexpr (std::same_as<T, std::uint8_t> && !std::same_as<V, std::uint8_t>)
    if (!(value >= 0 && value <= 255 && static_cast<V>(static_cast<T>(value)) == value))
      throw UsageError("data: {} has {}, which is not a byte; write ls::examples(model, fields)",
                       NamedFields::place(field), static_cast<double>(value));
  if constexpr (std::same_as<T, std::int32_t> && std::floating_point<V>)
    if (!(value == std::nearbyint(value) && std::abs(static_cast<double>(value)) < 2147483648.0))
      throw UsageError("data: {} has {}, which is not a class label; labels are whole numbers",
                       NamedFields::place(field), static_cast<double>(value));
  return static_cast<T>(value);
}

/// Copies a field to its part of rows of `width`. A field with one value per example fills all of
/// its part.
template <class T>
void copy_to_rows(const NamedField& field, const FilledPart& part, std::size_t width,
                  std::vector<T>& rows) {
  std::visit(
      [&](const auto& values) {
        const std::size_t each = field.shape.size();
        for (std::size_t i = 0; i < field.count(); ++i)
          for (std::size_t k = 0; k < part.size; ++k)
            rows[i * width + part.offset + k] =
                value_of_field<T>(field, values[i * each + (each == 1 ? 0 : k)]);
      },
      field.values);
}

/// \throws UsageError unless each field of this role is one of `parts`. `kind`: "input", "output".
[[gnu::cold]] inline void check_field_names(const NamedFields& fields, FieldRole role,
                                            std::span<const FilledPart> parts, const char* kind) {
  for (const NamedField& field : fields.all()) {
    if (field.role != role) continue;
    std::string known;
    bool is_known = false;
    for (const FilledPart& part : parts) {
      is_known = is_known || part.name == field.name;
      add_item(known, ", ", std::string(part.name));
    }
    if (!is_known)
      throw UsageError("data: {} is not an {} of the network; its {}s are {}",
                       NamedFields::place(field), kind, kind, known);
  }
}

/// The field of a part. \throws UsageError if it is missing, or of another size.
[[gnu::cold]] inline const NamedField& field_of_part(const NamedFields& fields, FieldRole role,
                                                     const FilledPart& part, const char* kind) {
  const NamedField* const field = fields.find(role, part.name);
  if (field == nullptr) {
    const std::string file = fields.all().empty() ? std::string() : fields.all()[0].file;
    throw UsageError("data: {} '{}' of the network has no {}; the {}s{}{} are {}", kind, part.name,
                     name_of(role), name_of(role), file.empty() ? "" : " of ", file,
                     fields.names(role));
  }
  if (field->shape.size() != part.size && !(role == FieldRole::weight && field->shape.size() == 1))
    throw UsageError(
        "data: {} has shape {} for each example, but {} '{}' of the network reads {}; change the "
        "data or the network",
        NamedFields::place(*field), to_string(field->shape), kind, part.name,
        to_string(part.shape));
  return *field;
}

/// The rows of a role: each part from its field.
template <class T>
std::vector<T> packed_rows(const NamedFields& fields, FieldRole role,
                           std::span<const FilledPart> parts, std::size_t width, const char* kind) {
  check_field_names(fields, role, parts, kind);
  std::vector<T> rows(fields.count() * width, T(1));
  for (const FilledPart& part : parts) {
    if (role == FieldRole::weight && fields.find(role, part.name) == nullptr) continue;  // all 1
    copy_to_rows(field_of_part(fields, role, part, kind), part, width, rows);
  }
  return rows;
}

}  // namespace detail
}  // namespace lockstep
