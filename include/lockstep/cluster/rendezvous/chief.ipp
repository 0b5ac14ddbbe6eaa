#pragma once

#include "lockstep/cluster/rendezvous/chief.hpp"

#include <openssl/rand.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "lockstep/cluster/network/data_address.hpp"
#include "lockstep/cluster/network/file_limit.hpp"
#include "lockstep/cluster/rendezvous/chief_address.hpp"
#include "lockstep/cluster/rendezvous/signature.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

Chief::Chief(asio::io_context& io, Control& control, const ProgressBoard& board,
             const JoinSetup& setup, PskContext* psk)
    : control_(control),
      board_(board),
      setup_(setup),
      listener_(
          io, psk, setup.timeouts.silence, SourceAllowlist(setup.cluster, psk != nullptr),
          [this](const std::shared_ptr<Connection>& c, const Hello& hello) { admit(c, hello); },
          [this](std::string_view line) { setup_.log(LogLevel::warning, line); }),
      store_(
          setup.cluster.world_size,
          [this](std::size_t rank, Reply reply) { answer(rank, std::move(reply)); },
          [this](std::size_t rank) { return name(rank); }),
      is_secured_(psk != nullptr),
      members_(setup),
      lookup_(setup.cluster.chief ? listening_address(setup.cluster) : HostPort{}),
      ticker_(io),
      store_timer_(io),
      join_timer_(io),
      judge_timer_(io) {}

void Chief::begin() {
  listener_.expect_peers(members_.size());
  join_started_at_ = next_log_ = Clock::now();
  next_log_ += join_log_interval;
  if (members_.size() == 1) start();
  tick();
  if (members_.size() == 1) return;
  listen();
}

void Chief::leave() {
  members_[0].state.left = true;
  declare_lost_if_awaited(0);
  notify_all_left();
}

void Chief::shut_down() {
  listener_.stop();
  const auto cause = control_.verdict();
  for (Member& member : members_) {
    if (!member.link) continue;
    send_heartbeat(member);
    member.link->send(frame(Leave{cause}));
    member.link->finish_sending();
  }
  for (const UnrankedWorker& worker : members_.unranked()) worker.link->finish_sending();
  shutting_down_ = true;
  check_shut_down();
}

void Chief::abort() {
  listener_.close();
  members_.close_all();
  ticker_.cancel();
  join_timer_.cancel();
}

void Chief::listen() {
  const auto& found = lookup_.poll(Clock::now());
  std::optional<ListenFault> fault;
  if (!found)
    fault = ListenFault{
        format_text("{}: its host name has not been resolved yet", chief_place(setup_)), true};
  else
    fault = listen_at(listener_, *found, setup_, is_secured_);
  if (!fault) {
    address_family_ = listener_.listens_by_ipv4() ? tcp::v4() : tcp::v6();
    return;
  }
  // Only a new DNS answer can help; a port in use, for example, is an error at once.
  if (!fault->may_pass) return abort_join(fault->sentence, true);
  if (found && listen_fault_ != fault->sentence)
    log(LogLevel::warning, fault->sentence + "; retrying until the join deadline");
  listen_fault_ = fault->sentence;
  join_timer_.after(found ? milliseconds(50) : milliseconds(5), [this] {
    if (!control_.ended()) listen();
  });
}

void Chief::abort_join(const std::string& sentence, bool is_listen_fault) {
  for (Member& member : members_) {
    if (!member.link) continue;
    listener_.send_and_close(member.link, frame(Refuse{sentence}));
    member.link.reset();
  }
  for (const UnrankedWorker& worker : std::exchange(members_.unranked(), {}))
    listener_.send_and_close(worker.link, frame(Refuse{sentence}));
  control_.set_join_error(is_listen_fault ? std::make_exception_ptr(ListenError(sentence))
                                          : std::make_exception_ptr(ClusterError(sentence)));
}

