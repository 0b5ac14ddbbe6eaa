#pragma once

#include "lockstep/strategies/worker_job.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/cluster/resolve.hpp"
#include "lockstep/collectives/gloo_mesh.hpp"
#include "lockstep/collectives/gloo_store.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/strategies/shared_job.hpp"
#include "lockstep/strategies/virtual_shards.hpp"

namespace lockstep::detail {

/// The store of a process without peers.
class NoStore final : public GlooStore {
 public:
  void set(const std::string&, const std::string&) override {}
  std::optional<std::string> get(const std::string&, Deadline) override { return std::nullopt; }
};

/// The value of LOCKSTEP_TRANSPORT.
inline const char* transport_name(Transport transport) {
  return transport == Transport::gloo            ? "gloo"
         : transport == Transport::shared_memory ? "shared_memory"
                                                 : "auto";
}

WorkerJob::WorkerJob(const WorkerOptions& options)
    : virtual_shards_(options.virtual_shards),
      stragglers_(options.stragglers),
      timeout_(options.stall_limits.idle + std::chrono::minutes(1)),
      where_(resolve_cluster(options.environment, options.cluster)) {
  const auto log_notes = [&] {
    for (const std::string& note : where_.notes) log(LogLevel::info, note);
  };
  if (where_.world_size == 1) {
    log_notes();
    return;
  }
  session_ = std::make_unique<JobSession>(where_, options.stall_limits, [&] {
    log_notes();
    return RendezvousOptions{.cluster = where_,
                             .secret = read_secret(options.environment, where_),
                             .stall_limits = options.stall_limits};
  });
  job_ = &session_->rendezvous();
  rank_ = job_->rank();
}

WorkerJob::~WorkerJob() = default;

void WorkerJob::exchange_places(const WorkerPlace& here) {
  if (job_)
    job_->agree("strategy",
                {{"transport", transport_name(where_.transport)},
                 {"virtual shards", std::to_string(virtual_shards_)},
                 {"stragglers", stragglers_ ? "on" : "off"}},
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

void WorkerJob::connect(const Cores& cores, const Spins& spins) {
  const auto emplace = [&](JobGroup::Data layers, JobGroup::Data gradients) {
    layers_.emplace(std::move(layers), timeout_, job_, job_ ? key("secrets of layers") : "");
    gradients_.emplace(std::move(gradients), timeout_, job_,
                       job_ ? key("secrets of gradients") : "");
  };
  if (const std::shared_ptr<SharedMemory> memory = open_shared_memory()) {
    const auto group = [&](std::size_t channel, int polls) {
      return SharedMemoryGroup(memory, {.rank = rank(),
                                        .size = places_.size(),
                                        .channel = channel,
                                        .timeout = timeout_,
                                        .order = order(),
                                        .spins = polls});
    };
    const SharedMemoryGroup layers = group(0, spins.layers), gradients = group(1, spins.gradients);
    emplace(layers, gradients);
    progress_ = [layers, gradients] {
      const ExchangeProgress one = layers.progress(), other = gradients.progress();
      return ExchangeProgress{one.done + other.done,
                              one.waits_for ? one.waits_for : other.waits_for};
    };
    return;
  }
  const std::shared_ptr<GlooMesh> mesh = form_mesh(cores);
  emplace(GlooGroup(mesh, {0, timeout_, order()}), GlooGroup(mesh, {1, timeout_, order()}));
  progress_ = [known = std::weak_ptr(mesh)] {
    const auto its = known.lock();
    return its ? its->progress() : ExchangeProgress{};
  };
}

bool WorkerJob::overlaps(bool mine) {
  if (!job_) return mine;
  const std::string overlap = key("exchange overlaps");
  if (rank() == 0) job_->set(overlap, mine ? "yes" : "no");
  return job_->get(overlap, start_timeout()) == "yes";
}

void WorkerJob::subscribe(std::function<void()> abort) {
  if (!job_) return;
  session_->on_exchange(progress_);
  session_->on_loss([this, abort = std::move(abort)](const PeerLost& loss) {
    if (!waits_) job_->log(LogLevel::error, loss.what());  // the next step throws it, maybe late
    layers_->lose(loss.rank());  // first, since an abort names this process
    gradients_->lose(loss.rank());
    abort();
  });
}

void WorkerJob::leave() {
  if (!job_) return;
  if (std::uncaught_exceptions() > exceptions_) fail("ended by an exception");
  session_->leave();
  unsubscribe();
}

void WorkerJob::fail_and_unsubscribe(const std::string& what) {
  fail(what);  // peers are waiting for this process
  unsubscribe();
}

void WorkerJob::unsubscribe() {
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

std::vector<WorkerPlace> WorkerJob::places_by_rank(const WorkerPlace& here) {
  const auto key_of = [this](std::size_t r) { return key(fmt::format("place/{}", r)); };
  job_->set(key_of(job_->rank()), here.text());
  std::vector<WorkerPlace> result;
  for (std::size_t r = 0; r < job_->size(); ++r) {
    const std::string value = job_->get(key_of(r), start_timeout());
    auto place = WorkerPlace::parse(value);
    if (!place) throw ClusterError("rank {} sent a malformed placement: '{}'", r, value);
    // The boot id alone is not enough: clones of a virtual machine share it, and so do containers.
    const std::string& address = job_->address_of(r);
    place->machine += "@" + address.substr(0, address.rfind(':'));
    result.push_back(*place);
  }
  return result;
}

void WorkerJob::check_shards() const {
  check_virtual_shards(virtual_shards_, total());
  if (virtual_shards_ == 0) return;
  for (std::size_t r = 1; r < counts_.size(); ++r)
    if (counts_[r] != counts_[0])
      throw UsageError(
          "virtual_shards: rank 0 has {} replicas, rank {} {}; give all workers the same number",
          counts_[0], r, counts_[r]);
}

void WorkerJob::log_members() const {
  if (!job_ || job_->rank() != 0 || session_->number() > 0) return;
  std::string table = fmt::format("job of {} workers, {} replicas:", job_->size(), total());
  for (std::size_t r = 0; r < job_->size(); ++r)
    table += fmt::format("\n  {} at {}: {}{}", where_.name(r), job_->address_of(r), counts_[r],
                         counts_[r] == 1 ? " replica" : " replicas");
  log(LogLevel::info, table);
}

std::shared_ptr<SharedMemory> WorkerJob::open_shared_memory() {
  if (!job_ || where_.transport == Transport::gloo) return nullptr;
  std::string reason;
  std::shared_ptr<SharedMemory> memory;
  for (const WorkerPlace& place : places_)
    if (place.machine != places_[0].machine) reason = "the workers run on several machines";
  const bool is_one_machine = reason.empty();
  if (is_one_machine && places_.size() > SharedMemoryGroup::max_size)
    reason = fmt::format("it has at most {} workers", SharedMemoryGroup::max_size);
  if (reason.empty()) reason = share(memory);
  if (reason.empty()) return memory;
  if (where_.transport == Transport::shared_memory) {
    job_->barrier(key("memory is refused"), start_timeout());  // all know it before one leaves
    peers_know_ = true;
    throw ClusterError(
        "LOCKSTEP_TRANSPORT=shared_memory: the workers cannot exchange over shared memory: {}; use "
        "auto or gloo",
        reason);
  }
  if (is_one_machine && rank() == 0)
    log(LogLevel::info, fmt::format("the workers exchange over Gloo: {}", reason));
  return nullptr;
}

std::string WorkerJob::share(std::shared_ptr<SharedMemory>& memory) {
  const SharedMemory::Options options{.bytes = SharedMemoryGroup::bytes(places_.size(), 2),
                                      .heap = SharedMemoryGroup::heap_bytes(places_.size(), 2),
                                      .run{job_->run_id().begin(), job_->run_id().end()},
                                      .name = key("memory"),
                                      .key{job_->key().begin(), job_->key().end()}};
  const auto key_of = [this](std::size_t r) { return key(fmt::format("memory/{}", r)); };
  constexpr std::string_view ok = "ok ";
  const auto report = [&](const auto& f) {
    std::string result;
    try {
      result = std::string(ok) + f();
    } catch (const std::exception& e) {
      result = fmt::format("rank {}: {}", rank(), e.what());
    }
    job_->set(key_of(rank()), result);
  };
  if (rank() == 0)
    report([&] {
      memory = SharedMemory::create(options);
      SharedMemoryGroup::reserve(*memory, rank(), places_.size(), 2);
      return memory->place();
    });
  const std::string place = job_->get(key_of(0), start_timeout());
  if (!place.starts_with(ok)) return place;
  if (rank() > 0)
    report([&] {
      memory = SharedMemory::open(std::string_view(place).substr(ok.size()), options);
      SharedMemoryGroup::reserve(*memory, rank(), places_.size(), 2);
      return std::string();
    });
  for (std::size_t r = 1; r < places_.size(); ++r) {
    const std::string result = job_->get(key_of(r), start_timeout());
    if (!result.starts_with(ok)) return result;
  }
  memory->close_file();
  return {};
}

std::shared_ptr<GlooMesh> WorkerJob::form_mesh(const Cores& cores) {
  GlooMeshOptions options;
  if (!job_) {
    NoStore none;
    return std::make_shared<GlooMesh>(options, none);
  }
  options.rank = job_->rank();
  options.size = job_->size();
  options.address = job_->local_address();
  options.run.assign(job_->run_id().begin(), job_->run_id().end());
  options.key.assign(job_->key().begin(), job_->key().end());
  options.limit = job_->timeouts().mesh;
  options.silence = job_->timeouts().silence;
  options.name = key("gloo");
  if (where_.data_ports) options.ports = {where_.data_ports->first, where_.data_ports->last};
  RendezvousStore store(*session_);
  const CoreScope scope(cores);
  return form_gloo_mesh(options, store);
}

void WorkerJob::throw_cause(const CollectiveError& e) {
  if (!job_) return;
  if (const auto* link = dynamic_cast<const LinkFailed*>(&e)) throw job_->blame(*link);
  if (dynamic_cast<const CollectiveAborted*>(&e))
    if (const auto loss = job_->verdict(job_->verdict_timeout())) throw *loss;
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
