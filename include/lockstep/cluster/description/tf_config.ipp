#pragma once

#include "lockstep/cluster/description/tf_config.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep {

namespace detail {

/// The members of an object. \throws ClusterError for a repeated key.
inline std::vector<JsonMember> json_members(const JsonValue& object, std::string_view where) {
  std::vector<JsonMember> members = object.members();
  if (const auto key = repeated_key(members))
    throw ClusterError("{} has the key {} twice; keep one of them", where, quote(*key));
  return members;
}

/// Appends entry `index` of a list of hosts.
inline void add_host(ClusterSpec& cluster, TaskType type, const JsonValue& value, std::size_t index,
                     std::string_view where) {
  if (!value.is_text())
    throw ClusterError("{}{}[{}] is {}; write a string \"host:port\"", where, to_string(type),
                       index, json_kind(value));
  cluster.add(type, value.text(), where);
}

/// {"0": "host:port", "1": ...}: appends the hosts by index. \throws ClusterError for a gap.
inline void add_host_map(ClusterSpec& cluster, TaskType type, const JsonValue& object,
                         std::string_view where) {
  const std::string path = format_text("{}{}", where, to_string(type));
  const auto members = json_members(object, path);
  std::vector<const JsonValue*> hosts(members.size());
  std::optional<std::size_t> outside;
  for (const auto& [key, value] : members) {
    const auto index = whole_number<std::uint32_t>(key);
    if (!index || (key.size() > 1 && key.front() == '0'))
      throw ClusterError(
          "{} has the key {}, which is not an index; write \"0\", \"1\" and so on, or a list", path,
          quote(key));
    if (*index < hosts.size())
      hosts[*index] = &value;
    else
      outside = *index;
  }
  if (outside) {
    const auto gap = std::find(hosts.begin(), hosts.end(), nullptr) - hosts.begin();
    throw ClusterError(
        "{} has the index {} but not {}; lockstep needs every worker's address or none: list all "
        "of them",
        path, *outside, gap);
  }
  for (std::size_t i = 0; i < hosts.size(); ++i) add_host(cluster, type, *hosts[i], i, where);
}

/// True for a job of TF_CONFIG that takes no part in training, which is noted in `config`. As in
/// TensorFlow, the hosts of a job without a task type are not checked.
inline bool note_other_job(std::string_view key, const std::string& path, TfConfig& config,
                           bool has_servers) {
  const auto type = find_task_type(key);
  if (type == TaskType::chief || type == TaskType::worker) return false;
  if (type == TaskType::ps && has_servers) return false;
  if (!type && !similar_task_type(key).empty()) return false;  // a typing error
  config.other_jobs.emplace_back(key);
  config.notes.push_back(format_text(
      "{}: the job {} takes no part in training and is ignored{}", path, quote(key),
      type == TaskType::ps ? ": workers exchange gradients without parameter servers" : ""));
  return type != TaskType::evaluator;
}

/// The value of "cluster". `path` names it ("TF_CONFIG: cluster"); `where` begins the path of its
/// parts ("TF_CONFIG: cluster."). Jobs that take no part in training are noted in `config`; null:
/// they are refused, except for the evaluator.
inline ClusterSpec read_cluster(const JsonValue& value, const std::string& path,
                                const std::string& where, TfConfig* config = nullptr,
                                bool has_servers = false) {
  if (!value.is_object())
    throw ClusterError("{} is {}; write an object: {{\"worker\":[\"host:port\"]}}", path,
                       json_kind(value));
  ClusterSpec cluster;
  for (const auto& [key, hosts] : json_members(value, path)) {
    if (key == "cluster" || key == "task")
      throw ClusterError(
          "{} has the key {}; it must hold only what stands at \"cluster\" in TF_CONFIG: "
          "{{\"worker\":[\"host:port\"]}}",
          path, quote(key));
    if (config && note_other_job(key, path, *config, has_servers)) continue;
    const TaskType type = checked_task_type(key, path + ": the key");
    const std::string job = format_text("{}{}", where, to_string(type));
    if (hosts.is_text())
      throw ClusterError("{} is a string; write a list: [{}]", job, quote(hosts.text()));
    if (!hosts.is_list() && !hosts.is_object())
      throw ClusterError("{} is {}; write a list: [\"host:port\"]", job, json_kind(hosts));
    if (hosts.empty())
      throw ClusterError("{} is empty; list its hosts as \"host:port\", or remove the key", job);
    if (hosts.is_object()) {
      add_host_map(cluster, type, hosts, where);
      continue;
    }
    std::size_t index = 0;
    for (const JsonValue& host : hosts.values()) add_host(cluster, type, host, index++, where);
  }
  return cluster;
}

/// Refuses an unknown key that differs from `known` only in case or by a plural "s": it would be
/// ignored, and that is never what was meant.
inline void refuse_near_miss(std::string_view key, std::string_view known, std::string_view where) {
  const std::size_t length = known.size();
  if (key == known || key.size() < length || key.size() > length + 1) return;
  if (key.size() == length + 1 && key.back() != 's') return;
  const bool same = std::equal(known.begin(), known.end(), key.begin(), [](char a, char b) {
    return a == b || (a >= 'a' && a <= 'z' && a - 'a' + 'A' == b);
  });
  if (same) throw ClusterError("{} has the key {}; write \"{}\"", where, quote(key), known);
}

/// The value of "index": an integer, an integer as a string, or "auto" (nullopt).
inline std::optional<std::size_t> read_index(const JsonValue& value, const std::string& where) {
  constexpr std::string_view remedy = "; write a non-negative integer, or \"auto\"";
  if (value.is_text()) {
    const std::string_view entry = value.text();
    if (entry == "auto") return std::nullopt;
    const auto index = whole_number<std::uint32_t>(entry);
    if (!index) throw ClusterError("{} is {}{}", where, quote(entry), remedy);
    return *index;
  }
  switch (value.kind()) {
    case JsonKind::natural:
      return value.natural();
    case JsonKind::negative:
      if (value.negative() == 0) return 0;
      throw ClusterError("{} is {}{}", where, value.negative(), remedy);
    case JsonKind::fraction:
      throw ClusterError("{} is a number with a fraction or an exponent, or too large{}", where,
                         remedy);
    default:
      throw ClusterError("{} is {}{}", where, json_kind(value), remedy);
  }
}

/// The value of "task". `path` is "TF_CONFIG: task".
inline Task read_task(const JsonValue& value, const std::string& path, TfConfig& config) {
  if (!value.is_object())
    throw ClusterError("{} is {}; write an object: {{\"type\":\"worker\",\"index\":0}}", path,
                       json_kind(value));
  Task task;
  bool has_type = false, has_index = false;
  for (const auto& [key, part] : json_members(value, path)) {
    if (key == "type") {
      has_type = true;
      if (!part.is_text())
        throw ClusterError("{}.type is {}; write \"worker\" or \"chief\"", path, json_kind(part));
      const auto& others = config.other_jobs;
      if (!find_task_type(part.text()) &&
          std::find(others.begin(), others.end(), part.text()) != others.end())
        throw ClusterError(
            "{}.type is {}, a job that takes no part in training; start this process without "
            "MultiWorkerMirrored, or as a worker",
            path, quote(part.text()));
      task.type = checked_task_type(part.text(), path + ".type");
    } else if (key == "index") {
      has_index = true;
      task.index = read_index(part, path + ".index");
    } else {
      refuse_near_miss(key, "type", path);
      refuse_near_miss(key, "index", path);
      config.notes.push_back(
          format_text("{}.{} is not known to lockstep and is ignored", path, quote(key)));
    }
  }
  if (!has_type)
    throw ClusterError("{} has no type; write {{\"type\":\"worker\",\"index\":0}}", path);
  if (!has_index)
    throw ClusterError("{} has no index; write {{\"type\":\"{}\",\"index\":0}}", path,
                       to_string(task.type));
  return task;
}

/// \throws ClusterError for invalid JSON.
inline JsonDocument parse_description(std::string_view text, std::string_view name) {
  try {
    return JsonDocument(text, name);
  } catch (const JsonError& e) {
    throw ClusterError(e.what());
  }
}

}  // namespace detail