void Chief::admit(const std::shared_ptr<Connection>& link, const Hello& hello) {
  const std::string source = Listener::source_of(*link);
  const bool any = hello.rank == Hello::any_rank;
  const bool known = !any && hello.rank < members_.size();
  const std::string peer = known ? format_text("rank {} ({})", hello.rank, source)
                           : any ? format_text("a worker ({})", source)
                                 : format_text("a worker ({}) of rank {}", source, hello.rank);
  const auto refuse = [&](const std::string& sentence, Refuse::Reason reason = {}) {
    listener_.log_source(source, "was refused: " + printable(sentence), Clock::now());
    listener_.send_and_close(link, frame(Refuse{sentence, reason}));
    if (started_ || (known && members_[hello.rank].link)) return;
    auto& note = known ? members_[hello.rank].note : refusal_;
    note = format_text("a process from {} was refused: {}", source, sentence);
  };
  const auto put_off = [&](const char* reason) {
    listener_.send_and_close(link, frame(RetryLater{reason}));
  };
  if (control_.ended()) return put_off("its job has failed");
  // A rank that has left and connects again belongs to the next job of the same processes: it
  // retries until that job listens.
  if (started_ && (known ? members_[hello.rank].state.left : members_.any_left()))
    return put_off("its previous job has not ended yet");
  const bool given = !setup_.cluster.job_id.empty();
  if ((given || hello.job_id_given) && hello.job_id != setup_.job_id)
    return refuse(
        format_text(
            "{} belongs to the job {}, but the chief runs the job {}; give all ranks of a job the same "
            "LOCKSTEP_JOB_ID, and each job on a machine its own port",
            peer, quote(hello.job_id), quote(setup_.job_id)),
        Refuse::Reason::other_job);
  const auto differs =
      difference("join", setup_.cluster.name(0), setup_.fields, peer, hello.fields);
  // It may be a process of an earlier run, even with this job's id, so it must not end the job. If
  // no other process joins as that rank, the message at the deadline names the difference.
  if (differs) return refuse(*differs);
  if (link->remote().protocol() != address_family_) return redirect_address_family(link, hello);
  if (const auto fault = data_fault(link, hello, peer)) return refuse(*fault);
  if (!any && !known)
    return refuse(format_text("{} is outside this job of {} ranks", peer, members_.size()));
  if (any) {
    if (started_ || members_.missing_count() == 0)
      return refuse(
          format_text("{} is one too many: all {} ranks have joined", peer, members_.size()));
    members_.unranked().push_back({link, hello.data_address});
  } else {
    Member& member = members_[hello.rank];
    if (hello.rank == 0 || started_ || member.link) {
      const std::string holder = hello.rank == 0 ? "the chief itself" : member.address;
      return refuse(format_text(
          "{} claims a rank that {} already has: it was assigned to {}; give each process its own "
          "rank",
          peer, name(hello.rank), holder));
    }
    members_[hello.rank].data_address = hello.data_address;
    assign_rank(link, hello.rank);
  }
  if (any) queue_unranked(link);
  if (members_.missing_count() == 0) start();
}

void Chief::redirect_address_family(const std::shared_ptr<Connection>& link, const Hello& hello) {
  const bool ipv4 = address_family_ == tcp::v4();
  const std::string reason = format_text("it connected over {}, but this job uses {}",
                                         ipv4 ? "IPv6" : "IPv4", ipv4 ? "IPv4" : "IPv6");
  listener_.send_and_close(link, frame(RetryLater{reason, ipv4 ? RetryLater::AddressFamily::ipv4
                                                               : RetryLater::AddressFamily::ipv6}));
  if (!started_ && hello.rank < members_.size() && !members_[hello.rank].link)
    members_[hello.rank].note = format_text("from {} {}", Listener::source_of(*link), reason);
}

