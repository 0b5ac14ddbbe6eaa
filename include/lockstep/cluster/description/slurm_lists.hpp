/// \file
/// The two compressed lists of Slurm. Invariants: a list is never expanded, so its memory is
/// proportional to its text; it has 1 to 1,000,000 entries, each a valid host name.
///
///     hostlist = item {"," item}
///     item     = {text | "[" range {"," range} "]"}
///     range    = number ["-" number]        the width of the first number is the zero padding
///     tasks    = count {"," count}, count = number ["(x" number ")"]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

class SlurmScanner;

/// The hosts of "node[01-03,7],login". The rightmost brackets vary fastest.
/// \code
///   lockstep::detail::HostList hosts("a[1-2]b[3,5]", "SLURM_STEP_NODELIST");
///   hosts.size();  // 4: a1b3 a1b5 a2b3 a2b5
/// \endcode
class HostList {
 public:
  /// Parses `text`. `name` begins the message. \throws ClusterError
  LOCKSTEP_COLD_DECL HostList(std::string_view text, std::string_view name);

  /// The number of hosts.
  std::size_t size() const { return items_.back().end; }
  /// Host `index`, built on demand. Precondition: index < size().
  LOCKSTEP_COLD_DECL std::string operator[](std::size_t index) const;

 private:
  struct Range {
    std::uint64_t first;
    std::size_t width, end;  ///< running count of numbers, this range included
  };
  /// Literal text, or the ranges of a pair of brackets.
  struct Part {
    std::string text{};
    std::vector<Range> ranges{};
    std::size_t count = 1;
  };
  /// One comma-separated entry. `end` is the running count of hosts, this item included.
  struct Item {
    std::vector<Part> parts{};
    std::size_t count = 1, end = 0;
  };

  /// Appends number `index` of a bracketed part, zero-padded.
  LOCKSTEP_COLD_DECL static void append(std::string& host, const Part& part, std::size_t index);
  /// Parses after "[". Adds the widest number to `longest`, the length of the item's longest host.
  LOCKSTEP_COLD_DECL static Part brackets(SlurmScanner& scanner, std::size_t& longest);

  /// Parses one entry.
  LOCKSTEP_COLD_DECL Item item(SlurmScanner& scanner) const;

  /// True for the characters of host names.
  LOCKSTEP_COLD_DECL static bool is_host(char c);

  static constexpr std::string_view too_many = "has more than 1,000,000 hosts";
  std::vector<Item> items_;
};

/// The number of tasks on each node: "2(x3),1" is 2, 2, 2, 1.
class TasksPerNode {
 public:
  /// Parses `text`. `name` begins the message. \throws ClusterError
  LOCKSTEP_COLD_DECL TasksPerNode(std::string_view text, std::string_view name);

  /// The number of nodes.
  std::size_t nodes() const { return runs_.empty() ? 0 : runs_.back().end; }
  /// The number of tasks on all nodes.
  std::size_t tasks() const { return tasks_; }
  /// The tasks on `node`. Precondition: node < nodes().
  LOCKSTEP_COLD_DECL std::size_t operator[](std::size_t node) const;

 private:
  /// Consecutive nodes with equally many tasks.
  struct Run {
    std::size_t tasks, end;  ///< running count of nodes, this run included
  };
  static constexpr std::size_t max_slurm_tasks = 1'000'000'000;
  std::vector<Run> runs_;
  std::size_t tasks_ = 0;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/description/slurm_lists.ipp"
#endif
