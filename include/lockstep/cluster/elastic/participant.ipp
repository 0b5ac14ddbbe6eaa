#pragma once

#include "lockstep/cluster/elastic/participant.hpp"

#include <algorithm>

namespace lockstep::detail {

/// Between two requests to a process that has not answered, and to a machine.
inline constexpr milliseconds poll_interval{100}, resend_interval{100};
/// How long a generation without a quorum waits before it ends.
inline constexpr milliseconds hopeless_limit{1000};
/// A participant that runs later than this may itself have caused the silence that it observes.
inline constexpr milliseconds tolerated_lateness{250};

Participant::Participant(Identity self, MachineId machine, ParticipantRules rules,
                         VoteMemory& memory)
    : self_(self),
      machine_(machine),
      rules_(std::move(rules)),
      memory_(memory),
      others_(rules_.described),
      pauses_(rules_.described),
      roll_call_(rules_.described, self.index) {}

// --- calls of the program ---

void Participant::join(Time now) {
  waits_ = true;
  started_ = now;
  roll_call_.begin(now);
  if (untold_) finish(decision_);
  tick(now);
}

void Participant::next(Time now) {
  waits_ = true;
  if (left_out_) return fail(ElasticFailure::Kind::left_out, rank_);
  if (untold_) return finish(decision_);
  deadline_ = now + rules_.patience;
  begin_end(now);
  evaluate(now);
}

void Participant::reject_newcomers(Time now) {
  for (const Seat& seat : decision_.seats) {
    if (decision_.number == 0 || seat.former != Seat::newcomer) continue;
    if (is_rejected(seat.who.incarnation)) continue;
    if (rejected_.size() == Notice::max_rejected) rejected_.erase(rejected_.begin());
    rejected_.push_back(seat.who.incarnation);
    pauses_.extend(seat.who.index, now);
  }
}

void Participant::leave() {
  standing_ = Standing::left;
  waits_ = has_newcomers_ = false;
  for (std::size_t r = 0; r < members_.size(); ++r)
    send_notice(decision_.seats[r].who.index, false);
  for (std::size_t i = 0; i < others_.size(); ++i)
    if (others_[i].known) send_notice(i, false);
}

// --- letters ---

void Participant::send(std::size_t to, ElasticMessage message) {
  if (to != self_.index) outgoing_.push_back({to, {self_, ++serial_, std::move(message)}});
}

Notice Participant::notice(bool polls) const {
  return {standing_, polls, {held_run_, decision_.number}, machine_, rejected_};
}

void Participant::send_notice(std::size_t to, bool polls) { send(to, notice(polls)); }

Contact& Participant::contact(const Identity& from) {
  const auto rank = decision_.rank_of(from);
  return rank ? members_[*rank] : others_[from.index];
}

bool Participant::is_rejected(std::uint64_t incarnation) const {
  return std::find(rejected_.begin(), rejected_.end(), incarnation) != rejected_.end();
}

void Participant::receive(const Letter& letter, Time now) {
  const Identity& from = letter.from;
  if (from.index >= rules_.described || from == self_) return;
  if (standing_ == Standing::left) {  // so that the sender does not wait for this process
    const auto* const message = std::get_if<Notice>(&letter.message);
    if (message && message->polls) send_notice(from.index, false);
    return;
  }
  if (!contact(from).note(letter, now)) return;
  std::visit([&](const auto& message) { on(from, message, now); }, letter.message);
  evaluate(now);
  update_newcomers(now);
}

void Participant::on(const Identity& from, const Notice& message, Time now) {
  if (in_run())
    notice_in_run(from, message);
  else
    notice_while_fresh(from, message, now);
  if (message.polls) send_notice(from.index, false);
}

void Participant::notice_in_run(const Identity& from, const Notice& message) {
  const bool member = decision_.rank_of(from).has_value();
  const bool fresh = message.standing == Standing::fresh;
  const bool ends = member && message.standing == Standing::ending &&
                    message.generation.number == decision_.number;
  if (is_rejected(from.incarnation) && ((fresh && !member) || (ends && releases_)))
    return send(from.index, Refused{"could not form a generation with this process; start it again "
                                    "once it can reach the other workers",
                                    true});
  if (fresh && !member) return;
  if (!fresh && message.generation.run != decision_.run) return;
  if (fresh || message.generation.number < decision_.number)
    return send(from.index, Decided{decision_});
  if (message.generation.number > decision_.number) {
    if (!message.polls) send_notice(from.index, true);
    return;
  }
  if (!member) return send(from.index, Decided{decision_});
  if (message.standing == Standing::left) contact(from).gone = true;
  if (ends && standing_ == Standing::running) must_reform_ = true;
}

void Participant::notice_while_fresh(const Identity& from, const Notice& message, Time now) {
  if (message.standing == Standing::running || message.standing == Standing::ending) {
    running_heard_ = now;
    hold(message.generation.run);
  }
  if (message.standing == Standing::left && message.generation.run == held_run_ &&
      running_heard_ != Time{})
    left_by_ = from.index;
}

void Participant::hold(std::uint64_t run) {
  if (run == held_run_) return;
  // The run that is given up may have counted on this process.
  if (held_run_ != 0) self_.incarnation = rules_.random();
  memory_.enter(run);
  held_run_ = run;
}

void Participant::on(const Identity& from, const Form& message, Time now) {
  if (from.index == 0 && self_.index != 0 && !in_run() && !hears_job(now)) hold(message.run);
  send_notice(from.index, false);
}

void Participant::on(const Identity& from, const MissingMembers& message, Time now) {
  if (from.index == 0) roll_call_.note(message, now);
}

bool Participant::hears_job(Time now) const {
  return running_heard_ != Time{} && now - running_heard_ < rules_.silence;
}

bool Participant::is_possible(const Decision& next) const {
  for (const Seat& seat : next.seats)
    if (seat.who.index >= rules_.described) return false;
  return !in_run() || next.number != decision_.number + 1 || may_follow(decision_, next);
}

void Participant::on(const Identity&, const Decided& message, Time now) {
  const Decision& next = message.decision;
  const bool is_news = in_run() ? next.run == decision_.run && next.number > decision_.number
                                : next.run == held_run_ && next.rank_of(self_);
  if (is_news && is_possible(next)) adopt(next, now);
}

void Participant::on(const Identity& from, const Refused& message, Time) {
  const bool is_new = decision_.number > 0 && standing_ == Standing::ending &&
                      decision_.rank_of(from) && decision_.seats[rank_].former == Seat::newcomer;
  if (!waits_ || (in_run() && !is_new)) return;
  using Kind = ElasticFailure::Kind;
  fail(message.is_transient ? Kind::not_admitted : Kind::refused,
       message.is_transient ? from.index : self_.index, message.sentence);
}

bool Participant::may_ask(const Identity& from, const GenerationId& asked, const Ballot& ballot) {
  if (!in_run() || asked.run != decision_.run) return false;
  if (asked.number < decision_.number) {
    send(from.index, Decided{decision_});
    return false;
  }
  if (asked.number > decision_.number) {
    send_notice(from.index, true);
    return false;
  }
  return ballot.round > 0 && decision_.rank_of(from) == std::size_t{ballot.rank};
}

void Participant::on(const Identity& from, const Prepare& message, Time) {
  if (!may_ask(from, message.generation, message.ballot)) return;
  const auto vote =
      memory_.change(message.generation, [&](Vote& memory) { memory.prepare(message.ballot); });
  if (vote) send(from.index, Promise{message.generation, message.ballot, *vote});
}

void Participant::on(const Identity& from, const Accept& message, Time) {
  if (!may_ask(from, message.generation, message.ballot)) return;
  const auto value = decode(message.value);
  if (!value || !may_follow(decision_, *value) || !is_possible(*value)) return;
  const auto vote = memory_.change(
      message.generation, [&](Vote& memory) { memory.accept(message.ballot, message.value); });
  if (vote) send(from.index, Accepted{message.generation, message.ballot, vote->promised});
}

void Participant::on(const Identity& from, const Promise& message, Time now) {
  const auto rank = decision_.rank_of(from);
  if (!rank || message.generation != generation() || !proposing_) return;
  if (message.vote.accepted.round > 0) {
    const auto value = decode(message.vote.value);
    if (!value || !may_follow(decision_, *value) || !is_possible(*value)) return;
  }
  const auto before = proposer_.phase();
  proposer_.on_promise(proposer_.quorum().machine_of(*rank), message.asked, message.vote);
  if (proposer_.phase() != before) advance(now);
}

void Participant::on(const Identity& from, const Accepted& message, Time now) {
  const auto rank = decision_.rank_of(from);
  if (!rank || message.generation != generation() || !proposing_) return;
  const auto before = proposer_.phase();
  proposer_.on_accepted(proposer_.quorum().machine_of(*rank), message.asked, message.promised);
  if (proposer_.phase() != before) advance(now);
}

void Participant::refused(std::size_t index, Time now) {
  others_[index] = {};
  for (std::size_t r = 0; r < members_.size(); ++r)
    if (decision_.seats[r].who.index == index) members_[r].gone = true;
  evaluate(now);
  update_newcomers(now);
}

void Participant::disconnected(std::size_t index, Time now) {
  if (in_run()) others_[index] = {};
  if (standing_ == Standing::ending || !in_run()) send_notice(index, true);
  update_newcomers(now);
}

void Participant::differs(std::size_t index, const std::string& sentence) {
  // A member never ends because of a newcomer, and only index 0 decides before the first
  // generation.
  if (in_run() || self_.index == 0)
    send(index, Refused{sentence, false});
  else if (index == 0 && waits_)
    fail(ElasticFailure::Kind::refused, self_.index, sentence);
}

void Participant::tick(Time now) {
  excuse_pause(now);
  last_tick_ = now;
  if (!in_run()) return tick_fresh(now);
  if (standing_ == Standing::ending && now >= next_poll_) {
    next_poll_ = now + poll_interval;
    poll_members();
  }
  // One connection a pair, made by the higher rank.
  if (standing_ == Standing::running && connected_ < rank_)
    send_notice(decision_.seats[connected_++].who.index, false);
  evaluate(now);
  update_newcomers(now);
}

void Participant::excuse_pause(Time now) {
  // The tolerated part counts, or silence would never end for one that always runs late.
  const auto late = now - last_tick_ - pace() - tolerated_lateness;
  if (last_tick_ == Time{} || late <= Time::duration{}) return;
  last_tick_ = now;
  for (auto* contacts : {&members_, &others_})
    for (Contact& contact : *contacts) contact.excuse(late, now);
  ended_ += late;
  if (hopeless_since_) *hopeless_since_ += late;
  if (running_heard_ != Time{}) running_heard_ += late;
}

// --- before the first generation ---

void Participant::tick_fresh(Time now) {
  if (self_.index == 0) form_first(now);
  if (in_run() || !waits_) return;
  if (now >= next_poll_) {
    // A newcomer asks less often than processes that wait for the start.
    next_poll_ = now + (hears_job(now) ? heartbeat_interval : poll_interval);
    for (std::size_t i = 0; i < rules_.described && hears_job(now); ++i) send_notice(i, true);
    if (!hears_job(now)) {
      send_notice(0, true);
      const auto next =
          roll_call_.next(now, [&](std::size_t i) { return others_[i].is_fresh(now); });
      if (next) send_notice(*next, true);
    }
  }
  if (left_by_ && now - running_heard_ >= rules_.silence)
    return fail(ElasticFailure::Kind::not_admitted, *left_by_,
                "has ended the job before this process was admitted");
  if (now - std::max(started_, running_heard_) < rules_.patience) return;
  const MissingMembers absent = missing(now);
  fail(ElasticFailure::Kind::missing, absent.listed.empty() ? 0 : absent.listed.front());
}

MissingMembers Participant::missing(Time now) const {
  return roll_call_.missing(now, [&](std::size_t i) { return others_[i].is_fresh(now); });
}

std::optional<MissingMembers> Participant::waits_for(Time now) const {
  if (!waits_ || in_run() || hears_job(now)) return std::nullopt;
  return missing(now);
}

void Participant::form_first(Time now) {
  bool all = waits_ && !hears_job(now), held = forming_;
  for (std::size_t i = 1; i < rules_.described; ++i) {
    all = all && others_[i].is_fresh(now);
    held = held && others_[i].notice.generation.run == held_run_;
  }
  if (!all) {
    forming_ = false;
    if (!waits_ || hears_job(now) || !roll_call_.is_report_due(now)) return;
    for (std::size_t i = 1; i < rules_.described; ++i) {
      if (!others_[i].is_fresh(now)) continue;
      send(i, missing(now));
      roll_call_.has_reported(now);
    }
    return;
  }
  if (!forming_) hold(rules_.random() | 1);
  if (held || rules_.described == 1) {
    Decision first{held_run_, 0, rules_.random(), rules_.port(), {{self_, machine_}}};
    for (std::uint32_t i = 1; i < rules_.described; ++i)
      first.seats.push_back({{i, others_[i].incarnation}, others_[i].notice.machine});
    for (std::size_t i = 1; i < rules_.described; ++i) send(i, Decided{first});
    return adopt(first, now);
  }
  if (forming_ && now < next_resend_) return;
  forming_ = true;
  next_resend_ = now + resend_interval;
  for (std::size_t i = 1; i < rules_.described; ++i)
    if (others_[i].notice.generation.run != held_run_) send(i, Form{held_run_});
}

// --- the end of a generation ---

void Participant::begin_end(Time now) {
  standing_ = Standing::ending;
  must_reform_ = proposing_ = releases_ = false;
  ended_ = last_tick_ = now;
  hopeless_since_.reset();
  for (Contact& member : members_) member.gone = false;
  next_poll_ = now + poll_interval;
  for (const Seat& seat : decision_.seats) send_notice(seat.who.index, true);
}

void Participant::poll_members() {
  for (std::size_t r = 0; r < members_.size(); ++r)
    if (!members_[r].gone) send_notice(decision_.seats[r].who.index, true);
}

Presence Participant::voter(std::size_t rank, Time now) const {
  if (rank == rank_) return Presence::ready;
  const Contact& member = members_[rank];
  const bool heard = member.known && member.heard >= ended_;
  if (member.gone) return Presence::gone;
  // Another process at the same address replaces one that does not answer.
  const Contact& other = others_[decision_.seats[rank].who.index];
  const bool answers = heard && member.heard > other.first_heard;
  if (other.is_fresh(now) && !answers) return Presence::gone;
  if (now - std::max(ended_, member.heard) >= rules_.silence) return Presence::silent;
  if (!heard) return Presence::unknown;
  return member.notice.standing == Standing::ending && member.notice.generation == generation()
             ? Presence::ready
             : Presence::busy;
}

Presence Participant::presence(std::size_t rank, Time now) const {
  if (rank != rank_ && is_rejected(decision_.seats[rank].who.incarnation)) return Presence::gone;
  return voter(rank, now);
}

bool Participant::has_quorum(Time now) {
  const Quorum& quorum = proposer_.quorum();
  std::vector<bool> votes(quorum.size());
  std::size_t lost = members_.size();
  bool known = true;
  for (std::size_t r = 0; r < members_.size(); ++r) {
    const Presence vote = voter(r, now);
    known = known && vote != Presence::unknown;
    if (vote != Presence::silent && vote != Presence::gone)
      votes[quorum.machine_of(r)] = true;
    else if (lost == members_.size())
      lost = r;
  }
  if (quorum.reached(votes)) {
    hopeless_since_.reset();
    return true;
  }
  if (!hopeless_since_) hopeless_since_ = now;
  if (known && now - *hopeless_since_ >= hopeless_limit)
    fail(ElasticFailure::Kind::no_quorum, lost);
  return false;
}

void Participant::evaluate(Time now) {
  if (standing_ != Standing::ending || !waits_) return;
  excuse_pause(now);
  if (!has_quorum(now)) return;
  std::vector<Presence> members;
  for (std::size_t r = 0; r < members_.size(); ++r) members.push_back(presence(r, now));
  if (now >= deadline_) return give_up(members);
  // A member that answers is waited for, but not until the deadline.
  const bool patient = now < deadline_ - rules_.patience / 4;
  if (proposing_rank(members, patient) != rank_) {
    proposing_ = false;
    return;
  }
  if (!all_known(members, patient)) return;
  const auto phase = proposer_.phase();
  const bool stale =
      phase == Proposer::Phase::preparing &&
      std::any_of(proposed_.begin(), proposed_.end(), [&](const Seat& seat) {
        return seat.former != Seat::newcomer && members[seat.former] != Presence::ready;
      });
  const bool refused = phase == Proposer::Phase::refused;
  if (!proposing_ || stale || (refused && now >= retry_at_)) return propose(members, now);
  if (!refused && now >= next_resend_) send_phase(now);
}

void Participant::give_up(const std::vector<Presence>& members) {
  if (const std::string file = memory_.blocked_by(); !file.empty())
    return fail(ElasticFailure::Kind::no_vote, rank_, file);
  const std::size_t proposing = proposing_rank(members, true).value_or(rank_);
  std::vector<Seat> ready;
  for (std::size_t r = 0; r < members.size(); ++r)
    if (members[r] == Presence::ready) ready.push_back(decision_.seats[r]);
  const bool could_decide = members[proposing] != Presence::ready ||
                            rules_.seats.accepted(rules_.seats.workers_in(ready)) > 0;
  if (proposing != rank_ && could_decide)
    return fail(ElasticFailure::Kind::no_agreement, proposing);
  std::size_t lost = 0;
  while (lost + 1 < members.size() && members[lost] == Presence::ready) ++lost;
  fail(ElasticFailure::Kind::too_few, lost);
}

void Participant::propose(const std::vector<Presence>& members, Time now) {
  proposing_ = false;
  std::vector<Seat> survivors;
  std::vector<std::uint64_t> rejected = rejected_;
  std::vector<bool> votes(proposer_.quorum().size());
  for (std::uint32_t r = 0; r < members.size(); ++r) {
    if (members[r] != Presence::ready) continue;
    votes[proposer_.quorum().machine_of(r)] = true;
    survivors.push_back({decision_.seats[r].who, decision_.seats[r].machine, r});
    const auto& theirs = members_[r].notice.rejected;
    if (r != rank_) rejected.insert(rejected.end(), theirs.begin(), theirs.end());
  }
  const auto is_not_accepted = [&](const Seat& seat) {
    return std::find(rejected.begin(), rejected.end(), seat.who.incarnation) != rejected.end();
  };
  std::vector<Seat> added = newcomers(now, survivors);
  std::erase_if(added, is_not_accepted);
  std::erase_if(survivors, is_not_accepted);
  proposed_ = assemble(survivors, added, rules_.seats);
  releases_ = proposed_.empty() && proposer_.quorum().reached(votes);
  if (proposed_.empty() || proposed_.front().who != self_) return;
  proposing_ = true;
  proposer_.begin(
      encode({decision_.run, decision_.number + 1, rules_.random(), rules_.port(), proposed_}));
  send_phase(now);
}

void Participant::send_phase(Time now) {
  const auto phase = proposer_.phase();
  const Ballot ballot = proposer_.ballot();
  const std::string value = proposer_.value();
  const Quorum& quorum = proposer_.quorum();
  const bool preparing = phase == Proposer::Phase::preparing;
  const std::size_t here = quorum.machine_of(rank_);
  next_resend_ = now + resend_interval;
  if (proposer_.waits_for(here)) {
    const auto vote = memory_.change(generation(), [&](Vote& memory) {
      if (preparing)
        memory.prepare(ballot);
      else
        memory.accept(ballot, value);
    });
    if (vote && preparing) proposer_.on_promise(here, ballot, *vote);
    if (vote && !preparing) proposer_.on_accepted(here, ballot, vote->promised);
    if (proposer_.phase() != phase) return advance(now);
  }
  for (std::size_t r = 0; r < members_.size(); ++r) {
    const std::size_t machine = quorum.machine_of(r);
    const Presence vote = voter(r, now);
    if (machine == here || !proposer_.waits_for(machine) || vote == Presence::gone) continue;
    if (preparing)
      send(decision_.seats[r].who.index, Prepare{generation(), ballot});
    else
      send(decision_.seats[r].who.index, Accept{generation(), ballot, value});
  }
}

void Participant::advance(Time now) {
  if (proposer_.phase() == Proposer::Phase::accepting) return send_phase(now);
  if (proposer_.phase() == Proposer::Phase::refused) {
    // Two that compete must not stay in step.
    constexpr std::uint64_t spread = 60;
    retry_at_ = now + milliseconds(20 + rules_.random() % spread);
    return;
  }
  const auto decision = decode(proposer_.value());
  if (!decision) return;
  for (const Seat& seat : decision_.seats) send(seat.who.index, Decided{*decision});
  for (const Seat& seat : decision->seats)
    if (seat.former == Seat::newcomer) send(seat.who.index, Decided{*decision});
  adopt(*decision, now);
}

void Participant::adopt(const Decision& decision, Time now) {
  const auto rank = decision.rank_of(self_);
  if (!rank) {  // also as the proposer, of a value that an earlier one had proposed
    left_out_ = must_reform_ = true;
    if (waits_) fail(ElasticFailure::Kind::left_out, rank_);
    return;
  }
  std::vector<Contact> contacts;
  std::vector<std::uint32_t> former;
  for (const Seat& seat : decision.seats) {
    const Contact& known = contact(seat.who);
    contacts.push_back(known.incarnation == seat.who.incarnation
                           ? known
                           : Contact{.incarnation = seat.who.incarnation});
    const bool composed = untold_ && seat.former != Seat::newcomer && seat.former < former_.size();
    former.push_back(composed ? former_[seat.former] : seat.former);
  }
  const bool was_waiting = waits_;
  decision_ = decision;
  rank_ = *rank;
  connected_ = 0;
  members_ = std::move(contacts);
  former_ = std::move(former);
  proposer_ = Proposer(Quorum(decision.machines()), static_cast<std::uint32_t>(rank_));
  proposing_ = must_reform_ = false;
  forming_ = false;
  standing_ = Standing::running;
  untold_ = true;
  for (std::size_t i = 0; i < others_.size(); ++i) {
    Contact& other = others_[i];
    if (other.known && decision.rank_of({static_cast<std::uint32_t>(i), other.incarnation}))
      other = {};
    if (other.is_fresh(now)) pauses_.extend(i, now);
  }
  const auto gone =
      std::find_if(members_.begin(), members_.end(), [](auto& one) { return one.gone; });
  if (!was_waiting) {
    must_reform_ = true;  // so that the program asks for it
  } else if (gone == members_.end() || decision.number == 0) {
    finish(decision_);
  } else if (decision_.seats[rank_].former == Seat::newcomer) {
    const auto lost = static_cast<std::size_t>(gone - members_.begin());
    fail(ElasticFailure::Kind::not_admitted, decision_.seats[lost].who.index,
         "was lost before the generation that admits this process began; start it again");
  } else {  // cannot be formed: at once to the next one
    reject_newcomers(now);
    begin_end(now);
  }
}

void Participant::finish(Outcome outcome) {
  if (std::holds_alternative<Decision>(outcome)) untold_ = must_reform_ = false;
  outcome_ = std::move(outcome);
  waits_ = false;
}

void Participant::fail(ElasticFailure::Kind kind, std::size_t rank, std::string sentence) {
  standing_ = Standing::left;
  for (const Seat& seat : decision_.seats) send_notice(seat.who.index, false);
  finish(ElasticFailure{kind, rank, std::move(sentence)});
}

// --- newcomers ---

std::vector<Seat> Participant::newcomers(Time now, const std::vector<Seat>& members) const {
  std::vector<Seat> result;
  for (std::uint32_t i = 0; i < others_.size(); ++i) {
    const bool taken = std::any_of(members.begin(), members.end(),
                                   [&](const Seat& seat) { return seat.who.index == i; });
    const Contact& other = others_[i];
    if (taken || i == self_.index || !other.is_fresh(now) || is_rejected(other.incarnation) ||
        other.notice.generation.run != decision_.run || pauses_.is_paused(i, now))
      continue;
    result.push_back({{i, other.incarnation}, other.notice.machine});
  }
  return result;
}

void Participant::update_newcomers(Time now) {
  has_newcomers_ = false;
  // Rank 0 will propose. The others may have passed over other newcomers, and for another time.
  if (standing_ != Standing::running || untold_ || rank_ != 0) return;
  std::vector<Seat> added = newcomers(now, decision_.seats);
  std::erase_if(added, [&](const Seat& seat) {
    // One that asks once and disappears does not interrupt the job.
    return now - others_[seat.who.index].first_heard < heartbeat_interval;
  });
  if (added.empty()) return;
  has_newcomers_ = assemble(decision_.seats, added, rules_.seats).size() > members_.size();
}

}  // namespace lockstep::detail