std::optional<std::string> Chief::data_fault(const std::shared_ptr<Connection>& link,
                                             const Hello& hello, const std::string& peer) const {
  asio::error_code wrong;
  const auto theirs = hello.data_address.empty()
                          ? link->remote().address()
                          : asio::ip::make_address(hello.data_address, wrong);
  if (wrong) return peer + " has a data address that is not an address";
  const auto& given = setup_.cluster.data_address;
  const bool ipv4 = given ? asio::ip::make_address(*given).is_v4() : address_family_ == tcp::v4();
  if (theirs.is_v4() == ipv4) return std::nullopt;
  return format_text(
      "{} would exchange data at {} ({}), but the chief exchanges data over {}; set "
      "LOCKSTEP_DATA_ADDRESS, or LOCKSTEP_INTERFACE, on all ranks to addresses of one family",
      peer, theirs.to_string(), address_family_name(theirs), ipv4 ? "IPv4" : "IPv6");
}

void Chief::queue_unranked(const std::shared_ptr<Connection>& link) {
  const std::weak_ptr<Connection> weak = link;
  link->set_handlers(
      [](FrameType, std::string_view) {},
      [this, weak](const std::string&) {
        members_.unranked().remove_if(
            [link = weak.lock()](const UnrankedWorker& worker) { return worker.link == link; });
      });
  link->send(frame(members_.missing_ranks()));
}

void Chief::assign_rank(const std::shared_ptr<Connection>& link, std::size_t rank) {
  Member& member = members_[rank];
  member.link = link;
  const tcp::endpoint remote = link->remote();
  member.address = to_string(HostPort{remote.address().to_string(), remote.port()});
  member.last_heard = Clock::now();
  link->set_handlers(
      [this, rank](FrameType type, std::string_view body) { on_frame(rank, type, body); },
      [this, rank](const std::string& how) { on_disconnect(rank, how); });
  if (!started_) link->send(frame(members_.missing_ranks()));
}

void Chief::check_join(Clock::time_point now) {
  const MissingRanks missing = members_.missing_ranks();
  const milliseconds waited = whole_milliseconds(now - join_started_at_);
  const milliseconds deadline = setup_.cluster.rendezvous_timeout;
  if (waited >= deadline && !listener_.listening())
    return abort_join(format_text("{} (retried for {})", listen_fault_, seconds(deadline)), true);
  if (waited >= deadline && listener_.out_of_files())
    return declare_lost(0, "cannot accept more connections: " + files_sentence());
  if (waited >= deadline) {
    std::string how = "did not join within " + seconds(deadline);
    const std::string& note = members_[missing.first].note;
    if (missing.count > 1)
      how += "; missing: " + missing.names;
    else if (!note.empty())
      how += ": " + printable(note);
    if (note.empty() && !refusal_.empty()) how += "; " + printable(refusal_);
    return declare_lost(missing.first, how + late_remedy);
  }
  if (now >= next_log_) {
    next_log_ += join_log_interval;
    log(LogLevel::info,
        format_text("waiting for {}: {} of {}", missing.names, seconds(waited), seconds(deadline)));
  }
  members_.send_to_all(frame(missing));
}

void Chief::start() {
  started_ = true;
  // Workers with index "auto" get the free ranks in the order of their arrival.
  for (std::size_t r = 1; r < members_.size() && !members_.unranked().empty(); ++r) {
    if (members_[r].link) continue;
    const UnrankedWorker worker = std::move(members_.unranked().front());
    members_.unranked().pop_front();
    members_[r].data_address = worker.data_address;
    assign_rank(worker.link, r);
  }
  const auto data = decide_data_addresses();
  if (!data) return;
  Membership membership;
  membership.addresses.resize(members_.size());
  if (RAND_bytes(membership.run_id.data(), static_cast<int>(membership.run_id.size())) != 1 ||
      RAND_bytes(membership.key.data(), static_cast<int>(membership.key.size())) != 1)
    return abort_join("the chief cannot generate random bytes: OpenSSL's generator failed");
  for (std::size_t r = 0; r < members_.size(); ++r) {
    const std::string described = setup_.described_address(r);
    if (!described.empty()) members_[r].address = described;
    membership.addresses[r] = members_[r].address;
  }
  membership.local_address = (*data)[0];
  // The addresses of a large job do not fit into one frame.
  constexpr std::size_t portion = 128;
  for (std::size_t r = 1; r < members_.size(); ++r) {
    for (std::size_t first = 0; first < members_.size(); first += portion) {
      const auto begin = membership.addresses.begin();
      const std::size_t last = std::min(first + portion, members_.size());
      members_[r].link->send(frame(Peers{static_cast<std::uint32_t>(first),
                                         {begin + static_cast<std::ptrdiff_t>(first),
                                          begin + static_cast<std::ptrdiff_t>(last)}}));
    }
    members_[r].link->send(
        frame(Start{static_cast<std::uint32_t>(r), membership.run_id, membership.key, (*data)[r]}));
  }
  control_.set_joined(std::move(membership));
}

