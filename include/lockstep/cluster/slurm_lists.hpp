/// \file
/// The two compressed lists that Slurm prints. Invariants: a list is never expanded, so its memory
/// is that of its text; it has 1 to 1,000,000 entries, each a legal host name.
///
///   hostlist = item {"," item}
///   item     = {text | "[" range {"," range} "]"}
///   range    = number ["-" number]        the width of the first number is the zero padding
///   tasks    = count {"," count}, count = number ["(x" number ")"]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

class SlurmScanner;

/// The hosts of "node[01-03,7],login": leftmost brackets turn slowest.
/// \code
///   lockstep::detail::HostList hosts("a[1-2]b[3,5]", "SLURM_STEP_NODELIST");
///   hosts.size();  // 4: a1b3 a1b5 a2b3 a2b5
/// \endcode
class HostList {
 public:
  /// \throws ClusterError; `name` begins the message.
  LOCKSTEP_COLD_DECL HostList(std::string_view text, std::string_view name);

  std::size_t size() const { return items_.back().end; }
  /// Precondition: index < size().
  LOCKSTEP_COLD_DECL std::string operator[](std::size_t index) const;

 private:
  struct Range {
    std::uint64_t first;
    std::size_t width, end;  ///< numbers of this range and of those before it
  };
  /// A text, or brackets.
  struct Part {
    std::string text{};
    std::vector<Range> ranges{};
    std::size_t count = 1;
  };
  struct Item {
    std::vector<Part> parts{};
    std::size_t count = 1, end = 0;
  };

  LOCKSTEP_COLD_DECL static void append(std::string& host, const Part& part, std::size_t index);
  /// `longest` is the length of the longest host of the item.
  LOCKSTEP_COLD_DECL static Part brackets(SlurmScanner& scanner, std::size_t& longest);

  LOCKSTEP_COLD_DECL Item item(SlurmScanner& scanner) const;

  LOCKSTEP_COLD_DECL static bool is_host(char c);

  static constexpr std::string_view too_many = "has more than 1,000,000 hosts";
  std::vector<Item> items_;
};

/// How many tasks run on each node: "2(x3),1" is 2, 2, 2, 1.
class TasksPerNode {
 public:
  /// \throws ClusterError; `name` begins the message.
  LOCKSTEP_COLD_DECL TasksPerNode(std::string_view text, std::string_view name);

  std::size_t nodes() const { return runs_.empty() ? 0 : runs_.back().end; }
  std::size_t tasks() const { return tasks_; }
  /// Precondition: node < nodes().
  LOCKSTEP_COLD_DECL std::size_t operator[](std::size_t node) const;

 private:
  struct Run {
    std::size_t tasks, end;  ///< nodes of this run and of those before it
  };
  static constexpr std::size_t max_slurm_tasks = 1'000'000'000;
  std::vector<Run> runs_;
  std::size_t tasks_ = 0;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/slurm_lists.ipp"
#endif
