#pragma once

#include "lockstep/cluster/elastic/elastic_core.hpp"

#include <algorithm>
#include <random>
#include <span>
#include <utility>

#include "lockstep/cluster/description/environment.hpp"
#include "lockstep/cluster/network/file_limit.hpp"
#include "lockstep/cluster/rendezvous/control.hpp"
#include "lockstep/cluster/rendezvous/signature.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/sha256.hpp"
#include "lockstep/core/process/threads.hpp"
#include "lockstep/core/quote.hpp"
#include "lockstep/core/version.hpp"

namespace lockstep::detail {

/// \throws UsageError if the description does not suffice for an elastic job.
/// The tasks of the description, by index.
inline DescribedTasks tasks_of(const ResolvedCluster& described) {
  if (!described.cluster || described.cluster->hosts(TaskType::ps).empty()) return {};
  return {described.cluster->ranks(TaskType::worker), described.cluster->ranks(TaskType::ps)};
}

inline ResolvedCluster checked_description(const ResolvedCluster& described,
                                           const ElasticSettings& settings) {
  if (!described.cluster || !described.rank)
    throw UsageError(
        "elastic: the description of the job ({}) does not have the addresses of all workers and "
        "the index of this one; describe it by TF_CONFIG, or by a cluster file and a task",
        described.source);
  if (described.world_size > max_elastic_workers)
    throw UsageError("elastic: the job has {} workers; an elastic job has at most {}",
                     described.world_size, max_elastic_workers);
  const std::size_t least = settings.options.min_workers;
  const DescribedTasks tasks = tasks_of(described);
  const std::size_t most = tasks.servers.count > 0 ? tasks.workers.count : described.world_size;
  if (least < 1 || least > most)
    throw UsageError(
        "elastic: min_workers (in the program, or LOCKSTEP_MIN_WORKERS) is {}; it must be from 1 to "
        "{}, the number of workers",
        least, most);
  return described;
}

inline std::string digest_of(const std::string& text) {
  return sha256_hex(std::as_bytes(std::span(text)));
}

inline std::string base_job_id(const ResolvedCluster& described) {
  return described.job_id.empty() ? digest_of(described.description()) : described.job_id;
}

/// The first message of a connection: the process and its settings.
inline Hello make_hello(const ResolvedCluster& described, const ElasticSettings& settings) {
  check_join_fields(settings.fields);
  const std::size_t rank = *described.rank;
  Hello hello{"elastic " + base_job_id(described), true, static_cast<std::uint32_t>(rank), {}};
  const ClusterTimeouts timeouts = complete_timeouts(described.timeouts, described.world_size);
  hello.fields = {{"protocol", "lockstep elastic/1"},
                  {"lockstep's version", LOCKSTEP_VERSION},
                  {"cluster", digest_of(described.description())},
                  {"min_workers", std::to_string(settings.options.min_workers)},
                  {"silence timeout", format_text("{} ms", timeouts.silence.count())}};
  for (const auto& [name, value] : settings.fields)
    hello.fields.emplace_back(
        name, value.size() <= max_join_value_bytes ? value : "sha256 " + digest_of(value));
  return hello;
}

inline std::uint64_t random_number() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

ElasticCore::ElasticCore(const ResolvedCluster& description, const Secret& secret,
                         ElasticSettings chosen)
    : described(checked_description(description, chosen)),
      settings(std::move(chosen)),
      timeouts(complete_timeouts(described.timeouts, described.world_size)),
      folder(votes_directory(settings.options)),
      votes(folder),
      log_thread([](LogLevel level, std::string_view line) { lockstep::log(level, line); }),
      links(io, described, secret, make_hello(described, settings), timeouts.silence,
            {.letter =
                 [this](const Letter& letter) {
                   act([&] { participant.receive(letter, Clock::now()); });
                 },
             .refused =
                 [this](std::size_t index) {
                   act([&] { participant.refused(index, Clock::now()); });
                 },
             .disconnected =
                 [this](std::size_t index) {
                   act([&] { participant.disconnected(index, Clock::now()); });
                 },
             .differs =
                 [this](std::size_t index, const std::string& sentence) {
                   act([&] { participant.differs(index, sentence); });
                 },
             .log = [this](LogLevel level, std::string_view line) { log(level, line); }}),
      participant({static_cast<std::uint32_t>(*described.rank), random_number()}, folder.id(),
                  {.described = described.world_size,
                   .seats = {.min_workers = settings.options.min_workers,
                             .fits = settings.fits,
                             .tasks = tasks_of(described)},
                   .silence = timeouts.silence,
                   .patience = described.rendezvous_timeout,
                   .random = random_number,
                   .port = [this] { return links.reserve_port(); }},
                  votes) {
  raise_file_limit();
  check_file_limit(
      2 * described.world_size,
      format_text("elastic: the connections of a job of {} workers", described.world_size));
  // A name in DNS or /etc/hosts is found in a moment; the thread waits for others.
  constexpr milliseconds lookup_limit{250}, lookup_pause{1};
  auto fault = links.listen();
  while (fault && fault->may_pass && Clock::now() - made < lookup_limit) {
    std::this_thread::sleep_for(lookup_pause);
    fault = links.listen();
  }
  if (fault && !fault->may_pass) throw ClusterError("{}", fault->sentence);
  thread = start_thread("elastic", [this] { run(); });
  detail::post(io, [this] { tick(); });
}

ElasticCore::~ElasticCore() {
  leave();
  detail::post(io, [this] {
    links.close();
    io.stop();
  });
  thread.join();
}

template <class Action>
void ElasticCore::act(Action action) {
  try {
    action();
  } catch (...) {
    publish_error(std::current_exception());
  }
  publish();
}

void ElasticCore::tick() {
  const auto now = Clock::now();
  links.tick(now);
  if (try_listen(now)) {
    if (const auto start = std::exchange(held_back, nullptr)) act(start);
    act([&] { participant.tick(now); });
  }
  // Index 0 goes on waiting, as a chief does.
  if (*described.rank != 0 && participant.waits_for(now))
    if (const std::string* const sentence = links.secret_fault(true)) end_join(*sentence);
  log_wait(now);
  log_missing(now);
  ticker.after(participant.pace(), [this] { tick(); });
}

void ElasticCore::log_wait(Clock::time_point now) {
  if (!participant.waits_for_admission(now)) {
    wait_logged = now;
    return;
  }
  if (now - wait_logged < wait_log_interval) return;
  wait_logged = now;
  log(LogLevel::info,
      "elastic: the job runs, and this worker waits until it is admitted: between two steps of "
      "fit, if the job has a place for it and trains with that number of workers");
}

bool ElasticCore::try_listen(Clock::time_point now) {
  if (links.listening()) return true;
  const auto fault = links.listen();
  if (!fault) return true;
  const bool is_late = now - made >= described.rendezvous_timeout;
  if (fault->may_pass && !is_late) {
    if (std::exchange(last_error, fault->sentence) != fault->sentence)
      log(LogLevel::warning, fault->sentence + "; retrying until the join deadline");
    return false;
  }
  end_join(fault->sentence);
  return false;
}

void ElasticCore::end_join(const std::string& sentence) {
  const std::scoped_lock lock(mutex);
  result = std::make_exception_ptr(ClusterError("{}", sentence));
  changed.notify_all();
}

void ElasticCore::log_missing(Clock::time_point now) {
  const auto waiting = links.listening() ? participant.waits_for(now) : std::nullopt;
  if (!waiting || waiting->count == 0) {
    if (!held_back) missing_logged = now;
    return;
  }
  if (now - missing_logged < missing_log_interval) return;
  missing_logged = now;
  std::string names;
  for (const std::uint32_t index : waiting->listed) {
    names += (names.empty() ? "" : ", ") + described.name(index);
    if (const std::string& fault = links.fault(index); !fault.empty())
      names += " (" + printable(fault, 200) + ")";
  }
  if (waiting->count > waiting->listed.size())
    names += format_text(" and {} more", waiting->count - waiting->listed.size());
  log(LogLevel::info,
      format_text("elastic: waiting for {}: {} of {}", names, seconds(participant.waited(now)),
                  seconds(described.rendezvous_timeout)));
}

void ElasticCore::publish() {
  for (const Outgoing& outgoing : participant.take_outgoing())
    links.send(outgoing.to, outgoing.letter);
  has_newcomers.store(participant.has_newcomers(), std::memory_order_relaxed);
  if (!must_reform.exchange(participant.must_reform()) && participant.must_reform()) {
    const std::scoped_lock lock(callback_mutex);
    if (callback) callback();
  }
  if (auto outcome = participant.take_outcome()) {
    if (const auto* const decided = std::get_if<Decision>(&*outcome))
      links.hand_over_port(decided->rank_of(participant.self()) == std::size_t{0} ? decided->port
                                                                                  : 0);
    const std::scoped_lock lock(mutex);
    const auto* const failure = std::get_if<ElasticFailure>(&*outcome);
    if (failure && failure->kind == ElasticFailure::Kind::missing) {
      const std::string* const fault = links.secret_fault(false);
      secret_fault = fault ? *fault : std::string();
      link_fault = links.fault(failure->rank);
    }
    if (auto* const decision = std::get_if<Decision>(&*outcome))
      result = std::move(*decision);
    else
      result = std::move(std::get<ElasticFailure>(*outcome));
    former = participant.former();
    current = participant.decision();
    changed.notify_all();
  }
}

void ElasticCore::publish_error(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    if (std::exchange(last_error, e.what()) != e.what()) log(LogLevel::error, e.what());
  }
  if (!participant.waits()) return;  // asked for a vote, which it does not give
  const std::scoped_lock lock(mutex);
  result = std::move(error);
  changed.notify_all();
}

