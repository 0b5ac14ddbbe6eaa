#pragma once

#include "lockstep/data/sources/csv.hpp"

#include <algorithm>
#include <functional>
#include <set>

namespace lockstep::detail {

CsvOptions learn_csv_vocabulary(std::string_view text, const std::string& path,
                                const CsvOptions& options) {
  CsvTable table(text, path, options);
  std::vector<const CsvColumn*> columns;
  for (const CsvColumn& column : table.features()) columns.push_back(&column);
  columns.push_back(&table.target());
  std::erase_if(columns, [](const CsvColumn* column) {
    return column->kind == CsvColumn::Kind::number || !column->words.empty();
  });
  CsvOptions complete = options;
  std::vector<std::set<std::string, std::less<>>> words(columns.size());
  while (!columns.empty() && table.next())
    for (std::size_t i = 0; i < columns.size(); ++i)
      if (const auto word = table.field(*columns[i]); !words[i].contains(word))
        words[i].emplace(word);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (words[i].empty())
      throw DataError(path,
                      "has no data lines to build a vocabulary for column {}; set .vocabulary",
                      shown_name(columns[i]->name));
    complete.vocabulary[columns[i]->name].assign(words[i].begin(), words[i].end());
  }
  return complete;
}

CsvOptions complete_csv(std::string_view text, const std::string& path, const CsvOptions& options) {
  CsvOptions complete = learn_csv_vocabulary(text, path, options);
  const CsvTable table(text, path, options);
  complete.target = table.target().name;
  complete.drop.clear();
  complete.columns.clear();
  for (const CsvColumn& column : table.features()) complete.columns.push_back(column.name);
  CsvTable(text, path, complete);  // refuses duplicate column names
  return complete;
}

}  // namespace lockstep::detail

namespace lockstep {

CsvOptions adapt_csv(const std::filesystem::path& path, const CsvOptions& options) {
  const std::vector<std::uint8_t> bytes = detail::read_whole(path);
  return detail::complete_csv(detail::csv_text(bytes), path.string(), options);
}

}  // namespace lockstep
