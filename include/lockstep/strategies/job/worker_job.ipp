#pragma once

#include "lockstep/strategies/job/worker_job.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <utility>

#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/cluster/rendezvous/chief_address.hpp"
#include "lockstep/cluster/rendezvous/gather_texts.hpp"
#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/cluster/resolve.hpp"
#include "lockstep/collectives/algorithms/lost_by_others.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/strategies/job/failed_generations.hpp"
#include "lockstep/strategies/job/shared_job.hpp"
#include "lockstep/strategies/virtual_shards.hpp"

namespace lockstep::detail {

/// "1 worker", "2 workers".
inline std::string counted(std::size_t count, std::string_view what) {
  return format_text("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// The value of LOCKSTEP_TRANSPORT.
inline const char* transport_name(Transport transport) {
  return transport == Transport::tcp             ? "tcp"
         : transport == Transport::shared_memory ? "shared_memory"
                                                 : "auto";
}

/// The value of LOCKSTEP_WIRE.
inline const char* wire_name(WireSecurity wire) {
  return wire == WireSecurity::sealed                     ? "sealed"
         : wire == WireSecurity::plain                    ? "plain"
         : wire == WireSecurity::plain_on_trusted_network ? "plain_on_trusted_network"
                                                          : "auto";
}

std::vector<SignatureField> settings_fields(const ResolvedCluster& where,
                                            std::size_t virtual_shards, bool stragglers,
                                            std::size_t copies,
                                            std::optional<std::uint64_t> staleness,
                                            std::size_t backup_workers) {
  std::vector<SignatureField> fields{
      {"transport", transport_name(where.transport)},
      {"wire", wire_name(where.wire)},
      {"connections", std::to_string(where.connections)},
      {"interfaces", std::to_string(where.more_interfaces.size() + 1)},
      {"virtual shards", std::to_string(virtual_shards)},
      {"stragglers", stragglers ? "on" : "off"}};
  if (copies > 1) fields.emplace_back("replicas of each server's range", std::to_string(copies));
  if (staleness)
    fields.emplace_back("staleness of asynchronous steps", *staleness == default_staleness
                                                               ? "the default"
                                                               : std::to_string(*staleness));
  if (backup_workers > 0) fields.emplace_back("backup workers", std::to_string(backup_workers));
  return fields;
}

void check_has_servers(const ResolvedCluster& where) {
  if (where.cluster && !where.cluster->hosts(TaskType::ps).empty()) return;
  throw ClusterError(
      "parameter_server: {} does not describe parameter servers; set TF_CONFIG with the job ps, or "
      "start the program by lockstep-run -n WORKERS --ps SERVERS",
      where.source);
}

WorkerJob::WorkerJob(const WorkerOptions& options)
    : virtual_shards_(options.virtual_shards),
      copies_(options.copies),
      stragglers_(options.stragglers),
      is_elastic_(options.generation != nullptr),
      logs_members_(options.logs_members),
      staleness_(options.staleness),
      backup_workers_(options.backup_workers),
      on_reform_(options.on_reform),
      timeout_(options.stall_limits.idle + std::chrono::minutes(1)),
      where_(options.generation != nullptr
                 ? *options.generation
                 : resolve_cluster(options.environment, options.cluster)) {
  const auto log_notes = [&] {
    for (const std::string& note : where_.notes) log(LogLevel::info, note);
  };
  if (options.cluster.has_servers && !is_elastic_) check_has_servers(where_);
  check_copies();
  check_backups();
  if (where_.world_size == 1) {
    log_notes();
    return;
  }
  const auto join = [&] {
    session_ = std::make_unique<JobSession>(where_, options.stall_limits, [&] {
      log_notes();
      return RendezvousOptions{.cluster = where_,
                               .secret = options.secret != nullptr
                                             ? *options.secret
                                             : read_secret(options.environment, where_),
                               .stall_limits = options.stall_limits};
    });
  };
  try {
    join();
  } catch (const ClusterError& e) {
    // After the first generation the description is known to be right, so that another process has
    // the chief's port.
    const bool is_transient = !options.logs_members || dynamic_cast<const ListenError*>(&e);
    if (!is_elastic_ || !is_transient) throw;
    throw PeerLost(0, to_string(*where_.chief), std::string("cannot be joined: ") + e.what(),
                   std::nullopt);
  }
  job_ = &session_->rendezvous();
  rank_ = job_->rank();
  watch_generation();
}

WorkerJob::~WorkerJob() {
  unsubscribe();  // the session would still read this object's groups
}

void WorkerJob::watch_generation() {
  if (!on_reform_) return;
  on_reform_([job = job_] { job->end(0, ended_by_another); });
}

void WorkerJob::exchange_places(const WorkerPlace& here) {
  if (job_)
    job_->agree(
        "strategy",
        settings_fields(where_, virtual_shards_, stragglers_, copies_, staleness_, backup_workers_),
        start_timeout());
  if (job_)
    places_ = places_by_rank(here);
  else
    places_.push_back(here);
  share_devices(places_);
  for (const WorkerPlace& place : places_) counts_.push_back(place.replicas);
  check_shards();
  log_members();
}

void WorkerJob::connect(JobGroups (*plane)(const JobLinks&), const Spins& spins) {
  const auto emplace = [&](ProcessGroup layers, ProcessGroup gradients) {
    layers_.emplace(std::move(layers), timeout_, job_, job_ ? key("secrets of layers") : "");
    gradients_.emplace(std::move(gradients), timeout_, job_,
                       job_ ? key("secrets of gradients") : "");
  };
  if (!job_) return emplace({}, {});
  exchange([&] {
    JobGroups groups = plane(links(spins));
    emplace(std::move(groups.layers), std::move(groups.gradients));
  });
}

JobLinks WorkerJob::links(const Spins& spins) {
  return {.where = where_,
          .session = *session_,
          .places = places_,
          .timeout = timeout_,
          .start_timeout = start_timeout(),
          .order = order(),
          .is_flat = has_servers(),
          .layer_spins = spins.layers,
          .gradient_spins = spins.gradients,
          .peers_know = peers_know_};
}

void WorkerJob::connect_pairs(std::vector<ProcessGroup> (*plane)(const JobLinks&,
                                                                 const std::vector<std::size_t>&)) {
  if (!job_) return;
  const ReplicaRoles of = roles();
  const std::size_t first = of.owners.first;
  const auto are_pair = [&](std::size_t server, std::size_t other) {
    return of.owners.contains(server) && (server == first || of.computing.contains(other));
  };
  std::vector<std::size_t> peers;
  for (std::size_t r = 0; r < places_.size(); ++r)
    if (r != rank_ && (are_pair(rank_, r) || are_pair(r, rank_))) peers.push_back(r);
  exchange([&] {
    std::vector<ProcessGroup> groups = plane(links({}), peers);
    for (std::size_t i = 0; i < peers.size(); ++i) pairs_.emplace(peers[i], std::move(groups[i]));
  });
}

bool WorkerJob::overlaps(bool mine) {
  if (!job_) return mine;
  const std::string overlap = key("exchange overlaps");
  if (rank() == 0) job_->set(overlap, mine ? "yes" : "no");
  return job_->get(overlap, start_timeout()) == "yes";
}

void WorkerJob::subscribe(std::function<void()> abort) {
  if (!job_) return;
  session_->on_exchange([this] {
    const ExchangeProgress one = layers_->progress(), other = gradients_->progress();
    ExchangeProgress all{one.done + other.done, one.waits_for ? one.waits_for : other.waits_for,
                         one.moved + other.moved};
    for (const auto& [rank, pair] : pairs_) all.moved += pair.progress().moved;
    return all;
  });
  session_->on_loss([this, abort = std::move(abort)](const PeerLost& loss) {
    // The next step throws it, maybe late; an elastic job goes on.
    if (!waits_ && !is_elastic_) job_->log(LogLevel::error, loss.what());
    layers_->lose(loss.rank());  // first, since an abort names this process
    gradients_->lose(loss.rank());
    for (auto& [rank, pair] : pairs_) pair.lose(loss.rank());
    abort();
  });
}

void WorkerJob::leave_at_once() {
  if (!job_ || std::exchange(has_left_, true)) return;
  unsubscribe();
  job_->leave_at_once();
}

void WorkerJob::leave() {
  if (!job_ || std::exchange(has_left_, true)) return;
  if (std::uncaught_exceptions() > exceptions_) fail("ended by an exception");
  session_->leave();
  unsubscribe();
}

void WorkerJob::fail_and_unsubscribe(const std::string& what) {
  fail(what);  // peers are waiting for this process
  unsubscribe();
}

void WorkerJob::unsubscribe() {
  if (on_reform_) on_reform_({});
  if (session_) session_->unsubscribe();
}

void WorkerJob::fail(const std::string& what) {
  if (job_ && !peers_know_ && !job_->verdict()) job_->fail(what);
}

std::size_t WorkerJob::first() const {
  return std::accumulate(counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(rank()),
                         std::size_t{0});
}

std::size_t WorkerJob::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), std::size_t{0});
}

