#pragma once

#include "lockstep/cluster/rendezvous/chief.hpp"

#include <openssl/rand.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "lockstep/cluster/rendezvous/chief_address.hpp"
#include "lockstep/cluster/rendezvous/data_address.hpp"
#include "lockstep/cluster/rendezvous/file_limit.hpp"
#include "lockstep/cluster/rendezvous/signature.hpp"
#include "lockstep/cluster/shown.hpp"
#include "lockstep/core/fmt_core.hpp"

namespace lockstep::detail {

Chief::Chief(asio::io_context& io, Control& control, const ProgressBoard& board,
             const JoinSetup& setup, PskContext* psk)
    : control_(control),
      board_(board),
      setup_(setup),
      listener_(
          io, psk, setup.timeouts.silence, Sources(setup.cluster, psk != nullptr),
          [this](const std::shared_ptr<Connection>& c, const Hello& hello) { admit(c, hello); },
          [this](std::string_view line) { setup_.log(LogLevel::warning, line); }),
      store_(
          setup.cluster.world_size,
          [this](std::size_t rank, Reply reply) { answer(rank, std::move(reply)); },
          [this](std::size_t rank) { return name(rank); }),
      members_(setup),
      lookup_(setup.cluster.chief ? listening_address(setup.cluster) : HostPort{}),
      ticker_(io),
      store_timer_(io),
      join_timer_(io),
      once_(io) {}

void Chief::begin() {
  began_ = next_line_ = Clock::now();
  next_line_ += waiting_line_interval;
  if (members_.size() == 1) start();
  tick();
  if (members_.size() == 1) return;
  listen();
}

void Chief::leave() {
  members_[0].state.left = true;
  last_words(0);
  farewell();
}

void Chief::wind_down() {
  listener_.stop();
  const auto cause = control_.verdict();
  for (Member& member : members_) {
    if (!member.link) continue;
    beat(member);
    member.link->send(frame(Goodbye{cause}));
    member.link->finish();
  }
  for (const Unplaced& worker : members_.unplaced()) worker.link->finish();
  winding_down_ = true;
  check_wound_down();
}

void Chief::sever() {
  listener_.close();
  members_.close_all();
  ticker_.cancel();
  join_timer_.cancel();
}

void Chief::listen() {
  const auto& found = lookup_.poll(Clock::now());
  std::optional<ListenFault> fault;
  if (!found)
    fault = ListenFault{fmt::format("{}: its host has not yet been looked up", chief_place(setup_)),
                        true};
  else
    fault = listen_at(listener_, *found, setup_);
  if (!fault) {
    family_ = listener_.listens_by_ipv4() ? tcp::v4() : tcp::v6();
    return;
  }
  if (!fault->may_pass) return refuse_all(fault->sentence);
  if (found && listen_fault_ != fault->sentence)
    say(LogLevel::warning, fault->sentence + "; trying again until the deadline of the join");
  listen_fault_ = fault->sentence;
  join_timer_.after(found ? milliseconds(50) : milliseconds(5), [this] {
    if (!control_.ended()) listen();
  });
}

void Chief::refuse_all(const std::string& sentence) {
  for (Member& member : members_) {
    if (!member.link) continue;
    listener_.dismiss(member.link, frame(Refuse{sentence}));
    member.link.reset();
  }
  for (const Unplaced& worker : std::exchange(members_.unplaced(), {}))
    listener_.dismiss(worker.link, frame(Refuse{sentence}));
  control_.refuse(std::make_exception_ptr(ClusterError(sentence)));
}

void Chief::admit(const std::shared_ptr<Connection>& link, const Hello& hello) {
  const std::string source = Listener::source_of(*link);
  const bool any = hello.rank == Hello::any_rank;
  const bool known = !any && hello.rank < members_.size();
  const std::string newcomer = known ? fmt::format("rank {} ({})", hello.rank, source)
                               : any ? fmt::format("a worker ({})", source)
                                     : fmt::format("a worker ({}) of rank {}", source, hello.rank);
  const auto refuse = [&](const std::string& sentence) {
    listener_.report(source, "was refused: " + printable(sentence), Clock::now());
    listener_.dismiss(link, frame(Refuse{sentence}));
    if (known && !started_ && !members_[hello.rank].link)
      members_[hello.rank].note =
          fmt::format("one that came from {} was refused: {}", source, sentence);
  };
  const auto put_off = [&](const char* reason) { listener_.dismiss(link, frame(Later{reason})); };
  if (control_.ended()) return put_off("the job that it runs has ended by an error");
  // A rank that has left and comes again wants the next job of these processes: it retries until
  // that job listens.
  if (started_ && (known ? members_[hello.rank].state.left : members_.any_left()))
    return put_off("the job before this one has not yet ended there");
  const bool given = !setup_.cluster.job_id.empty();
  if ((given || hello.job_id_given) && hello.job_id != setup_.job_id)
    return refuse(fmt::format(
        "{} belongs to the job {}, but the chief runs the job {}; give all ranks of a job the same "
        "LOCKSTEP_JOB_ID, and each job on a machine its own port",
        newcomer, shown(hello.job_id), shown(setup_.job_id)));
  const auto differs =
      difference("join", setup_.cluster.name(0), setup_.fields, newcomer, hello.fields);
  // With equal ids the newcomer belongs to this job, which then cannot start. Without ids it may
  // be a stray process.
  const bool is_ours = given && hello.job_id_given;
  if (differs && (started_ || !is_ours)) return refuse(*differs);
  if (differs) {
    listener_.dismiss(link, frame(Refuse{*differs}));
    return refuse_all(*differs);
  }
  if (link->remote().protocol() != family_) return send_to_family(link, hello);
  if (const auto fault = data_fault(link, hello, newcomer)) return refuse(*fault);
  if (!any && !known) return refuse(fmt::format("{} is outside the job", newcomer));
  if (any) {
    if (started_ || members_.missing() == 0)
      return refuse(
          fmt::format("{} is one too many: the job has its {} ranks", newcomer, members_.size()));
    members_.unplaced().push_back({link, hello.data_address});
  } else {
    Member& member = members_[hello.rank];
    if (hello.rank == 0 || started_ || member.link) {
      const std::string holder = hello.rank == 0 ? "the chief itself" : member.address;
      return refuse(fmt::format(
          "{} claims a rank that {} already has: it was taken by {}; give each process a rank of "
          "its own",
          newcomer, name(hello.rank), holder));
    }
    members_[hello.rank].data_address = hello.data_address;
    place(link, hello.rank);
  }
  if (any) await(link);
  if (members_.missing() == 0) start();
}

void Chief::send_to_family(const std::shared_ptr<Connection>& link, const Hello& hello) {
  const bool ipv4 = family_ == tcp::v4();
  const std::string reason = fmt::format("it came by {}, but this job uses {}",
                                         ipv4 ? "IPv6" : "IPv4", ipv4 ? "IPv4" : "IPv6");
  listener_.dismiss(link, frame(Later{reason, ipv4 ? Later::Way::ipv4 : Later::Way::ipv6}));
  if (!started_ && hello.rank < members_.size() && !members_[hello.rank].link)
    members_[hello.rank].note = fmt::format("from {} {}", Listener::source_of(*link), reason);
}

std::optional<std::string> Chief::data_fault(const std::shared_ptr<Connection>& link,
                                             const Hello& hello,
                                             const std::string& newcomer) const {
  asio::error_code wrong;
  const auto theirs = hello.data_address.empty()
                          ? link->remote().address()
                          : asio::ip::make_address(hello.data_address, wrong);
  if (wrong) return newcomer + " has a LOCKSTEP_DATA_ADDRESS that is not an address";
  const auto& given = setup_.cluster.data_address;
  const bool ipv4 = given ? asio::ip::make_address(*given).is_v4() : family_ == tcp::v4();
  if (theirs.is_v4() == ipv4) return std::nullopt;
  return fmt::format(
      "{} would exchange data at {} ({}), but the chief does so by {}; set LOCKSTEP_DATA_ADDRESS "
      "on all ranks to addresses of one family",
      newcomer, theirs.to_string(), family_name(theirs), ipv4 ? "IPv4" : "IPv6");
}

void Chief::await(const std::shared_ptr<Connection>& link) {
  const std::weak_ptr<Connection> weak = link;
  link->handle([](FrameType, std::string_view) {},
               [this, weak](const std::string&) {
                 members_.unplaced().remove_if(
                     [link = weak.lock()](const Unplaced& worker) { return worker.link == link; });
               });
  link->send(frame(members_.waiting()));
}

void Chief::place(const std::shared_ptr<Connection>& link, std::size_t rank) {
  Member& member = members_[rank];
  member.link = link;
  const tcp::endpoint remote = link->remote();
  member.address = to_string(HostPort{remote.address().to_string(), remote.port()});
  member.heard = Clock::now();
  link->handle([this, rank](FrameType type, std::string_view body) { hear(rank, type, body); },
               [this, rank](const std::string& how) { gone(rank, how); });
  if (!started_) link->send(frame(members_.waiting()));
}

void Chief::wait_for_members(Clock::time_point now) {
  const Waiting missing = members_.waiting();
  const milliseconds waited = whole_milliseconds(now - began_);
  const milliseconds deadline = setup_.cluster.rendezvous_timeout;
  if (waited >= deadline && !listener_.listening())
    return refuse_all(fmt::format("{} (asked again for {})", listen_fault_, seconds(deadline)));
  if (waited >= deadline && listener_.starved())
    return lose(0, "cannot accept the connections of the others: " + files_sentence());
  if (waited >= deadline) {
    std::string how = "never came within " + seconds(deadline);
    if (missing.count > 1)
      how += "; missing: " + missing.names;
    else if (!members_[missing.first].note.empty())
      how += ": " + printable(members_[missing.first].note);
    return lose(missing.first, how + late_remedy);
  }
  if (now >= next_line_) {
    next_line_ += waiting_line_interval;
    say(LogLevel::info,
        fmt::format("waiting for {}: {} of {}", missing.names, seconds(waited), seconds(deadline)));
  }
  members_.send_to_all(frame(missing));
}

void Chief::start() {
  started_ = true;
  for (std::size_t r = 1; r < members_.size() && !members_.unplaced().empty(); ++r) {
    if (members_[r].link) continue;
    const Unplaced worker = std::move(members_.unplaced().front());
    members_.unplaced().pop_front();
    members_[r].data_address = worker.data_address;
    place(worker.link, r);
  }
  const auto data = decide_data_addresses();
  if (!data) return;
  Membership membership;
  membership.addresses.resize(members_.size());
  if (RAND_bytes(membership.run_id.data(), static_cast<int>(membership.run_id.size())) != 1 ||
      RAND_bytes(membership.key.data(), static_cast<int>(membership.key.size())) != 1)
    return refuse_all("the chief has no random numbers: OpenSSL's generator failed");
  for (std::size_t r = 0; r < members_.size(); ++r) {
    const std::string described = setup_.described_address(r);
    if (!described.empty()) members_[r].address = described;
    membership.addresses[r] = members_[r].address;
  }
  membership.local_address = (*data)[0];
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
  control_.joined(std::move(membership));
}

std::optional<std::vector<std::string>> Chief::decide_data_addresses() {
  std::vector<DataPlace> places(members_.size());
  places[0].given = setup_.cluster.data_address.value_or("");
  for (std::size_t r = 1; r < members_.size(); ++r)
    places[r] = {members_[r].data_address, members_[r].link->local().address(),
                 members_[r].link->remote().address()};
  auto addresses = data_addresses(places);
  const auto fault = find_unreachable(places, addresses);
  if (!fault) return addresses;
  refuse_all(fmt::format(
      "{} would exchange data at a loopback address, which {} on another machine cannot reach; set "
      "LOCKSTEP_DATA_ADDRESS to an address that all reach, or unset it",
      name(fault->near), name(fault->far)));
  return std::nullopt;
}

void Chief::hear(std::size_t rank, FrameType type, std::string_view body) {
  Member& member = members_[rank];
  member.heard = Clock::now();
  const auto act = [&](auto message, auto action) {
    if (message)
      action(std::move(*message));
    else
      drop(rank, "sent a message that is damaged");
  };
  switch (type) {
    case FrameType::heartbeat:
      return act(parse<Heartbeat>(body), [&](const Heartbeat& beat) {
        member.state.progress = beat.progress;
        member.state.still = beat.still;
        member.state.exchange = beat.exchange;
        member.round_trip.hear(beat.stamps, member.heard, setup_.timeouts.silence);
      });
    case FrameType::request:
      return act(parse<Request>(body), [&](Request request) { handle(rank, std::move(request)); });
    case FrameType::accuse:
      return act(parse<Accuse>(body), [&](const Accuse& a) { accuse_by(rank, a); });
    case FrameType::failure:
      return act(parse<LastWords>(body),
                 [&](const LastWords& f) { lose(rank, "failed: " + printable(f.what)); });
    case FrameType::goodbye:
      return act(parse<Goodbye>(body), [&](Goodbye goodbye) {
        member.state.left = true;
        if (goodbye.cause && goodbye.cause->rank < members_.size())
          lose(goodbye.cause->rank, printable(goodbye.cause->how));
        last_words(rank);
        farewell();
      });
    default:
      drop(rank, "sent a message that is not for a chief");
  }
}

void Chief::drop(std::size_t rank, const std::string& how) {
  members_[rank].link->close();
  gone(rank, how);
}

void Chief::gone(std::size_t rank, const std::string& how) {
  Member& member = members_[rank];
  if (winding_down_) return check_wound_down();
  if (!started_) {
    member.link.reset();
    member.note = fmt::format("it came from {}, but {}", member.address, how);
    say(LogLevel::info, fmt::format("{} {} before the start; it may come again", name(rank), how));
  } else if (!member.state.left) {
    lose(rank, how);
  }
}

void Chief::lose(std::size_t rank, const std::string& how) {
  const WorkerProgress own = board_.read();
  LostPeer loss{static_cast<std::uint32_t>(rank), members_[rank].address, how, {}};
  if (loss.address.empty()) loss.address = setup_.described_address(rank);
  if (own.step > 0) loss.last_step = own.step - 1;
  if (!control_.lose(loss)) return;
  members_.send_to_all(frame(loss));
  control_.announce();
}

void Chief::answer(std::size_t rank, Reply reply) {
  if (rank == 0) return control_.answer(std::move(reply));
  if (members_[rank].link) members_[rank].link->send(frame(reply));
}

void Chief::handle(std::size_t rank, Request request) {
  store_.handle(rank, std::move(request), Clock::now());
  for (std::size_t r = 0; r < members_.size(); ++r)
    if (members_[r].state.left) last_words(r);
  watch_store();
}

void Chief::watch_store() {
  const auto deadline = store_.next_deadline();
  if (!deadline) return;
  store_timer_.at(*deadline, [this] {
    store_.expire(Clock::now());
    watch_store();
  });
}

void Chief::last_words(std::size_t rank) {
  if (store_.awaited(rank)) lose(rank, how_left(rank));
}

std::string Chief::how_left(std::size_t rank) const {
  const WorkerProgress progress = rank == 0 ? board_.read() : members_[rank].state.progress;
  if (progress == WorkerProgress{}) return "left";
  return fmt::format("left after step {}", progress.step);
}

void Chief::accuse_by(std::size_t accuser, const Accuse& of) {
  if (of.rank >= members_.size() || control_.ended()) return;
  if (of.names_link() && (of.other >= members_.size() || of.other == of.rank)) return;
  if (members_[of.rank].state.left) return lose(of.rank, how_left(of.rank));
  accusations_.push_back({accuser, of});
  if (accusations_.size() > 1) return;
  accused_at_ = Clock::now();
  judge_after(setup_.timeouts.verdict / 2 + members_.longest_round_trip());
}

void Chief::judge_after(Clock::duration time) {
  once_.after(time, [this] {
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
  const auto worst = std::max_element(accusations_.begin(), accusations_.end(),
                                      [&](const Accusation& a, const Accusation& b) {
                                        return accusers_of(a.of.rank) < accusers_of(b.of.rank);
                                      });
  const Accuse& of = worst->of;
  if (members_[of.rank].state.left) return lose(of.rank, how_left(of.rank));
  if (!of.names_link())
    return lose(of.rank, fmt::format("does not answer: its exchange with {} failed: {}",
                                     name(worst->accuser), printable(of.how, 200)));
  // A heartbeat since then shows that an end lives. If none comes, that rank itself is lost.
  for (const std::size_t end : {of.rank, of.other})
    if (end != 0 && !members_[end].state.left && members_[end].heard <= accused_at_)
      return judge_after(milliseconds(50));
  lose(of.rank, link_failure(name(of.other), printable(of.how, 200)));
}

void Chief::tick() {
  const auto now = Clock::now();
  const bool on_time = punctuality_.on_time(now);
  still_.look(board_, now, on_time);
  members_[0].state = {board_.read(), still_.still(), members_[0].state.left, control_.exchange()};
  listener_.tick(now);
  for (std::size_t r = 1; r < members_.size(); ++r) {
    Member& member = members_[r];
    if (!member.link || !member.link->open()) continue;
    if (!on_time) member.heard = now;
    if (!member.state.left && now - member.heard >= setup_.timeouts.silence && !control_.ended()) {
      const std::string how = fmt::format("was silent for {}", seconds(setup_.timeouts.silence));
      if (started_)
        lose(r, how);
      else
        drop(r, how);
    }
    if (member.link) beat(member);
  }
  control_.note_round_trip(members_.longest_round_trip());
  if (!control_.ended()) {
    if (started_)
      find_stall(now);
    else
      wait_for_members(now);
  }
  if (winding_down_) check_wound_down();
  ticker_.after(heartbeat_interval, [this] { tick(); });
}

void Chief::beat(Member& member) {
  const auto stamps = member.round_trip.stamps(Clock::now(), members_.longest_round_trip());
  member.link->send(
      frame(Heartbeat{members_[0].state.progress, members_[0].state.still, {}, stamps}));
}

void Chief::find_stall(Clock::time_point now) {
  std::vector<RankState> states;
  for (const Member& member : members_) states.push_back(member.state);
  const auto straggler = find_straggler(states, setup_.limits);
  if (!straggler || straggler->waited < std::min(stall_line_interval, straggler->limit)) {
    next_stall_line_ = now;
    return;
  }
  const WorkerProgress& at = states[straggler->rank].progress;
  const std::string where = fmt::format("made no progress in {} of step {} for {}",
                                        to_string(at.phase), at.step, seconds(straggler->waited));
  if (straggler->waited >= straggler->limit)
    return lose(
        straggler->rank,
        fmt::format("lives, but {}; see what it does (gdb -p), or raise the limits (StallLimits)",
                    where));
  if (now < next_stall_line_) return;
  next_stall_line_ = now + stall_line_interval;
  say(LogLevel::warning, fmt::format("{} {}; the job ends after {}", name(straggler->rank), where,
                                     seconds(straggler->limit)));
}

void Chief::farewell() {
  if (!members_.all_left()) return;
  members_.send_to_all(frame(Farewell{}));
  control_.all_left();
}

void Chief::check_wound_down() {
  const auto verdict = control_.verdict();
  bool silent = listener_.idle();
  for (std::size_t r = 1; r < members_.size(); ++r) {
    const bool lost = verdict && verdict->rank == r;
    silent = silent && (lost || !members_[r].link || !members_[r].link->open());
  }
  if (silent) control_.wound_down();
}

}  // namespace lockstep::detail
