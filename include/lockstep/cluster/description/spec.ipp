#pragma once

#include "lockstep/cluster/description/spec.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep {

std::string to_string(const Task& task) {
  return task.index ? format_text("{}:{}", to_string(task.type), *task.index)
                    : format_text("{}:auto", to_string(task.type));
}

namespace detail {

inline constexpr std::size_t max_hosts = 65'536;

/// The number of characters to insert, remove or replace to turn `a` into `b` (Levenshtein).
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, replaced});
    }
  }
  return row.back();
}

std::optional<TaskType> find_task_type(std::string_view name) {
  for (const TaskType type : task_types)
    if (name == to_string(type)) return type;
  return std::nullopt;
}

std::string_view similar_task_type(std::string_view name) {
  if (name == "master") return "chief";  // the name of TensorFlow 1
  for (const TaskType type : task_types) {
    const std::string_view word = to_string(type);
    if (name.size() >= word.size() && name.size() <= word.size() + 1 &&
        std::equal(word.begin(), word.end(), name.begin(),
                   [](char a, char b) { return a == b || a - 'a' + 'A' == b; }) &&
        (name.size() == word.size() || name.back() == 's' || name.back() == 'S'))
      return word;
  }
  constexpr std::size_t typing_errors = 2;
  for (const std::string_view word : {"chief", "worker", "evaluator"})
    if (name.size() + typing_errors >= word.size() && name.size() <= word.size() + typing_errors &&
        edit_distance(name, word) <= typing_errors)
      return word;
  return {};
}

TaskType checked_task_type(std::string_view name, std::string_view where) {
  if (const auto type = find_task_type(name)) return *type;
  if (const std::string_view meant = similar_task_type(name); !meant.empty())
    throw ClusterError("{} {} is not a task type; write \"{}\"", where, quote(name), meant);
  throw ClusterError("{} {} is not a task type; the types are chief, worker, evaluator and ps",
                     where, quote(name));
}

}  // namespace detail

ClusterSpec& ClusterSpec::add(TaskType type, std::string_view host_port, std::string_view where) {
  auto& job = jobs_[static_cast<std::size_t>(type)];
  if (type == TaskType::chief && !job.empty())
    throw ClusterError(
        "{}chief has more than one host; a cluster has one chief, list the others as worker",
        where);
  if (type == TaskType::evaluator && !job.empty())
    throw ClusterError("{}evaluator has more than one host; a cluster has one evaluator", where);
  if (places_.size() == detail::max_hosts)
    throw ClusterError("{}{}: the cluster has more than {} hosts, the maximum", where,
                       to_string(type), detail::max_hosts);
  const std::string here = format_text("{}[{}]", to_string(type), job.size());
  HostPort address = parse_host_port(host_port, format_text("{}{}", where, here));
  const auto [place, added] = places_.try_emplace(to_string(address), here);
  if (!added)
    throw ClusterError("{}{} {} is also {}; give each task its own port", where, here,
                       detail::quote(host_port), place->second);
  job.push_back(std::move(address));
  return *this;
}

const std::vector<HostPort>& ClusterSpec::hosts(TaskType type) const {
  return jobs_[static_cast<std::size_t>(type)];
}

std::size_t ClusterSpec::world_size() const {
  const Slice last = ranks(TaskType::ps);
  return last.first + last.count;
}

Slice ClusterSpec::ranks(TaskType type) const {
  const std::size_t chiefs = hosts(TaskType::chief).size(), count = hosts(type).size();
  switch (type) {
    case TaskType::chief:
      return {0, chiefs};
    case TaskType::worker:
      return {chiefs, count};
    case TaskType::ps:
      return {chiefs + hosts(TaskType::worker).size(), count};
    case TaskType::evaluator:
      break;
  }
  return {};
}

Task ClusterSpec::chief_task() const {
  return {hosts(TaskType::chief).empty() ? TaskType::worker : TaskType::chief, 0};
}

std::size_t ClusterSpec::rank(const Task& task) const {
  return ranks(task.type).first + task.index.value();
}

Task ClusterSpec::task(std::size_t rank) const {
  for (const TaskType type : {TaskType::chief, TaskType::worker})
    if (const Slice of = ranks(type); of.contains(rank)) return {type, rank - of.first};
  return {TaskType::ps, rank - ranks(TaskType::ps).first};
}

const HostPort& ClusterSpec::address(std::size_t rank) const {
  const Task at = task(rank);
  return hosts(at.type)[*at.index];
}