std::chrono::milliseconds WorkerJob::start_timeout() const {
  return std::max<std::chrono::milliseconds>(where_.rendezvous_timeout, std::chrono::seconds(10));
}

std::string WorkerJob::key(std::string_view what) const { return session_->name(what); }

/// A numeric address that all workers of a machine have alike, whatever name the job gives it: the
/// chief's may be a host name or, with Debian's /etc/hosts, 127.0.1.1.
inline std::string machine_address(const Rendezvous& job, const ResolvedCluster& where) {
  const std::string& listed = job.address_of(job.rank());
  const std::string host = listed.substr(0, listed.rfind(':')), local = job.local_address();
  const bool is_number =
      host.starts_with('[') || host.find_first_not_of("0123456789.") == std::string::npos;
  if (is_number && !where.data_address && !where.data_interface) return host;
  const bool is_ipv6 = local.find(':') != std::string::npos;
  if (is_loopback(local)) return is_ipv6 ? "[::1]" : "127.0.0.1";
  return is_ipv6 ? "[" + local + "]" : local;
}

std::vector<WorkerPlace> WorkerJob::places_by_rank(const WorkerPlace& here) {
  // The boot id alone is not enough: clones of a virtual machine share it, and so do containers.
  WorkerPlace own = here;
  own.machine += "@" + machine_address(*job_, where_);
  std::vector<WorkerPlace> result;
  for (const std::string& text : gather_texts(*job_, key("places"), own.text(), start_timeout())) {
    auto place = WorkerPlace::parse(text);
    if (!place) throw ClusterError("rank {} sent a malformed placement: '{}'", result.size(), text);
    result.push_back(*place);
  }
  return result;
}