void ElasticCore::log(LogLevel level, std::string_view line) { log_thread.log(level, line); }

Generation ElasticCore::wait(std::function<void()> start, std::optional<milliseconds> limit,
                             const std::stop_token& stop, milliseconds patience) {
  std::unique_lock lock(mutex);
  result.reset();
  detail::post(io, [this, start = std::move(start)] {
    if (links.listening())
      act(start);
    else
      held_back = start;
    ticker.after(participant.pace(), [this] { tick(); });
  });
  const auto done = [this] { return result.has_value(); };
  constexpr std::chrono::hours no_limit(24 * 365);
  const auto until = Clock::now() + limit.value_or(no_limit);
  const bool is_asked = !changed.wait_until(lock, stop, until, done) && stop.stop_requested();
  if (is_asked) changed.wait_until(lock, std::min(until, Clock::now() + patience), done);
  if (done()) {
    if (auto* const failure = std::get_if<ElasticFailure>(&*result)) throw_failure(*failure);
    if (auto* const decision = std::get_if<Decision>(&*result)) return generation(*decision);
  }
  const auto error =
      done() ? std::get<std::exception_ptr>(*result)
      : is_asked
          ? std::make_exception_ptr(PeerLost(
                *described.rank, to_string(described.cluster->address(*described.rank)),
                "was asked to stop while it waited for other workers, and has left the job", {}))
          : std::make_exception_ptr(
                Error("elastic: the agreement on the next generation did not end in time"));
  lock.unlock();
  leave();  // the others must not wait for this process, which answers but cannot go on
  std::rethrow_exception(error);
}

