/// \file
/// Who is in a job: TensorFlow's ClusterSpec. Invariants: every address is checked and stands there
/// once; at most one chief and one evaluator; the JSON of equal clusters is equal text.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/cluster/host_port.hpp"
#include "lockstep/cluster/shown.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

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
inline std::string to_string(const Task& task) {
  return task.index ? text({to_string(task.type), ":", *task.index})
                    : text({to_string(task.type), ":auto"});
}

namespace detail {
inline constexpr std::size_t most_hosts = 65'536;

/// \throws ClusterError with the word that was probably meant.
inline TaskType checked_task_type(std::string_view name, std::string_view where) {
  for (const TaskType type : task_types)
    if (name == to_string(type)) return type;
  std::string meant;
  for (const TaskType type : task_types) {
    const std::string_view word = to_string(type);
    if (name.size() >= word.size() && name.size() <= word.size() + 1 &&
        std::equal(word.begin(), word.end(), name.begin(),
                   [](char a, char b) { return a == b || a - 'a' + 'A' == b; }) &&
        (name.size() == word.size() || name.back() == 's' || name.back() == 'S'))
      meant = word;
  }
  if (name == "master") meant = "chief";
  if (!meant.empty())
    throw ClusterError({where, " ", shown(name), " is no task type; write \"", meant, "\""});
  throw ClusterError(
      {where, " ", shown(name), " is no task type; the types are chief, worker, evaluator and ps"});
}
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
  ClusterSpec& add(TaskType type, std::string_view host_port, std::string_view where = "") {
    auto& job = jobs_[static_cast<std::size_t>(type)];
    if (type == TaskType::chief && !job.empty())
      throw ClusterError({where,
                          "chief has more than one host; a cluster has one chief, list the "
                          "others as worker"});
    if (type == TaskType::evaluator && !job.empty())
      throw ClusterError({where, "evaluator has more than one host; a cluster has one evaluator"});
    if (places_.size() == detail::most_hosts)
      throw ClusterError({where, to_string(type), ": the cluster has more than ",
                          detail::most_hosts, " hosts, the most that lockstep takes"});
    const std::string here = text({to_string(type), "[", job.size(), "]"});
    HostPort address = parse_host_port(host_port, text({where, here}));
    const auto [place, added] = places_.try_emplace(to_string(address), here);
    if (!added)
      throw ClusterError({where, here, " ", detail::shown(host_port), " is also ", place->second,
                          "; give each task a port of its own"});
    job.push_back(std::move(address));
    return *this;
  }

  const std::vector<HostPort>& hosts(TaskType type) const {
    return jobs_[static_cast<std::size_t>(type)];
  }

  /// Number of workers, the chief among them.
  std::size_t world_size() const {
    return hosts(TaskType::chief).size() + hosts(TaskType::worker).size();
  }
  /// The task that reports and writes files: the chief, or worker 0 where there is none.
  Task chief_task() const {
    return {hosts(TaskType::chief).empty() ? TaskType::worker : TaskType::chief, 0};
  }

  /// Precondition: a chief or worker of this cluster, with an index (see `check`).
  std::size_t rank(const Task& task) const {
    return task.type == TaskType::chief ? 0 : hosts(TaskType::chief).size() + task.index.value();
  }
  /// Precondition: rank < world_size().
  Task task(std::size_t rank) const {
    const std::size_t chiefs = hosts(TaskType::chief).size();
    return rank < chiefs ? Task{TaskType::chief, 0} : Task{TaskType::worker, rank - chiefs};
  }
  /// Precondition: rank < world_size().
  const HostPort& address(std::size_t rank) const {
    const Task at = task(rank);
    return hosts(at.type)[*at.index];
  }

  /// Refuses what cannot train synchronously.
  /// \throws ClusterError
  void check(std::string_view where = "cluster") const {
    if (!hosts(TaskType::ps).empty())
      throw ClusterError({where,
                          " has the job ps: parameter servers train asynchronously, which "
                          "lockstep does not; take it away, the workers exchange gradients "
                          "themselves"});
    if (world_size() == 0)
      throw ClusterError({where, " has no chief and no worker; list at least one worker"});
  }