bool WorkerJob::has_servers() const {
  return where_.tasks || (where_.cluster && !where_.cluster->hosts(TaskType::ps).empty());
}

void WorkerJob::check_copies() const {
  if (copies_ == 0)
    throw UsageError("parameter_server: replicas is 0; it must be at least 1, the server itself");
  // A later generation of an elastic job, which may have fewer, lists no roles.
  const std::size_t servers = where_.cluster ? where_.cluster->hosts(TaskType::ps).size() : 0;
  if (servers > 0 && copies_ > servers)
    throw UsageError(
        "parameter_server: replicas is {}, but the job has {}; each copy of a range is on a server "
        "of its own, so start at least {} servers, or lower .replicas",
        copies_, counted(servers, "parameter server"), copies_);
}

void WorkerJob::check_backups() const {
  // As above; with fewer workers than that, all but one are backups.
  const std::size_t workers = where_.cluster ? where_.cluster->hosts(TaskType::worker).size() : 0;
  if (workers > 0 && backup_workers_ >= workers)
    throw UsageError(
        "parameter_server: backup_workers is {}, but the job has {}, of which a step needs at least "
        "one; start more workers, or lower .backup_workers",
        backup_workers_, counted(workers, "worker"));
}

ReplicaRoles WorkerJob::roles() const {
  if (!has_servers()) return {{0, total()}, {0, total()}};
  const TaskRanks ranks = where_.tasks ? *where_.tasks
                                       : TaskRanks{where_.cluster->ranks(TaskType::worker),
                                                   where_.cluster->ranks(TaskType::ps)};
  return {ranks.workers, ranks.servers,
          std::min(copies_, std::max(ranks.servers.count, std::size_t{1}))};
}