std::optional<std::vector<std::string>> Chief::decide_data_addresses() {
  std::vector<DataPlace> places(members_.size());
  places[0].given = setup_.cluster.data_address.value_or("");
  for (std::size_t r = 1; r < members_.size(); ++r)
    places[r] = {members_[r].data_address, members_[r].link->local().address(),
                 members_[r].link->remote().address()};
  auto addresses = data_addresses(places);
  if (const auto shared = find_shared_address(places, addresses))
    log(LogLevel::warning,
        format_text(
            "{} and {} would both exchange data at {}, but the latter connects from {}, so "
            "addresses are translated between them (NAT, published ports of containers); set LOCKSTEP_BIND=0.0.0.0 "
            "and LOCKSTEP_DATA_ADDRESS on each to the address at which the others reach it",
            name(shared->first), name(shared->second), addresses[shared->second],
            places[shared->second].member_end.to_string()));
  const auto fault = find_unreachable(places, addresses);
  if (!fault) return addresses;
  abort_join(format_text(
      "{} would exchange data at a loopback address, which {} on another machine cannot reach; set "
      "LOCKSTEP_DATA_ADDRESS to an address that all reach, or unset it",
      name(fault->near), name(fault->far)));
  return std::nullopt;
}

void Chief::on_frame(std::size_t rank, FrameType type, std::string_view body) {
  Member& member = members_[rank];
  member.last_heard = Clock::now();
  const auto act = [&](auto message, auto action) {
    if (message)
      action(std::move(*message));
    else
      disconnect(rank, "sent a corrupt message");
  };
  switch (type) {
    case FrameType::heartbeat:
      return act(parse<Heartbeat>(body), [&](const Heartbeat& heartbeat) {
        member.state.progress = heartbeat.progress;
        member.state.stalled_for = heartbeat.stalled_for;
        member.state.exchange = heartbeat.exchange;
        member.round_trip.update(heartbeat.stamps, member.last_heard, setup_.timeouts.silence);
      });
    case FrameType::request:
      return act(parse<Request>(body), [&](Request request) { handle(rank, std::move(request)); });
    case FrameType::accuse:
      return act(parse<Accuse>(body), [&](const Accuse& a) { add_accusation(rank, a); });
    case FrameType::failure:
      return act(parse<FailureReport>(body), [&](const FailureReport& f) {
        declare_lost(rank, "failed: " + printable(f.what));
      });
    case FrameType::leave:
      return act(parse<Leave>(body), [&](Leave leave) {
        member.state.left = true;
        if (leave.cause && leave.cause->rank < members_.size())
          declare_lost(leave.cause->rank, printable(leave.cause->how));
        declare_lost_if_awaited(rank);
        notify_all_left();
      });
    default:
      disconnect(rank, "sent a message that a chief does not accept");
  }
}

void Chief::disconnect(std::size_t rank, const std::string& how) {
  members_[rank].link->close();
  on_disconnect(rank, how);
}

