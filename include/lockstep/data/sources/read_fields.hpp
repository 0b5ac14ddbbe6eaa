/// \file
/// Fields with names from NPZ and CSV files.
///
/// Not part of <lockstep/lockstep.hpp>; include <lockstep/heads.hpp>.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/data/sources/csv.hpp"
#include "lockstep/data/sources/named_fields.hpp"
#include "lockstep/data/sources/npz.hpp"

namespace lockstep {

namespace detail {

/// The values of an array in the smallest type of NamedField that keeps them.
[[gnu::cold]] inline NamedField::Values values_of_array(const NpyArray& array) {
  if (array.kind == 'f')
    return array.item_size > 4 ? NamedField::Values(array.values<double>())
                               : NamedField::Values(array.values<float>());
  if (array.kind == 'b' || (array.kind == 'u' && array.item_size == 1))
    return array.values<std::uint8_t>();
  return array.values<std::int32_t>();
}

/// The columns of all selections, in order; \throws UsageError if there is none.
[[gnu::cold]] inline std::vector<std::string> selected_columns(
    const std::vector<FieldSelection>& selections) {
  std::vector<std::string> columns;
  for (const FieldSelection& selection : selections)
    for (const FieldSelection::One& one : selection.fields)
      columns.insert(columns.end(), one.from.begin(), one.from.end());
  if (columns.size() < 2)
    throw UsageError(
        "read_csv_fields: select at least two columns; write {ls::features(\"a\"), "
        "ls::targets(\"b\")}");
  return columns;
}

}  // namespace detail

/// Reads arrays of a file that `numpy.savez` wrote, as fields with the names of the network's inputs
/// and outputs. The first axis counts examples.
/// \throws FileError if the file cannot be read; DataError if an array does not exist, is damaged or
/// has no examples; UsageError as NamedFields.
/// \code
///   auto fields = ls::read_npz("train.npz", ls::features("image=x_train", "words"),
///                              ls::targets("digit=y_train", "even"));
/// \endcode
template <std::same_as<FieldSelection>... Selections>
NamedFields read_npz(const std::filesystem::path& path, const Selections&... selections) {
  const NpzFile file = NpzFile::read(path);
  std::vector<NamedField> fields;
  const auto add = [&](const FieldSelection& selection) {
    for (const FieldSelection::One& one : selection.fields) {
      if (one.from.size() != 1)
        throw UsageError("read_npz: field '{}' has {} arrays; name one", one.name, one.from.size());
      const NpyArray array = file.array(one.from[0]);
      fields.push_back({selection.role, one.name,
                        detail::npy_shape(array, selection.role != FieldRole::feature),
                        detail::values_of_array(array), path.string()});
    }
  };
  (add(selections), ...);
  return NamedFields(std::move(fields));
}

/// Reads columns of a CSV file as fields with the names of the network's inputs and outputs, of
/// double. `options` apply as in read_csv, except `.target`, `.columns` and `.drop`; a column of
/// `.one_hot` is as wide as its vocabulary.
/// \throws what read_csv throws; UsageError as NamedFields.
/// \code
///   auto fields = ls::read_csv_fields("houses.csv",
///                                     {ls::features("numbers=area,rooms", "place=region"),
///                                      ls::targets("price", "sold")},
///                                     {.one_hot = {"region"}});
/// \endcode
[[gnu::cold]] inline NamedFields read_csv_fields(const std::filesystem::path& path,
                                                 const std::vector<FieldSelection>& selections,
                                                 CsvOptions options = {}) {
  options.columns = detail::selected_columns(selections);
  options.target = options.columns.back();  // a column as the others
  options.columns.pop_back();
  options.drop.clear();
  const std::vector<std::uint8_t> bytes = detail::read_whole(path);
  const std::string_view text = detail::csv_text(bytes);
  const std::string name = path.string();
  const CsvOptions complete = detail::learn_csv_vocabulary(text, name, options);
  detail::CsvTable table(text, name, complete);
  const detail::CsvNumbers numbers(table, complete);
  struct Column {
    const detail::CsvColumn* column;
    std::size_t field;
  };
  std::vector<Column> columns;
  std::vector<NamedField> fields;
  for (const FieldSelection& selection : selections)
    for (const FieldSelection::One& one : selection.fields) {
      std::size_t width = 0;
      for (std::size_t i = 0; i < one.from.size(); ++i) {
        const std::size_t at = columns.size();
        const auto& column = at < table.features().size() ? table.features()[at] : table.target();
        columns.push_back({&column, fields.size()});
        width += column.width();
      }
      fields.push_back(
          {selection.role, one.name, shape(static_cast<int>(width)), std::vector<double>(), name});
    }
  while (table.next())
    for (const Column& column : columns)
      numbers.add(*column.column, std::get<std::vector<double>>(fields[column.field].values), true);
  return NamedFields(std::move(fields));
}

}  // namespace lockstep