CoreSharers WorkerJob::core_sharers() const {
  if (!has_servers()) return CoreSharers(places_, rank());
  const Slice workers = roles().computing;
  if (workers.contains(rank()))
    return CoreSharers(std::span(places_).subspan(workers.first, workers.count),
                       rank() - workers.first);
  CoreSharers all(places_, rank());
  all.bind = false;
  return all;
}

void WorkerJob::check_shards() const {
  if (has_servers()) {
    check_virtual_shards(virtual_shards_, 1);
    const std::size_t workers = roles().computing.count;
    if (!can_share_slices(virtual_shards_, workers, 1))
      throw UsageError("virtual_shards: {} slices cannot be shared by {} workers; use at least {}",
                       virtual_shards_, workers, std::bit_ceil(workers));
    return;
  }
  const std::size_t each = counts_[0], least = std::bit_ceil(counts_.size()) * each;
  check_virtual_shards(virtual_shards_, is_elastic_ ? each : total());
  if (is_elastic_ && !can_share_slices(virtual_shards_, counts_.size(), each))
    throw UsageError(
        "virtual_shards: {} slices cannot be shared by {} workers of an elastic job, of {} each; "
        "use at least {}, or fewer workers",
        virtual_shards_, counts_.size(),
        each == 1 ? "one replica" : format_text("{} replicas", each), least);
  if (virtual_shards_ == 0) return;
  for (std::size_t r = 1; r < counts_.size(); ++r)
    if (counts_[r] != counts_[0])
      throw UsageError(
          "virtual_shards: rank 0 has {} replicas, rank {} {}; give all workers the same number",
          counts_[0], r, counts_[r]);
}

void WorkerJob::log_members() const {
  if (!job_ || !logs_members_ || job_->rank() != 0 || session_->number() > 0) return;
  const ReplicaRoles of = roles();
  std::string table = has_servers()
                          ? format_text("job of {} and {}:", counted(of.computing.count, "worker"),
                                        counted(of.owners.count, "parameter server"))
                          : format_text("job of {} workers, {} replicas:", job_->size(), total());
  for (std::size_t r = 0; r < job_->size(); ++r) {
    table += format_text("\n  {} at {}", where_.name(r), job_->address_of(r));
    if (!has_servers())
      table += format_text(": {}{}", counts_[r], counts_[r] == 1 ? " replica" : " replicas");
  }
  log(LogLevel::info, table);
}

void WorkerJob::throw_cause(const CollectiveError& e) {
  if (!job_) return;
  if (const auto* link = dynamic_cast<const LinkFailed*>(&e)) throw job_->blame(*link);
  if (dynamic_cast<const CollectiveAborted*>(&e)) {
    // This process finds its loss when its connection to the chief fails, perhaps after the others.
    const bool by_others = dynamic_cast<const LostByOthers*>(&e) != nullptr;
    const auto wait = by_others ? job_->timeouts().silence + 2 * heartbeat_interval
                                : std::chrono::milliseconds(0);
    if (const auto loss = job_->verdict(job_->verdict_timeout() + wait)) throw *loss;
    if (by_others) throw job_->blame(rank(), "the other ranks have lost it");
  }
  if (e.peer() && *e.peer() != rank()) throw job_->blame(*e.peer(), e.what());
}

void WorkerJob::agree(std::string_view part, const Signature& fields) {
  if (!job_) return;
  const WaitScope scope(*this);
  try {
    // The long timeout is for peers that still read their data, or save.
    job_->agree(part, fields, timeout_);
  } catch (const UsageError&) {
    peers_know_ = true;
    throw;
  }
}

void WorkerJob::note(std::uint64_t step, Phase phase) {
  if (!job_) return;
  clock_.enter(phase);
  if (!first_step_) first_step_ = step;
  last_step_ = step;
  session_->note_progress(step, phase, step == first_step_);
}

void WorkerJob::end_epoch(int epoch) {
  if (!job_ || !stragglers_) return;
  std::vector<PhaseTimes> times(counts_.size());
  const PhaseTimes mine = clock_.read_and_reset();
  exchange([&] { layers_->all_gather(&mine, 1, times.data()); });
  if (rank() == 0) log(LogLevel::info, straggler_table(epoch, times));
  clock_.read_and_reset();  // do not count the wait for the peers' times
}

}  // namespace lockstep::detail