void Chief::on_disconnect(std::size_t rank, const std::string& how) {
  Member& member = members_[rank];
  if (shutting_down_) return check_shut_down();
  if (!started_) {
    member.link.reset();
    member.note = format_text("it connected from {}, but {}", member.address, how);
    log(LogLevel::info, format_text("{} {} before the start; it may reconnect", name(rank), how));
  } else if (!member.state.left) {
    declare_lost(rank, how);
  }
}

void Chief::declare_lost(std::size_t rank, const std::string& how) {
  const WorkerProgress own = board_.read();
  LostPeer loss{static_cast<std::uint32_t>(rank), members_[rank].address, how, {}};
  if (loss.address.empty()) loss.address = setup_.described_address(rank);
  if (own.step > 0) loss.last_step = own.step - 1;
  if (!control_.declare_lost(loss)) return;
  members_.send_to_all(frame(loss));
  control_.announce();
}

void Chief::answer(std::size_t rank, Reply reply) {
  if (rank == 0) return control_.set_reply(std::move(reply));
  if (members_[rank].link) members_[rank].link->send(frame(reply));
}

void Chief::handle(std::size_t rank, Request request) {
  store_.handle(rank, std::move(request), Clock::now());
  for (std::size_t r = 0; r < members_.size(); ++r)
    if (members_[r].state.left) declare_lost_if_awaited(r);
  schedule_store_expiry();
}

void Chief::schedule_store_expiry() {
  const auto deadline = store_.next_deadline();
  if (!deadline) return;
  store_timer_.at(*deadline, [this] {
    store_.expire(Clock::now());
    schedule_store_expiry();
  });
}

void Chief::declare_lost_if_awaited(std::size_t rank) {
  if (store_.awaited(rank)) declare_lost(rank, how_left(rank));
}

std::string Chief::how_left(std::size_t rank) const {
  const WorkerProgress progress = rank == 0 ? board_.read() : members_[rank].state.progress;
  if (progress == WorkerProgress{}) return "left";
  return format_text("left after step {}", progress.step);
}

bool Chief::is_explained_by_leave(const Accuse& accuse) const {
  return members_[accuse.rank].state.left && !accuse.names_link();
}

void Chief::add_accusation(std::size_t accuser, const Accuse& of) {
  if (of.rank >= members_.size() || control_.ended()) return;
  if (of.names_link() && (of.other >= members_.size() || of.other == of.rank)) return;
  if (is_explained_by_leave(of)) return declare_lost(of.rank, how_left(of.rank));
  accusations_.push_back({accuser, of});
  // The first accusation has armed the timer.
  if (accusations_.size() > 1) return;
  accused_at_ = Clock::now();
  judge_after(setup_.timeouts.verdict / 2 + members_.longest_round_trip());
}

void Chief::judge_after(Clock::duration time) {
  judge_timer_.after(time, [this] {
    if (!control_.ended()) judge();
  });
}

void Chief::judge() {
  const auto accusers_of = [this](std::size_t rank) {
    std::set<std::size_t> accusers;
    for (const Accusation& a : accusations_)
      if (a.of.rank == rank) accusers.insert(a.accuser);
    return accusers.size();
  };
  auto worst = std::max_element(accusations_.begin(), accusations_.end(),
                                [&](const Accusation& a, const Accusation& b) {
                                  return accusers_of(a.of.rank) < accusers_of(b.of.rank);
                                });
  // Of two that accuse each other the higher one, so that an elastic job keeps its chief.
  const std::size_t rank = worst->of.rank;
  const auto counter =
      std::find_if(accusations_.begin(), accusations_.end(), [&](const Accusation& a) {
        return a.accuser == rank && a.of.rank > rank &&
               accusers_of(a.of.rank) == accusers_of(rank) &&
               std::any_of(accusations_.begin(), accusations_.end(), [&](const Accusation& b) {
                 return b.accuser == a.of.rank && b.of.rank == rank;
               });
      });
  if (counter != accusations_.end() && !is_explained_by_leave(worst->of)) worst = counter;
  const Accuse& of = worst->of;
  if (is_explained_by_leave(of)) return declare_lost(of.rank, how_left(of.rank));
  if (!of.names_link())
    return declare_lost(of.rank, format_text("does not answer: its exchange with {} failed: {}",
                                             name(worst->accuser), printable(of.how, 200)));
  // A heartbeat since the accusation proves that an end is alive. If none arrives, that rank is
  // lost through its silence, and the link is innocent.
  for (const std::size_t end : {of.rank, of.other})
    if (end != 0 && !members_[end].state.left && members_[end].last_heard <= accused_at_)
      return judge_after(milliseconds(50));
  const auto [low, high] = std::minmax({std::size_t{of.rank}, std::size_t{of.other}});
  declare_lost(high, link_failure(name(low), printable(of.how, 200)));
}

