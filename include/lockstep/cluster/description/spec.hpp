/// \file
/// The members of a job: TensorFlow's ClusterSpec. Invariants: every address is valid and occurs
/// once; there is at most one chief and one evaluator; equal clusters have equal JSON text.
///
///     {"chief": [c], "worker": [a, b]}     rank 0 = chief:0, rank 1 = worker:0, rank 2 = worker:1
///     {"worker": [a, b]}                   rank 0 = worker:0 (acts as chief), rank 1 = worker:1
///     {"worker": [a, b], "ps": [s]}        the same, and rank 2 = ps:0
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster/description/host_port.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/slice.hpp"

namespace lockstep {

/// TensorFlow's task types, in the alphabetical order of the JSON.
enum class TaskType { chief, evaluator, ps, worker };

/// All of them.
inline constexpr std::array<TaskType, 4> task_types{TaskType::chief, TaskType::evaluator,
                                                    TaskType::ps, TaskType::worker};

/// "chief", "evaluator", "ps" or "worker".
inline constexpr std::string_view to_string(TaskType type) {
  constexpr std::array<std::string_view, 4> names{"chief", "evaluator", "ps", "worker"};
  return names[static_cast<std::size_t>(type)];
}

/// A process' place in the cluster. Without an index ("auto") the chief assigns one at the join.
struct Task {
  TaskType type = TaskType::worker;
  std::optional<std::size_t> index = std::nullopt;
  bool operator==(const Task&) const = default;
};

/// "worker:1", "worker:auto": the input of `parse_task`.
LOCKSTEP_COLD_DECL std::string to_string(const Task& task);

namespace detail {

/// The type of that name; nullopt if there is none.
LOCKSTEP_COLD_DECL std::optional<TaskType> find_task_type(std::string_view name);

/// The type that was probably meant by a name that differs in its case, by a plural, or by at most
/// two characters; empty if none is close.
LOCKSTEP_COLD_DECL std::string_view similar_task_type(std::string_view name);

/// The type of that name. \throws ClusterError with the name that was probably meant.
LOCKSTEP_COLD_DECL TaskType checked_task_type(std::string_view name, std::string_view where);
}  // namespace detail

/// The addresses of a job's tasks. The chief is rank 0, worker i is rank i + (number of chiefs), and
/// parameter servers follow; without a chief, worker 0 acts as chief. An evaluator has no rank.
/// \code
///   auto cluster = lockstep::ClusterSpec{}.worker("10.0.0.1:12345").worker("10.0.0.2:12345");
///   std::puts(cluster.json().c_str());  // {"worker":["10.0.0.1:12345","10.0.0.2:12345"]}
/// \endcode
class ClusterSpec {
 public:
  /// Each appends a task. \throws ClusterError as `add` does.
  ClusterSpec& chief(std::string_view host_port) & { return add(TaskType::chief, host_port); }
  ClusterSpec& worker(std::string_view host_port) & { return add(TaskType::worker, host_port); }
  /// A parameter server, for ls::ParameterServer.
  ClusterSpec& ps(std::string_view host_port) & { return add(TaskType::ps, host_port); }
  /// An evaluator runs separately and does not train.
  ClusterSpec& evaluator(std::string_view host_port) & {
    return add(TaskType::evaluator, host_port);
  }
  ClusterSpec&& chief(std::string_view host_port) && { return std::move(chief(host_port)); }
  ClusterSpec&& worker(std::string_view host_port) && { return std::move(worker(host_port)); }
  ClusterSpec&& ps(std::string_view host_port) && { return std::move(ps(host_port)); }
  ClusterSpec&& evaluator(std::string_view host_port) && { return std::move(evaluator(host_port)); }

  /// Appends a task. `where` begins the messages ("TF_CONFIG: cluster."). \throws ClusterError if
  /// the address is invalid or in use, or the cluster is full.
  LOCKSTEP_COLD_DECL ClusterSpec& add(TaskType type, std::string_view host_port,
                                      std::string_view where = "");

  /// The addresses of one type, by index.
  LOCKSTEP_COLD_DECL const std::vector<HostPort>& hosts(TaskType type) const;

  /// The number of processes that train: the chief, workers and parameter servers.
  LOCKSTEP_COLD_DECL std::size_t world_size() const;
  /// The ranks of the tasks of a type. Without hosts of that type: none.
  LOCKSTEP_COLD_DECL Slice ranks(TaskType type) const;
  /// The task that reports and writes files: the chief, or worker 0 without one.
  LOCKSTEP_COLD_DECL Task chief_task() const;

  /// The rank of a task. Precondition: a chief, worker or ps of this cluster, with an index (see
  /// `check`).
  LOCKSTEP_COLD_DECL std::size_t rank(const Task& task) const;
  /// The task of a rank. Precondition: rank < world_size().
  LOCKSTEP_COLD_DECL Task task(std::size_t rank) const;
  /// The address of a rank. Precondition: rank < world_size().
  LOCKSTEP_COLD_DECL const HostPort& address(std::size_t rank) const;

  /// Refuses a cluster without a worker and, as the strategy `has_servers` or not, one without
  /// parameter servers or with some. \throws ClusterError
  LOCKSTEP_COLD_DECL void check(std::string_view where = "cluster", bool has_servers = false) const;

  /// The task with its index, if "auto" leaves only one. `type_at` and `index_at` name its two
  /// parts in messages. \throws ClusterError if the task does not train in this cluster.
  LOCKSTEP_COLD_DECL Task check(Task task, std::string_view type_at,
                                std::string_view index_at) const;

  /// The value of TF_CONFIG's "cluster" in canonical form: keys sorted, no white space.
  LOCKSTEP_COLD_DECL std::string json() const;
  /// The value of TF_CONFIG for `task`.
  LOCKSTEP_COLD_DECL std::string tf_config(const Task& task) const;

  /// Rank, task and address, one line per rank. `here` is marked.
  LOCKSTEP_COLD_DECL std::string table(std::optional<std::size_t> here = std::nullopt) const;

  bool operator==(const ClusterSpec& other) const { return jobs_ == other.jobs_; }

 private:
  std::array<std::vector<HostPort>, task_types.size()> jobs_;
  std::map<std::string, std::string> places_;  ///< address to task: "worker[0]"
};

/// Parses "worker:1", "chief:0", "worker:auto". `where` begins the messages ("--task"). \throws
/// ClusterError
LOCKSTEP_COLD_DECL Task parse_task(std::string_view entry, std::string_view where);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/description/spec.ipp"
#endif
