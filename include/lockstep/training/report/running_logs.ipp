#pragma once

#include "lockstep/training/report/running_logs.hpp"

#include "lockstep/core/text.hpp"
#include "lockstep/model/graph.hpp"

namespace lockstep::detail {

std::vector<std::string> log_names(std::initializer_list<std::string_view> wanted,
                                   std::initializer_list<bool> weighted) {
  std::vector<std::string> names(wanted.size());
  const auto is_weighted = [&](std::size_t i) {
    return i < weighted.size() && weighted.begin()[i];
  };
  for (const bool now : {false, true})
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (is_weighted(i) != now) continue;
      const std::string plain(wanted.begin()[i]);
      names[i] = plain;
      for (int n = now ? 0 : 1; std::count(names.begin(), names.end(), names[i]) > 1; ++n)
        names[i] = layer_name(now ? text({"weighted_", plain}) : plain, n);
    }
  return names;
}

}  // namespace lockstep::detail