Generation ElasticCore::generation(const Decision& decision) {
  Generation now;
  now.number = decision.number;
  ResolvedCluster& cluster = now.cluster = described;
  const auto address = [&](std::size_t rank) -> const HostPort& {
    return described.cluster->address(decision.seats[rank].who.index);
  };
  cluster.job_id =
      format_text("{}/{}-{:016x}", base_job_id(described), decision.number, decision.nonce);
  cluster.world_size = decision.seats.size();
  cluster.chief = HostPort{address(0).host, decision.port};
  if (cluster.bind) cluster.bind->port.reset();
  if (decision.number > 0) {
    ClusterSpec spec;
    for (std::size_t r = 0; r < decision.seats.size(); ++r) spec.worker(to_string(address(r)));
    cluster.cluster = std::move(spec);
  }
  if (const DescribedTasks tasks = tasks_of(described); tasks.servers.count > 0)
    cluster.tasks = {tasks.ranks_of(SeatRole::worker, decision.seats),
                     tasks.ranks_of(SeatRole::server, decision.seats)};
  // All members are there: one that does not come was lost in this moment.
  const auto margin = decision.number > 0 ? milliseconds(1000) : milliseconds(8000);
  const milliseconds each(20);
  cluster.rendezvous_timeout =
      std::min(described.rendezvous_timeout,
               timeouts.silence + margin + each * static_cast<int>(decision.seats.size()));
  for (std::size_t r = 0; r < decision.seats.size(); ++r) {
    const bool is_new = decision.seats[r].former == Seat::newcomer;
    now.is_new.push_back(is_new);
    now.former.push_back(is_new ? r : std::size_t{former[r]});
    if (decision.seats[r].who.index == *described.rank) cluster.rank = r;
    now.is_one_machine =
        now.is_one_machine && decision.seats[r].machine == decision.seats[0].machine;
  }
  cluster.notes.clear();
  const auto added = std::count(now.is_new.begin(), now.is_new.end(), true);
  if (cluster.rank == std::size_t{0} && decision.number > 0)
    log(LogLevel::info, format_text("elastic: generation {} has {}{}{}{}", decision.number,
                                    describe_members(cluster),
                                    added > 0 ? format_text(", {} of them new", added) : "",
                                    why.empty() ? "" : ": ", why));
  return now;
}

