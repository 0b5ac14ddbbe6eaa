#pragma once

#include "lockstep/cluster/resolve.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster/description/mpi.hpp"
#include "lockstep/cluster/description/settings.hpp"
#include "lockstep/cluster/description/slurm.hpp"
#include "lockstep/cluster/description/source.hpp"
#include "lockstep/cluster/description/spec.hpp"
#include "lockstep/cluster/description/tf_config.hpp"
#include "lockstep/cluster/description/torchrun.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"
#include "lockstep/files/json_document.hpp"

namespace lockstep {

namespace detail {

/// LOCKSTEP_WORLD_SIZE and LOCKSTEP_RANK. The chief comes from LOCKSTEP_COORDINATOR.
inline std::optional<ClusterSource> lockstep_source(const Environment& environment) {
  const auto world = number_variable(environment, "LOCKSTEP_WORLD_SIZE");
  if (!world) return std::nullopt;
  ClusterSource source{.name = "LOCKSTEP_WORLD_SIZE"};
  source.world_size = *world;
  source.rank = number_variable(environment, "LOCKSTEP_RANK");
  if (!source.rank)
    source.missing = "LOCKSTEP_WORLD_SIZE is set, but LOCKSTEP_RANK is not; set both on all ranks";
  check_ranks(source, "LOCKSTEP_RANK", "LOCKSTEP_WORLD_SIZE");
  return source;
}

/// The names of a description's parts in messages.
struct SpecPlaces {
  std::string_view cluster, type, index;
  std::string task_remedy;  ///< how to set the program's task
};

/// How the program's user, or else its author, can describe the cluster, and the task.
inline std::string cluster_remedy(const ClusterArguments& arguments) {
  return arguments.options.empty()
             ? "describe it in the program (.cluster = {.cluster = spec, .task = task})"
             : "give " + arguments.options;
}

/// The same for the task.
inline std::string task_remedy(const ClusterArguments& arguments) {
  return arguments.options.empty() ? "name it in the program (.cluster = {.task = task})"
                                   : format_text("give {} worker:0", arguments.task_name);
}

/// The source for a cluster and this process' task in it, if that is known.
inline ClusterSource spec_source(std::string name, const ClusterSpec& cluster,
                                 const std::optional<Task>& task, const SpecPlaces& places,
                                 const std::optional<std::size_t>& lockstep_rank,
                                 bool has_servers) {
  cluster.check(places.cluster, has_servers);
  ClusterSource source{.name = std::move(name)};
  source.world_size = cluster.world_size();
  source.cluster = cluster;
  source.chief_host = cluster.address(0).host;
  source.chief_port = cluster.address(0).port;
  if (task) {
    const Task checked = cluster.check(*task, places.type, places.index);
    if (checked.index) source.rank = cluster.rank(checked);
    if (!checked.index && lockstep_rank == std::size_t{0} &&
        cluster.chief_task().type != task->type)
      throw ClusterError("{} is {}, but LOCKSTEP_RANK=0 is the chief; unset LOCKSTEP_RANK",
                         places.type, to_string(task->type));
  } else if (!lockstep_rank) {
    source.missing = format_text(
        "{} has a cluster, but no task for this process; write "
        "\"task\":{{\"type\":\"worker\",\"index\":0}} into TF_CONFIG, or {}, or set LOCKSTEP_RANK",
        source.name, places.task_remedy);
  }
  return source;
}

/// TF_CONFIG. The program's task takes precedence over the one in it.
inline std::optional<ClusterSource> tf_config_source(
    const Environment& environment, const ClusterArguments& arguments,
    const std::optional<std::size_t>& lockstep_rank) {
  const std::optional<Task>& task = arguments.task;
  const std::string_view task_name = arguments.task_name;
  const auto value = variable(environment, "TF_CONFIG");
  if (!value || value->find_first_not_of(json_blanks) == std::string::npos) return std::nullopt;
  TfConfig config = parse_tf_config(*value, "TF_CONFIG", arguments.has_servers);
  // TensorFlow treats {} as "no cluster", and users write it to disable TF_CONFIG.
  if (!config.cluster && !config.task && config.notes.empty()) return std::nullopt;
  ClusterSource source{.name = "TF_CONFIG"};
  if (!config.cluster || (*config.cluster == ClusterSpec{} && config.other_jobs.empty())) {
    source.missing =
        "TF_CONFIG has no \"cluster\"; write {\"cluster\":{\"worker\":[\"host:port\"]},"
        "\"task\":{\"type\":\"worker\",\"index\":0}}";
  } else {
    const SpecPlaces places{"TF_CONFIG: cluster", task ? task_name : "TF_CONFIG: task.type",
                            task ? task_name : "TF_CONFIG: task.index", task_remedy(arguments)};
    source = spec_source("TF_CONFIG", *config.cluster, task ? task : config.task, places,
                         lockstep_rank, arguments.has_servers);
  }
  source.notes = std::move(config.notes);
  return source;
}

/// Applies LOCKSTEP_COORDINATOR and LOCKSTEP_PORT, then notes whether the chief's address is
/// missing.
inline void apply_settings(ClusterSource& source, const ClusterSettings& settings) {
  if (settings.coordinator || settings.port) source.more_ports.clear();
  if (settings.coordinator) {
    source.chief_list.clear();
    source.compares_chief_host = true;
    if (source.cluster && source.cluster->address(0) != *settings.coordinator)
      source.notes.push_back(format_text("LOCKSTEP_COORDINATOR {} replaces the chief's address {}",
                                         to_string(*settings.coordinator),
                                         to_string(source.cluster->address(0))));
    source.chief_host = settings.coordinator->host;
    source.chief_port = settings.coordinator->port;
  }
  if (settings.port) source.chief_port = settings.port;
  if (!source.missing.empty() || source.world_size == 1) return;
  if (!source.chief_host)
    source.missing =
        source.empty_host.empty()
            ? format_text(
                  "{} gives no address for rank 0; set LOCKSTEP_COORDINATOR=HOST:PORT on all ranks",
                  source.name)
            : format_text(
                  "{}: {} is empty; set it to the host of rank 0 on all ranks, or set "
                  "LOCKSTEP_COORDINATOR=HOST:PORT",
                  source.name, source.empty_host);
  else if (!source.chief_port)
    source.missing =
        format_text("{} gives no port for rank 0; set LOCKSTEP_PORT on all ranks", source.name);
}

/// "rank 1 of 4"
inline std::string describe_rank(const ClusterSource& source) {
  if (!source.rank) return format_text("an automatic rank of {}", source.world_size);
  return format_text("rank {} of {}", *source.rank, source.world_size);
}

/// Whether the launcher `inner` was started by the processes of `outer`: a rank of `outer` is shared
/// by several processes of the node, or `inner` has more processes, or as many with ranks of its own.
/// Only launchers count the processes of a node: a larger number that was typed into variables or
/// TF_CONFIG proves nothing.
inline bool was_started_by(const ClusterSource& outer, const ClusterSource& inner) {
  if (!inner.local_size || outer.name == "LOCKSTEP_WORLD_SIZE") return false;
  if (outer.local_size && *outer.local_size != *inner.local_size)
    return *outer.local_size < *inner.local_size;
  if (outer.cluster || inner.cluster) return false;
  if (outer.world_size == inner.world_size) return inner.has_own_ranks && outer.rank != inner.rank;
  return outer.world_size < inner.world_size;
}

/// Two complete sources must agree. \throws ClusterError that names both.
inline void refuse_contradiction(const ClusterSource& chosen, const ClusterSource& other) {
  if (chosen.world_size == other.world_size &&
      (!chosen.rank || !other.rank || chosen.rank == other.rank))
    return;
  throw ClusterError(
      "{} describes this process as {}, {} as {}; unset the variables of one of them, or pick "
      "one with LOCKSTEP_LAUNCHER=tf_config, torchrun, mpi, slurm, pmi or none",
      chosen.name, describe_rank(chosen), other.name, describe_rank(other));
}

/// The chosen source, and why the others were not chosen.
struct Choice {
  std::optional<ClusterSource> source{};
  std::vector<std::string> ignored{};  ///< one reason per ignored source
  std::vector<std::string> notes{};    ///< about launchers that started the chosen one
  bool several = false;                ///< an ignored source has several processes
};

/// Keeps that of two complete sources whose processes are the workers. \throws ClusterError if they
/// contradict each other.
inline void merge_source(Choice& choice, ClusterSource other) {
  ClusterSource& chosen = *choice.source;
  const bool replaces = was_started_by(chosen, other);
  if (!replaces && !was_started_by(other, chosen)) return refuse_contradiction(chosen, other);
  if (replaces) std::swap(chosen, other);
  choice.notes.push_back(format_text("{} ({}) has started {}, whose processes are the workers",
                                     other.name, describe_rank(other), chosen.name));
}

/// Derives local rank and size by comparing the hosts of the cluster, all loopback names counting
/// as one machine.
inline void count_local(ClusterSource& source) {
  if (!source.cluster || !source.rank) return;
  const auto machine = [&](std::size_t rank) {
    const std::string& host = source.cluster->address(rank).host;
    return is_loopback(host) ? std::string("localhost") : host;
  };
  const std::string here = machine(*source.rank);
  std::size_t size = 0, before = 0;
  for (std::size_t r = 0; r < source.world_size; ++r) {
    if (machine(r) != here) continue;
    ++size;
    if (r < *source.rank) ++before;
  }
  source.local_rank = before;
  source.local_size = size;
}

/// Reads the sources of the environment in order and chooses the first complete one. An invalid
/// source before it is an error; an invalid one after it is only noted. With LOCKSTEP_LAUNCHER, all
/// other launchers are skipped.
inline Choice choose_source(const Environment& environment, const ClusterArguments& arguments,
                            const ClusterSettings& settings) {
  struct Reader {
    std::string_view launcher;
    std::function<std::optional<ClusterSource>()> read;
  };
  const std::vector<Reader> readers{
      {"", [&] { return lockstep_source(environment); }},
      {"tf_config", [&] { return tf_config_source(environment, arguments, settings.rank); }},
      {"torchrun", [&] { return torchrun_source(environment); }},
      {"mpi", [&] { return open_mpi_source(environment); }},
      {"slurm", [&] { return slurm_source(environment); }},
      {settings.launcher == "mpi" ? "mpi" : "pmi", [&] { return pmi_source(environment); }}};
  Choice choice;
  auto& chosen = choice.source;
  std::vector<ClusterSource> incomplete;
  for (const Reader& reader : readers) {
    const bool picked = !settings.launcher.empty();
    if (picked && (chosen || reader.launcher != settings.launcher)) continue;
    std::optional<ClusterSource> source;
    try {
      source = reader.read();
    } catch (const ClusterError& error) {
      if (!chosen) throw;
      choice.ignored.emplace_back(error.what());
      continue;
    }
    if (!source) continue;
    apply_settings(*source, settings);
    count_local(*source);
    if (!source->missing.empty()) {
      choice.ignored.push_back(source->missing);
      choice.several = choice.several || source->world_size > 1;
      incomplete.push_back(std::move(*source));
    } else if (chosen) {
      merge_source(choice, std::move(*source));
    } else {
      chosen = std::move(source);
    }
  }
  // Several processes would take one rank of the launcher that started theirs.
  for (const ClusterSource& inner : incomplete)
    if (chosen && inner.rank && was_started_by(*chosen, inner))
      throw ClusterError("{}; {} ({}) has started it", inner.missing, chosen->name,
                         describe_rank(*chosen));
  return choice;
}

/// "TF_CONFIG is empty; " and the like, for each variable that is set but empty or blank.
inline std::string describe_empty_variables(const Environment& environment,
                                            const ClusterSettings& settings) {
  std::string text;
  for (const char* name :
       {"TF_CONFIG", "LOCKSTEP_WORLD_SIZE", "LOCKSTEP_RANK", "LOCKSTEP_COORDINATOR"}) {
    const bool is_read = name != std::string_view("TF_CONFIG") || settings.launcher.empty() ||
                         settings.launcher == "tf_config";
    const auto value = environment(name);
    if (is_read && value && value->find_first_not_of(json_blanks) == std::string::npos)
      text += format_text("{} {}; ", name, value->empty() ? "is empty" : "contains only blanks");
  }
  return text;
}

/// Throws the error for a missing description: what was found, and how to describe a job.
[[noreturn]] inline void throw_no_cluster(const Environment& environment,
                                          const ClusterSettings& settings,
                                          const ClusterArguments& arguments,
                                          const std::vector<std::string>& ignored) {
  std::string reasons;
  for (const std::string& reason : ignored) reasons += format_text("{}; ", reason);
  if (ignored.empty() && !settings.launcher.empty())
    reasons =
        format_text("LOCKSTEP_LAUNCHER={} is set, but the variables of that launcher are not; ",
                    settings.launcher);
  if (ignored.empty() && settings.rank)
    reasons += "LOCKSTEP_RANK also needs LOCKSTEP_WORLD_SIZE and LOCKSTEP_COORDINATOR; ";
  reasons += describe_empty_variables(environment, settings);
  throw ClusterError(
      "no cluster is described: {}set TF_CONFIG, or {}, or start the program with lockstep-run, "
      "torchrun, mpirun or srun{}",
      reasons, cluster_remedy(arguments),
      arguments.options.empty() ? "; .cluster = {.allow_single = true} permits a single worker"
                                : "");
}

/// Notes a cluster that mixes loopback and other addresses: "localhost" is a different machine on
/// each host.
inline void warn_about_loopback(const ClusterSource& source, std::vector<std::string>& notes) {
  if (!source.cluster) return;
  std::optional<std::size_t> near, far;
  for (std::size_t r = 0; r < source.world_size; ++r) {
    auto& kind = is_loopback(source.cluster->address(r).host) ? near : far;
    if (!kind) kind = r;
  }
  if (near && far)
    notes.push_back(format_text(
        "{}: {} is at {}, which every machine resolves to itself, but {} is at {}; if they are two "
        "machines, write addresses that all reach",
        source.name, to_string(source.cluster->task(*near)),
        to_string(source.cluster->address(*near)), to_string(source.cluster->task(*far)),
        to_string(source.cluster->address(*far))));
}

/// Uses LOCKSTEP_RANK if the source leaves the rank open. \throws ClusterError if the two differ.
inline void apply_rank(ClusterSource& chosen, const ClusterSettings& settings, bool rank_argument,
                       std::vector<std::string>& notes) {
  if (!settings.rank || chosen.rank == settings.rank) return;
  if (rank_argument) {
    notes.push_back(format_text("LOCKSTEP_RANK={} is ignored: {} gives {}", *settings.rank,
                                chosen.name, describe_rank(chosen)));
    return;
  }
  if (chosen.rank)
    throw ClusterError("LOCKSTEP_RANK={}, but {} describes this process as {}; unset one of them",
                       *settings.rank, chosen.name, describe_rank(chosen));
  chosen.rank = settings.rank;
  check_ranks(chosen, "LOCKSTEP_RANK", "the number of its processes");
}

/// Notes the variables that Kubernetes sets for a Service, and which `variable` ignores.
inline void note_service_variables(const Environment& environment,
                                   std::vector<std::string>& notes) {
  for (const char* name : {"LOCKSTEP_PORT", "MASTER_PORT", "PET_MASTER_PORT"}) {
    const auto value = environment(name);
    if (value && is_service_port(name, *value))
      notes.push_back(format_text(
          "ignored: {}={}, which Kubernetes sets for a Service; enableServiceLinks: false in the "
          "pod's spec leaves it out",
          name, quote(*value)));
  }
}

/// The source to use; nullopt for a single worker, if that is permitted.
inline std::optional<ClusterSource> find_source(const Environment& environment,
                                                const ClusterArguments& arguments,
                                                const ClusterSettings& settings,
                                                std::vector<std::string>& notes) {
  if (arguments.cluster) {
    ClusterSource source = spec_source(
        arguments.cluster_name, *arguments.cluster, arguments.task,
        {arguments.cluster_name, arguments.task_name, arguments.task_name, task_remedy(arguments)},
        settings.rank, arguments.has_servers);
    if (!source.missing.empty()) throw ClusterError(source.missing);
    apply_settings(source, settings);
    return source;
  }
  if (settings.launcher == "none" && !arguments.task) return std::nullopt;
  Choice choice = choose_source(environment, arguments, settings);
  if (arguments.task && (!choice.source || choice.source->name != "TF_CONFIG"))
    throw ClusterError(
        "{} {} is a task in a cluster, but no cluster is described; {}, or set TF_CONFIG",
        arguments.task_name, to_string(*arguments.task), cluster_remedy(arguments));
  // If a launcher started several processes, training each of them alone is never intended.
  const bool alone = arguments.allow_single && !choice.several && settings.launcher.empty();
  if (!choice.source && !alone) throw_no_cluster(environment, settings, arguments, choice.ignored);
  notes.insert(notes.end(), choice.notes.begin(), choice.notes.end());
  for (const std::string& reason : choice.ignored)
    notes.push_back(format_text("ignored: {}", reason));
  return std::move(choice.source);
}

}  // namespace detail

ResolvedCluster resolve_cluster(const Environment& environment, const ClusterArguments& arguments) {
  const detail::ClusterSettings settings = detail::read_settings(environment);
  ResolvedCluster result;
  result.bind = settings.bind;
  result.data_address = settings.data_address;
  result.data_interface = settings.data_interface;
  result.more_interfaces = settings.more_interfaces;
  result.data_ports = settings.data_ports;
  result.transport = settings.transport;
  result.wire = settings.wire;
  result.connections = settings.connections;
  result.rendezvous_timeout = settings.rendezvous_timeout;
  result.timeouts = arguments.timeouts;
  for (const detail::TimeoutRow& row : detail::timeout_rows)
    if (auto& time = result.timeouts.*row.member; time == std::chrono::milliseconds(0))
      time = settings.timeouts.*row.member;
  result.job_id = settings.job_id;
  detail::note_service_variables(environment, result.notes);
  auto source = detail::find_source(environment, arguments, settings, result.notes);
  if (!source) {
    result.source = "single process";
    result.rank = result.local_rank = 0;
    result.local_size = 1;
    result.notes.insert(result.notes.begin(), "no cluster: this process trains alone");
    return result;
  }
  detail::apply_rank(*source, settings, arguments.task.has_value(), result.notes);
  detail::count_local(*source);
  detail::check_chief_node(*source);
  detail::warn_about_loopback(*source, result.notes);
  if (result.job_id.empty() && !source->job_id.empty()) {
    detail::check_job_id(source->job_id, format_text("{}: the job's id", source->name));
    result.job_id = source->job_id;
  }
  result.world_size = source->world_size;
  result.rank = source->rank;
  if (source->chief_host && source->chief_port)
    result.chief = HostPort{*source->chief_host, *source->chief_port};
  result.more_ports = source->more_ports;
  result.compares_chief_host = source->compares_chief_host;
  if (!result.bind) result.bind = source->bind;
  result.local_rank = source->local_rank;
  result.local_size = source->local_size;
  result.notes.insert(result.notes.begin(), source->notes.begin(), source->notes.end());
  result.notes.insert(
      result.notes.begin(),
      format_text("the cluster comes from {}: this process is {}, the chief is at {}", source->name,
                  detail::describe_rank(*source),
                  result.chief ? to_string(*result.chief) : std::string("no address")));
  result.source = std::move(source->name);
  result.cluster = std::move(source->cluster);
  return result;
}

}  // namespace lockstep
