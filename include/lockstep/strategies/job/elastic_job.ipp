#pragma once

#include "lockstep/strategies/job/elastic_job.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/cluster/network/secret.hpp"
#include "lockstep/cluster/resolve.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process/stop_of_process.hpp"
#include "lockstep/strategies/job/worker_job.hpp"
#include "lockstep/strategies/virtual_shards.hpp"

namespace lockstep::detail {

/// The entry of an open model in the list of this process.
class ElasticJob::Registered {
 public:
  Registered(std::string_view strategy, std::string name) : name_(std::move(name)) {
    const std::scoped_lock lock(list().mutex);
    if (!list().names.insert(name_).second)
      throw UsageError(
          "{}: this process has another open model in the elastic job; close it first, or leave out "
          ".elastic",
          strategy);
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  ~Registered() {
    const std::scoped_lock lock(list().mutex);
    list().names.erase(name_);
  }

 private:
  struct List {
    std::mutex mutex;
    std::set<std::string> names;
  };
  /// One per process; see JobSlot::of.
  [[gnu::visibility("default")]] static List& list() {
    static List all;
    return all;
  }
  std::string name_;
};

ElasticJob::ElasticJob(const ElasticJobOptions& options)
    : described_(resolve_cluster(options.environment, options.cluster)),
      secret_(read_secret(options.environment, described_)),
      failed_(described_.rendezvous_timeout),
      copies_(options.copies) {
  if (options.cluster.has_servers) check_has_servers(described_);
  if (described_.world_size == 1)
    throw UsageError(
        "{}: .elastic needs a job of several workers, but the description has one; describe all "
        "workers (TF_CONFIG, or a hosts file), or leave out .elastic and LOCKSTEP_MIN_WORKERS",
        options.strategy);
  registered_ = std::make_unique<Registered>(
      options.strategy, format_text("{} {} {}", ::getpid(), described_.description(),
                                    described_.rank ? std::to_string(*described_.rank) : ""));
  for (const std::string& note : described_.notes) log(LogLevel::info, note);
  ElasticSettings settings;
  settings.options = options.elastic;
  settings.fields =
      settings_fields(described_, options.virtual_shards, options.stragglers, options.copies);
  settings.fields.emplace_back("replicas of each worker", std::to_string(options.replicas));
  settings.fields.emplace_back("min_workers", std::to_string(options.elastic.min_workers));
  settings.fits = [shards = options.virtual_shards, each = options.replicas](std::size_t workers) {
    return can_share_slices(shards, workers, each);
  };
  member_.emplace(described_, secret_, std::move(settings));
  or_evicted([&] { now_ = member_->join(stop_of_process.token()); },
             [] { return stop_of_process.signal(); });
}

ElasticJob::~ElasticJob() = default;

std::string ElasticJob::address(std::size_t rank) const {
  return to_string(now_.cluster.cluster->address(rank));
}

void ElasticJob::next(const std::string& why, bool has_trained, const std::stop_token& stop) {
  using Action = FailedGenerations::Action;
  const std::size_t own = now_.cluster.rank.value_or(0), before = now_.is_new.size();
  const Action action = failed_.ended(own, has_trained, std::chrono::steady_clock::now());
  if (action != Action::go_on) {
    member_->leave();
    throw PeerLost(
        own, address(own),
        format_text("has left the elastic job, of which {} cannot exchange data although "
                    "all members live: {}",
                    action == Action::leave ? "it is the member that" : "some members", why),
        std::nullopt);
  }
  const Generation ended = std::exchange(now_, member_->next(why, stop));
  note_lost(ended);
  failed_.begin(now_.is_new.size() == before && !has_new_members());
}

bool ElasticJob::has_new_members() const {
  return now_.number > 0 && std::count(now_.is_new.begin(), now_.is_new.end(), true) > 0;
}

bool ElasticJob::is_new_member() const {
  return now_.number > 0 && now_.is_new[now_.cluster.rank.value_or(0)];
}

std::string ElasticJob::describe() const {
  const auto added = std::count(now_.is_new.begin(), now_.is_new.end(), true);
  std::string text =
      format_text("generation {} has {}", now_.number, describe_members(now_.cluster));
  if (now_.number > 0 && added > 0) text += format_text(", {} of them new", added);
  return text;
}

void ElasticJob::note_lost(const Generation& before) {
  std::vector<bool> is_here(before.is_new.size());
  for (std::size_t r = 0; r < now_.former.size(); ++r)
    if (!now_.is_new[r]) is_here[now_.former[r]] = true;
  const auto& tasks = before.cluster.tasks;
  const Slice owners = tasks ? tasks->servers : Slice{0, is_here.size()};
  for (std::size_t r = owners.first; r < owners.first + owners.count; ++r)
    if (!is_here[r]) lost_.push_back({r, to_string(before.cluster.cluster->address(r))});
}

PeerLost ElasticJob::lost_owners() const {
  std::string others;
  for (std::size_t i = 1; i < lost_.size(); ++i)
    others +=
        format_text("{}rank {} ({})", i == 1 ? ", as is " : ", ", lost_[i].rank, lost_[i].name);
  const bool are_servers = now_.cluster.tasks.has_value();
  const std::string restart =
      "start the job again from its checkpoint (lockstep-run --max-restarts)";
  const Lost none{0, are_servers ? "a parameter server" : "a worker"};
  const Lost& first = lost_.empty() ? none : lost_.front();
  std::string what;
  if (!are_servers)
    what = format_text(
        "is lost{}, and no other worker has its share of the optimizer's buffers; {}, or raise "
        ".copies of ls::Sharded",
        others, restart);
  else
    what = format_text(
        "is a parameter server that is lost{}, and no other server has its range of the weights and "
        "of the optimizer's buffers; {}",
        others,
        copies_ > 1 ? restart + ", or raise .replicas"
                    : "set .replicas = 2, so that each range has a second server, or " + restart);
  return {first.rank, first.name, what, std::nullopt};
}

ResolvedCluster ElasticJob::alone() const {
  ResolvedCluster one = described_;
  one.world_size = 1;
  one.rank = 0;
  one.chief.reset();
  one.cluster.reset();
  one.tasks.reset();
  one.notes.clear();
  return one;
}

}  // namespace lockstep::detail