void ElasticCore::throw_failure(const ElasticFailure& failure) {
  using Kind = ElasticFailure::Kind;
  const Decision& decision = current;
  const bool is_index = failure.kind == Kind::missing || failure.kind == Kind::not_admitted ||
                        failure.kind == Kind::refused;
  const std::size_t index = is_index || failure.rank >= decision.seats.size()
                                ? failure.rank
                                : decision.seats[failure.rank].who.index;
  const std::string address = to_string(described.cluster->address(index));
  const std::string limit = seconds(described.rendezvous_timeout);
  switch (failure.kind) {
    case Kind::missing:
      if (!secret_fault.empty()) throw ClusterError("{}", secret_fault);
      throw PeerLost(
          index, address,
          format_text("did not join within {}{}{}", limit,
                      link_fault.empty() ? "" : ": " + printable(link_fault, 200), late_remedy),
          {});
    case Kind::no_quorum:
      throw PeerLost(
          failure.rank, address,
          "is lost, and this worker cannot reach a quorum of the last generation (more than "
          "half of it, or half with the machine of its rank 0); if the others have one "
          "they go on, else start the job again from its checkpoint",
          {});
    case Kind::too_few:
      throw PeerLost(failure.rank, address,
                     format_text("is lost, and within {} too few workers came back; min_workers is "
                                 "{}: start lost workers again, or raise "
                                 "LOCKSTEP_RENDEZVOUS_TIMEOUT",
                                 limit, settings.options.min_workers),
                     {});
    case Kind::no_vote:
      throw PeerLost(failure.rank, address,
                     format_text("cannot vote for its machine: another process holds the lock of "
                                 "{}, and may be stopped; continue it (SIGCONT) or kill it",
                                 failure.sentence),
                     {});
    case Kind::no_agreement:
      throw PeerLost(failure.rank, address,
                     format_text("answers, but did not end the generation within {}; raise "
                                 "LOCKSTEP_RENDEZVOUS_TIMEOUT if a callback takes longer",
                                 limit),
                     {});
    case Kind::left_out:
      throw PeerLost(failure.rank, address,
                     "did not answer in time, and the others have gone on without this process; "
                     "start it again, and it joins as a new worker",
                     {});
    case Kind::not_admitted:
      throw PeerLost(index, address, printable(failure.sentence, 2000), {});
    case Kind::refused:
      break;
  }
  throw ClusterError("{}", printable(failure.sentence, 2000));
}

void ElasticCore::leave() {
  constexpr milliseconds limit{250}, overdue{1000};
  std::unique_lock lock(mutex);
  if (!std::exchange(left_posted, true))
    detail::post(io, [this, until = Clock::now() + limit] {
      participant.leave();
      publish();
      votes.leave();
      ticker.cancel();
      links.finish();
      wait_closed(until);
    });
  changed.wait_for(lock, overdue, [this] { return left; });
}

void ElasticCore::wait_closed(Clock::time_point until) {
  if (!links.finished() && Clock::now() < until)
    return end.after(milliseconds(2), [this, until] { wait_closed(until); });
  links.close();
  const std::scoped_lock lock(mutex);
  left = true;
  changed.notify_all();
}

void ElasticCore::run() {
  for (bool ended = false; !ended;) {
    try {
      io.run();
      ended = true;
    } catch (...) {
      publish_error(std::current_exception());
    }
  }
}

}  // namespace lockstep::detail