void ClusterSpec::check(std::string_view where, bool has_servers) const {
  if (!has_servers && !hosts(TaskType::ps).empty())
    throw ClusterError(
        "{} has the job ps: parameter servers need the strategy ls::ParameterServer; remove the "
        "job: the workers exchange gradients themselves",
        where);
  if (has_servers && hosts(TaskType::ps).empty())
    throw ClusterError("{} has no ps; list at least one parameter server: \"ps\":[\"host:port\"]",
                       where);
  if (has_servers && hosts(TaskType::worker).empty())
    throw ClusterError(
        "{} has no worker: the chief and parameter servers compute no gradients; "
        "list at least one worker",
        where);
  if (world_size() == 0)
    throw ClusterError("{} has no chief and no worker; list at least one worker", where);
}

Task ClusterSpec::check(Task task, std::string_view type_at, std::string_view index_at) const {
  if (task.type == TaskType::evaluator)
    throw ClusterError(
        "{} is evaluator: an evaluator runs separately and does not train; start it without "
        "MultiWorkerMirrored, or as a worker",
        type_at);
  if (task.type == TaskType::ps && hosts(TaskType::ps).empty())
    throw ClusterError(
        "{} is ps: parameter servers need the strategy ls::ParameterServer; start this process as a "
        "worker, or start a program with that strategy",
        type_at);
  if (!hosts(TaskType::ps).empty() && !task.index && task.type != TaskType::chief)
    throw ClusterError(
        "{} is auto: a job with parameter servers needs the index of each task; write 0, 1 and so "
        "on",
        index_at);
  const auto& job = hosts(task.type);
  const std::string_view name = to_string(task.type);
  if (job.empty())
    throw ClusterError("{} is {}, but cluster has no {}; write \"{}\", or add the job to cluster",
                       type_at, name, name, to_string(chief_task().type));
  if (task.index && *task.index >= job.size()) {
    const std::string last = format_text(" to {}", job.size() - 1);
    throw ClusterError("{} {} is out of range: cluster.{} has {}{}; write 0{}", index_at,
                       *task.index, name, job.size(), job.size() == 1 ? " host" : " hosts",
                       job.size() == 1 ? "" : last);
  }
  if (!task.index && task.type == TaskType::chief) task.index = 0;
  if (!task.index && world_size() == 1)
    throw ClusterError(
        "{} is auto for the only worker, which is rank 0: the chief must know its index, since the "
        "others connect to it; write 0",
        index_at);
  return task;
}

std::string ClusterSpec::json() const {
  std::string result = "{";
  for (const TaskType type : task_types) {
    if (hosts(type).empty()) continue;
    result += format_text("{}{}\":[", result.size() > 1 ? ",\"" : "\"", to_string(type));
    for (const HostPort& address : hosts(type))
      result += format_text("{}{}\"", &address == &hosts(type).front() ? "\"" : ",\"",
                            to_string(address));
    result += ']';
  }
  return result + '}';
}

std::string ClusterSpec::tf_config(const Task& task) const {
  const std::string index = task.index ? std::to_string(*task.index) : "\"auto\"";
  return format_text("{{\"cluster\":{},\"task\":{{\"index\":{},\"type\":\"{}\"}}}}", json(), index,
                     to_string(task.type));
}

std::string ClusterSpec::table(std::optional<std::size_t> here) const {
  std::string result = "rank  task          address\n";
  for (std::size_t r = 0; r < world_size(); ++r) {
    const std::string number = std::to_string(r), name = to_string(task(r));
    result.append(4 - std::min<std::size_t>(4, number.size()), ' ');
    result += format_text("{}  {}", number, name);
    result.append(14 - std::min<std::size_t>(13, name.size()), ' ');
    result += format_text("{}{}{}\n", to_string(address(r)), r == 0 ? "  chief" : "",
                          here == r ? "  (this process)" : "");
  }
  return result;
}

Task parse_task(std::string_view entry, std::string_view where) {
  const auto colon = entry.find(':');
  const auto type = detail::checked_task_type(entry.substr(0, colon), where);
  if (colon == std::string_view::npos)
    throw ClusterError("{} {} has no index; write \"{}:0\"", where, detail::quote(entry),
                       to_string(type));
  const std::string_view index = entry.substr(colon + 1);
  if (index == "auto") return {type, std::nullopt};
  const auto number = detail::whole_number<std::uint32_t>(index);
  if (!number)
    throw ClusterError(
        "{} {} has the index {}, which is not a non-negative integer; write \"{}:0\" or "
        "\"{}:auto\"",
        where, detail::quote(entry), detail::quote(index), to_string(type), to_string(type));
  return {type, *number};
}

}  // namespace lockstep
