/// \file
/// Who is in a job: TensorFlow's ClusterSpec. Invariants: every address is checked and stands there
/// once; at most one chief and one evaluator; the JSON of equal clusters is equal text.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster/host_port.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep {

/// TensorFlow's roles, sorted by name, as the JSON has them.
enum class TaskType { chief, evaluator, ps, worker };

inline constexpr std::array<TaskType, 4> task_types{TaskType::chief, TaskType::evaluator,
                                                    TaskType::ps, TaskType::worker};

inline constexpr std::string_view to_string(TaskType type) {
  constexpr std::array<std::string_view, 4> names{"chief", "evaluator", "ps", "worker"};
  return names[static_cast<std::size_t>(type)];
}

/// One process' place in the cluster. Without index ("auto") the chief gives it one when it comes.
struct Task {
  TaskType type = TaskType::worker;
  std::optional<std::size_t> index = std::nullopt;
  bool operator==(const Task&) const = default;
};

/// "worker:1", "worker:auto": what `parse_task` reads.
LOCKSTEP_COLD_DECL std::string to_string(const Task& task);

namespace detail {

/// \throws ClusterError with the word that was probably meant.
LOCKSTEP_COLD_DECL TaskType checked_task_type(std::string_view name, std::string_view where);
}  // namespace detail

/// The addresses of a job's tasks. Only the chief and the workers train together: the chief is rank
/// 0, worker i is rank i + (number of chiefs); without a chief, worker 0 acts as chief.
/// \code
///   auto cluster = lockstep::ClusterSpec{}.worker("10.0.0.1:12345").worker("10.0.0.2:12345");
///   std::puts(cluster.json().c_str());  // {"worker":["10.0.0.1:12345","10.0.0.2:12345"]}
/// \endcode
class ClusterSpec {
 public:
  ClusterSpec& chief(std::string_view host_port) & { return add(TaskType::chief, host_port); }
  ClusterSpec& worker(std::string_view host_port) & { return add(TaskType::worker, host_port); }
  /// An evaluator is a group of its own, which does not train.
  ClusterSpec& evaluator(std::string_view host_port) & {
    return add(TaskType::evaluator, host_port);
  }
  ClusterSpec&& chief(std::string_view host_port) && { return std::move(chief(host_port)); }
  ClusterSpec&& worker(std::string_view host_port) && { return std::move(worker(host_port)); }
  ClusterSpec&& evaluator(std::string_view host_port) && { return std::move(evaluator(host_port)); }

  /// Appends a task. `where` begins the messages ("TF_CONFIG: cluster.").
  /// \throws ClusterError if the address is none or is taken, or the job is full.
  LOCKSTEP_COLD_DECL ClusterSpec& add(TaskType type, std::string_view host_port,
                                      std::string_view where = "");

  LOCKSTEP_COLD_DECL const std::vector<HostPort>& hosts(TaskType type) const;

  /// Number of workers, the chief among them.
  LOCKSTEP_COLD_DECL std::size_t world_size() const;
  /// The task that reports and writes files: the chief, or worker 0 where there is none.
  LOCKSTEP_COLD_DECL Task chief_task() const;

  /// Precondition: a chief or worker of this cluster, with an index (see `check`).
  LOCKSTEP_COLD_DECL std::size_t rank(const Task& task) const;
  /// Precondition: rank < world_size().
  LOCKSTEP_COLD_DECL Task task(std::size_t rank) const;
  /// Precondition: rank < world_size().
  LOCKSTEP_COLD_DECL const HostPort& address(std::size_t rank) const;

  /// Refuses what cannot train synchronously.
  /// \throws ClusterError
  LOCKSTEP_COLD_DECL void check(std::string_view where = "cluster") const;

  /// The task with its index, if `auto` leaves no choice. `type_at` and `index_at` say where its
  /// two parts stand.
  /// \throws ClusterError if it is none that trains in this cluster.
  LOCKSTEP_COLD_DECL Task check(Task task, std::string_view type_at,
                                std::string_view index_at) const;

  /// The value of TF_CONFIG's "cluster" in one spelling: keys sorted, no blanks.
  LOCKSTEP_COLD_DECL std::string json() const;
  /// What TF_CONFIG must be for `task`.
  LOCKSTEP_COLD_DECL std::string tf_config(const Task& task) const;

  /// Who is who, a line a rank, for people. `here` is marked.
  LOCKSTEP_COLD_DECL std::string table(std::optional<std::size_t> here = std::nullopt) const;

  bool operator==(const ClusterSpec& other) const { return jobs_ == other.jobs_; }

 private:
  std::array<std::vector<HostPort>, task_types.size()> jobs_;
  std::map<std::string, std::string> places_;  ///< address to "worker[0]"
};

/// Reads "worker:1", "chief:0", "worker:auto". `where` begins the messages ("--task").
/// \throws ClusterError
LOCKSTEP_COLD_DECL Task parse_task(std::string_view entry, std::string_view where);

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/spec.ipp"
#endif
