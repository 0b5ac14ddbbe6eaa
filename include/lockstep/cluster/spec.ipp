#pragma once

#include "lockstep/cluster/spec.hpp"

#include "lockstep/cluster/shown.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text.hpp"

namespace lockstep {

std::string to_string(const Task& task) {
  return task.index ? text({to_string(task.type), ":", *task.index})
                    : text({to_string(task.type), ":auto"});
}

namespace detail {

inline constexpr std::size_t most_hosts = 65'536;

TaskType checked_task_type(std::string_view name, std::string_view where) {
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

ClusterSpec& ClusterSpec::add(TaskType type, std::string_view host_port, std::string_view where) {
  auto& job = jobs_[static_cast<std::size_t>(type)];
  if (type == TaskType::chief && !job.empty())
    throw ClusterError({where,
                        "chief has more than one host; a cluster has one chief, list the "
                        "others as worker"});
  if (type == TaskType::evaluator && !job.empty())
    throw ClusterError({where, "evaluator has more than one host; a cluster has one evaluator"});
  if (places_.size() == detail::most_hosts)
    throw ClusterError({where, to_string(type), ": the cluster has more than ", detail::most_hosts,
                        " hosts, the most that lockstep takes"});
  const std::string here = text({to_string(type), "[", job.size(), "]"});
  HostPort address = parse_host_port(host_port, text({where, here}));
  const auto [place, added] = places_.try_emplace(to_string(address), here);
  if (!added)
    throw ClusterError({where, here, " ", detail::shown(host_port), " is also ", place->second,
                        "; give each task a port of its own"});
  job.push_back(std::move(address));
  return *this;
}

const std::vector<HostPort>& ClusterSpec::hosts(TaskType type) const {
  return jobs_[static_cast<std::size_t>(type)];
}

std::size_t ClusterSpec::world_size() const {
  return hosts(TaskType::chief).size() + hosts(TaskType::worker).size();
}

Task ClusterSpec::chief_task() const {
  return {hosts(TaskType::chief).empty() ? TaskType::worker : TaskType::chief, 0};
}

std::size_t ClusterSpec::rank(const Task& task) const {
  return task.type == TaskType::chief ? 0 : hosts(TaskType::chief).size() + task.index.value();
}

Task ClusterSpec::task(std::size_t rank) const {
  const std::size_t chiefs = hosts(TaskType::chief).size();
  return rank < chiefs ? Task{TaskType::chief, 0} : Task{TaskType::worker, rank - chiefs};
}

const HostPort& ClusterSpec::address(std::size_t rank) const {
  const Task at = task(rank);
  return hosts(at.type)[*at.index];
}

void ClusterSpec::check(std::string_view where) const {
  if (!hosts(TaskType::ps).empty())
    throw ClusterError({where,
                        " has the job ps: parameter servers train asynchronously, which "
                        "lockstep does not; take it away, the workers exchange gradients "
                        "themselves"});
  if (world_size() == 0)
    throw ClusterError({where, " has no chief and no worker; list at least one worker"});
}

Task ClusterSpec::check(Task task, std::string_view type_at, std::string_view index_at) const {
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

std::string ClusterSpec::json() const {
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

std::string ClusterSpec::tf_config(const Task& task) const {
  const std::string index = task.index ? text({*task.index}) : "\"auto\"";
  return text({"{\"cluster\":", json(), ",\"task\":{\"index\":", index, ",\"type\":\"",
               to_string(task.type), "\"}}"});
}

std::string ClusterSpec::table(std::optional<std::size_t> here) const {
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

Task parse_task(std::string_view entry, std::string_view where) {
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