  /// The task with its index, if `auto` leaves no choice. `type_at` and `index_at` say where its
  /// two parts stand.
  /// \throws ClusterError if it is none that trains in this cluster.
  Task check(Task task, std::string_view type_at, std::string_view index_at) const {
    if (task.type == TaskType::evaluator)
      throw ClusterError({type_at,
                          " is evaluator: an evaluator is a group of its own and does not "
                          "train; start it without MultiWorkerMirrored, or as a worker"});
    if (task.type == TaskType::ps)
      throw ClusterError({type_at,
                          " is ps: parameter servers train asynchronously, which lockstep "
                          "does not; start this process as a worker"});
    const auto& job = hosts(task.type);
    const std::string_view name = to_string(task.type);
    if (job.empty())
      throw ClusterError({type_at, " is ", name, ", but cluster has no ", name, "; write \"",
                          to_string(chief_task().type), "\", or add the job to cluster"});
    if (task.index && *task.index >= job.size()) {
      const std::string last = text({" to ", job.size() - 1});
      throw ClusterError({index_at, " ", *task.index, " is out of range: cluster.", name, " has ",
                          job.size(), job.size() == 1 ? " host" : " hosts", "; write 0",
                          job.size() == 1 ? "" : last});
    }
    if (!task.index && task.type == TaskType::chief) task.index = 0;
    if (!task.index && world_size() == 1)
      throw ClusterError({index_at,
                          " is auto for the only worker: the first worker must say that "
                          "it is the one, since the others look for it; write 0"});
    return task;
  }

  /// The value of TF_CONFIG's "cluster" in one spelling: keys sorted, no blanks.
  std::string json() const {
    std::string result = "{";
    for (const TaskType type : task_types) {
      if (hosts(type).empty()) continue;
      result += text({result.size() > 1 ? ",\"" : "\"", to_string(type), "\":["});
      for (const HostPort& address : hosts(type))
        result += text({&address == &hosts(type).front() ? "\"" : ",\"", to_string(address), "\""});
      result += ']';
    }
    return result + '}';
  }
  /// What TF_CONFIG must be for `task`.
  std::string tf_config(const Task& task) const {
    const std::string index = task.index ? text({*task.index}) : "\"auto\"";
    return text({"{\"cluster\":", json(), ",\"task\":{\"index\":", index, ",\"type\":\"",
                 to_string(task.type), "\"}}"});
  }

  /// Who is who, a line a rank, for people. `here` is marked.
  std::string table(std::optional<std::size_t> here = std::nullopt) const {
    std::string result = "rank  task          address\n";
    for (std::size_t r = 0; r < world_size(); ++r) {
      const std::string number = text({r}), name = to_string(task(r));
      result.append(4 - std::min<std::size_t>(4, number.size()), ' ');
      result += text({number, "  ", name});
      result.append(14 - std::min<std::size_t>(13, name.size()), ' ');
      result += text({to_string(address(r)), r == 0 ? "  chief" : "",
                      here == r ? "  (this process)" : "", "\n"});
    }
    return result;
  }

  bool operator==(const ClusterSpec& other) const { return jobs_ == other.jobs_; }

 private:
  std::array<std::vector<HostPort>, task_types.size()> jobs_;
  std::unordered_map<std::string, std::string> places_;  ///< address to "worker[0]"
};

/// Reads "worker:1", "chief:0", "worker:auto". `where` begins the messages ("--task").
/// \throws ClusterError
inline Task parse_task(std::string_view entry, std::string_view where) {
  const auto colon = entry.find(':');
  const auto type = detail::checked_task_type(entry.substr(0, colon), where);
  if (colon == std::string_view::npos)
    throw ClusterError(
        {where, " ", detail::shown(entry), " has no index; write \"", to_string(type), ":0\""});
  const std::string_view index = entry.substr(colon + 1);
  if (index == "auto") return {type, std::nullopt};
  const auto number = detail::whole_number<std::uint32_t>(index);
  if (!number)
    throw ClusterError({where, " ", detail::shown(entry), " has the index ", detail::shown(index),
                        ", which is no whole number from 0 on; write \"", to_string(type),
                        ":0\" or \"", to_string(type), ":auto\""});
  return {type, *number};
}

}  // namespace lockstep
