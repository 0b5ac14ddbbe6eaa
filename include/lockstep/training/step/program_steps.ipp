#pragma once

#include "lockstep/training/step/program_steps.hpp"

#include <algorithm>
#include <string_view>

#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

[[gnu::cold]] inline std::string_view scope_name(std::uint64_t scope) {
  return static_cast<BatchScope>(scope) == BatchScope::global ? "ls::global_batch"
                                                              : "ls::local_batch";
}

BatchSlice slice_passed(const char* call, std::span<const PassedBatch> all, std::size_t rank,
                        std::size_t slices) {
  const PassedBatch& chief = all[0];
  std::size_t total = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].scope != chief.scope)
      throw UsageError("{}: rank {} passes {}, rank 0 {}; pass the same in all processes", call, r,
                       scope_name(all[r].scope), scope_name(chief.scope));
    total += all[r].examples;
  }
  if (static_cast<BatchScope>(chief.scope) == BatchScope::global) {
    for (std::size_t r = 1; r < all.size(); ++r) {
      if (all[r].examples != chief.examples)
        throw UsageError(
            "{}: rank {} passes {} examples, rank 0 {}; with ls::global_batch all processes pass "
            "the same batch, with ls::local_batch each passes its part",
            call, r, all[r].examples, chief.examples);
      if (all[r].contents != chief.contents)
        throw UsageError(
            "{}: the values that rank {} passes are not those of rank 0; with ls::global_batch all "
            "processes pass the same batch, with ls::local_batch each passes its part",
            call, r);
    }
    return whole_batch(chief.examples);
  }
  BatchSlice mine{.global_count = total};
  std::size_t first = 0;
  std::string expected;
  bool fits = true;
  std::size_t weighed = 0;  // an empty part has neither weights nor none
  while (weighed + 1 < all.size() && all[weighed].examples == 0) ++weighed;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].contents != all[weighed].contents && all[r].examples > 0)
      throw UsageError("{}: rank {} and rank {} differ in whether they pass sample weights", call,
                       r, weighed);
    std::size_t count = 0;
    for (std::size_t i = 0; i < all[r].slices; ++i)
      if (const std::size_t slice = all[r].first_slice + i;
          slice < slices)  // else it computes nothing
        count += slice_of(total, slices, slice).count;
    fits = fits && count == all[r].examples;
    expected += format_text("{}{}", r == 0 ? "" : ", ", count);
    if (r == rank) mine.first = first, mine.count = all[r].examples;
    first += all[r].examples;
  }
  if (!fits) {
    std::string passed;
    for (std::size_t r = 0; r < all.size(); ++r)
      passed += format_text("{}{}", r == 0 ? "" : ", ", all[r].examples);
    throw UsageError(
        "{}: the processes pass {} examples, but lockstep divides these {} into {}; pass parts of "
        "these sizes, or the whole batch in all processes with ls::global_batch",
        call, passed, total, expected);
  }
  mine.first_ordinal = mine.first;
  return mine;
}

}  // namespace lockstep::detail