TfConfig parse_tf_config(std::string_view text, std::string_view name, bool has_servers) {
  const detail::JsonDocument parsed = detail::parse_description(text, name);
  const detail::JsonValue document = parsed.root();
  const std::string where(name);
  if (document.is_text() && document.text().starts_with('{'))
    throw ClusterError(
        "{} is a string that contains JSON; remove the outer quotes and the backslashes", where);
  if (!document.is_object())
    throw ClusterError("{} is {}; write an object: {{\"cluster\":{{...}},\"task\":{{...}}}}", where,
                       detail::json_kind(document));
  TfConfig config;
  std::optional<detail::JsonValue> task;
  for (const auto& [key, value] : detail::json_members(document, where)) {
    if (key == "cluster" || key == "sparseCluster") {
      if (config.cluster)
        throw ClusterError("{} has both \"cluster\" and \"sparseCluster\"; keep one of them",
                           where);
      const std::string path = format_text("{}: {}", where, key);
      config.cluster = detail::read_cluster(value, path, path + ".", &config, has_servers);
    } else if (key == "task") {
      task = value;  // read last: it may name a job of the cluster that takes no part
    } else {
      detail::refuse_near_miss(key, "cluster", where);
      detail::refuse_near_miss(key, "task", where);
      if (key == "worker" || key == "chief")
        throw ClusterError(
            "{} has the key {} outside of \"cluster\"; write "
            "{{\"cluster\":{{{}:[...]}},\"task\":{{...}}}}",
            where, detail::quote(key), detail::quote(key));
      config.notes.push_back(
          format_text("{}: {} is not known to lockstep and is ignored", where, detail::quote(key)));
    }
  }
  if (task) config.task = detail::read_task(*task, where + ": task", config);
  return config;
}

ClusterSpec parse_cluster(std::string_view text, std::string_view name) {
  const detail::JsonDocument document = detail::parse_description(text, name);
  const std::string where(name);
  return detail::read_cluster(document.root(), where, where + ": ");
}

}  // namespace lockstep