void Chief::tick() {
  const auto now = Clock::now();
  const bool on_time = wakeups_.on_time(now);
  const ExchangeProgress exchange = control_.exchange();
  stall_timer_.poll(board_, exchange, now, on_time);
  members_[0].state = {board_.read(), stall_timer_.stalled_for(), members_[0].state.left, exchange};
  listener_.tick(now);
  for (std::size_t r = 1; r < members_.size(); ++r) {
    Member& member = members_[r];
    if (!member.link || !member.link->open()) continue;
    // This thread was late, so heartbeats may wait unread: grant every member a new period.
    if (!on_time) member.last_heard = now;
    if (!member.state.left && now - member.last_heard >= setup_.timeouts.silence &&
        !control_.ended()) {
      const std::string how = format_text("was silent for {}", seconds(setup_.timeouts.silence));
      if (started_)
        declare_lost(r, how);
      else
        disconnect(r, how);
    }
    if (member.link) send_heartbeat(member);
  }
  control_.note_round_trip(members_.longest_round_trip());
  if (!control_.ended()) {
    if (started_)
      check_stall(now);
    else
      check_join(now);
  }
  if (shutting_down_) check_shut_down();
  ticker_.after(heartbeat_interval, [this] { tick(); });
}

void Chief::send_heartbeat(Member& member) {
  const auto stamps = member.round_trip.stamps(Clock::now(), members_.longest_round_trip());
  member.link->send(
      frame(Heartbeat{members_[0].state.progress, members_[0].state.stalled_for, {}, stamps}));
}

void Chief::check_stall(Clock::time_point now) {
  std::vector<RankState> states;
  for (const Member& member : members_) states.push_back(member.state);
  const auto straggler = find_straggler(states, setup_.limits);
  // Short stalls are normal: no warning before the first interval.
  if (!straggler || straggler->waited < std::min(stall_log_interval, straggler->limit)) {
    next_stall_log_ = now;
    return;
  }
  const WorkerProgress& at = states[straggler->rank].progress;
  const std::string where = format_text("made no progress in {} of step {} for {}",
                                        to_string(at.phase), at.step, seconds(straggler->waited));
  if (straggler->waited >= straggler->limit)
    return declare_lost(
        straggler->rank,
        format_text("is alive, but {}; inspect it (gdb -p), or raise the limits (StallLimits)",
                    where));
  if (now < next_stall_log_) return;
  next_stall_log_ = now + stall_log_interval;
  log(LogLevel::warning, format_text("{} {}; the job ends after {}", name(straggler->rank), where,
                                     seconds(straggler->limit)));
}

void Chief::notify_all_left() {
  if (!members_.all_left()) return;
  members_.send_to_all(frame(AllLeft{}));
  control_.set_all_left();
}

void Chief::check_shut_down() {
  const auto verdict = control_.verdict();
  bool silent = listener_.idle();
  for (std::size_t r = 1; r < members_.size(); ++r) {
    // A lost rank may be frozen and never close its end.
    const bool lost = verdict && verdict->rank == r;
    silent = silent && (lost || !members_[r].link || !members_[r].link->open());
  }
  if (silent) control_.mark_shut_down();
}

}  // namespace lockstep::detail
