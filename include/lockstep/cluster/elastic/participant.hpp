/// \file
/// A process' part in the agreement on generations, without I/O, threads and clock. Invariants: a
/// process is in at most one run; its generation only grows; memory is bounded by the number of
/// described processes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/cluster/elastic/assembly.hpp"
#include "lockstep/cluster/elastic/contact.hpp"
#include "lockstep/cluster/elastic/decision.hpp"
#include "lockstep/cluster/elastic/elastic_messages.hpp"
#include "lockstep/cluster/elastic/identity.hpp"
#include "lockstep/cluster/elastic/newcomer_pauses.hpp"
#include "lockstep/cluster/elastic/proposer.hpp"
#include "lockstep/cluster/elastic/roll_call.hpp"
#include "lockstep/cluster/elastic/vote_memory.hpp"
#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// The settings that the participants of a job share.
struct ParticipantRules {
  std::size_t described = 1;  ///< processes in the cluster description
  SeatRules seats{};
  milliseconds silence{2000};     ///< after which a process that does not answer is given up
  milliseconds patience{60'000};  ///< the limit of `join` and `next`
  std::function<std::uint64_t()> random{};
  std::function<std::uint16_t()> port{};  ///< a free port for a rendezvous of this process
};

/// Why a process cannot go on.
struct ElasticFailure {
  enum class Kind : std::uint8_t {
    missing,       ///< some process did not join in time
    no_quorum,     ///< too few machines of the generation answer
    too_few,       ///< fewer workers than the minimum, or than fit
    no_vote,       ///< another process of this machine holds its votes: `sentence` is their file
    no_agreement,  ///< the proposing rank answers but does not decide
    left_out,      ///< the others have gone on without this process
    not_admitted,  ///< the process `rank` did not admit this one, but may admit a later one
    refused        ///< this process cannot be a member: `sentence`
  };
  Kind kind = Kind::missing;
  std::size_t rank = 0;  ///< of the member, or the index of the process, that is to blame
  std::string sentence{};
};

/// A letter to the process with a described index.
struct Outgoing {
  std::size_t to = 0;
  Letter letter{};
};

/// The states of a process:
///
///     fresh --Form of index 0, or a job that runs--> holds the votes of that run on its machine
///       |<--another run: becomes another process--'                            |
///       |                                           Decided, of that run only  |
///       '----------------------------------------------------------------------+--> running
///                                                           Decided(g + 1) ^          |  next()
///                                                                          '--ending<-'
///
/// A fresh process asks index 0, and the others one by one, less and less often: a job may run
/// without index 0. Members connect to each other while the job runs, since all of them talk when a
/// generation ends.
///
/// A process holds the votes before it can be a member, so that they cannot be removed while a
/// member of the run lives.
///
/// The members that end a generation notify all others, also those that have not noticed yet.
/// The lowest rank that answers waits until each other rank is ready, gone or silent, assembles the
/// next generation and has it accepted by a quorum of the machines.
class Participant {
 public:
  using Time = Clock::time_point;
  using Outcome = std::variant<Decision, ElasticFailure>;

  /// `memory` must outlive the participant.
  LOCKSTEP_COLD_DECL Participant(Identity self, MachineId machine, ParticipantRules rules,
                                 VoteMemory& memory);

  // --- calls of the program; the outcome of `join` and `next` comes later ---
  LOCKSTEP_COLD_DECL void join(Time now);
  LOCKSTEP_COLD_DECL void next(Time now);
  LOCKSTEP_COLD_DECL void reject_newcomers(Time now);
  LOCKSTEP_COLD_DECL void leave();

  // --- events ---
  LOCKSTEP_COLD_DECL void receive(const Letter& letter, Time now);
  /// Nothing listens at the address of this index.
  LOCKSTEP_COLD_DECL void refused(std::size_t index, Time now);
  /// The last connection to the process at this index has ended.
  LOCKSTEP_COLD_DECL void disconnected(std::size_t index, Time now);
  /// The settings of the process at this index differ; `sentence` names the field.
  LOCKSTEP_COLD_DECL void differs(std::size_t index, const std::string& sentence);
  LOCKSTEP_COLD_DECL void tick(Time now);

  // --- results ---
  /// The letters to send, in order.
  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  /// The outcome of the last `join` or `next`, once.
  std::optional<Outcome> take_outcome() { return std::exchange(outcome_, {}); }
  bool waits() const { return waits_; }
  /// True if a job runs that has not admitted this process yet.
  bool waits_for_admission(Time now) const { return waits_ && !in_run() && hears_job(now); }
  /// The processes without which the first generation cannot begin; nullopt if this one does not
  /// wait for it.
  LOCKSTEP_COLD_DECL std::optional<MissingMembers> waits_for(Time now) const;
  Standing standing() const { return standing_; }
  const Identity& self() const { return self_; }
  /// The current generation; without seats before the first.
  const Decision& decision() const { return decision_; }
  /// By rank of the current generation: the rank in the one that the last outcome, before this one,
  /// was about.
  const std::vector<std::uint32_t>& former() const { return former_; }
  bool has_newcomers() const { return has_newcomers_; }
  /// True if the program has to call `next`.
  bool must_reform() const { return must_reform_; }
  /// The interval of `tick`, and the time since `join`.
  milliseconds waited(Time now) const { return whole_milliseconds(now - started_); }
  milliseconds pace() const { return waits_ ? milliseconds(20) : heartbeat_interval; }

 private:
  bool in_run() const { return !decision_.seats.empty(); }
  GenerationId generation() const { return {decision_.run, decision_.number}; }
  LOCKSTEP_COLD_DECL void send(std::size_t to, ElasticMessage message);
  LOCKSTEP_COLD_DECL Notice notice(bool polls) const;
  LOCKSTEP_COLD_DECL void send_notice(std::size_t to, bool polls);
  LOCKSTEP_COLD_DECL void poll_members();

  LOCKSTEP_COLD_DECL void on(const Identity& from, const Notice& message, Time now);
  LOCKSTEP_COLD_DECL void on(const Identity& from, const Form& message, Time now);
  LOCKSTEP_COLD_DECL void on(const Identity& from, const MissingMembers& message, Time now);
  LOCKSTEP_COLD_DECL void on(const Identity& from, const Prepare& message, Time now);
  LOCKSTEP_COLD_DECL void on(const Identity& from, const Promise& message, Time now);
  LOCKSTEP_COLD_DECL void on(const Identity& from, const Accept& message, Time now);
  LOCKSTEP_COLD_DECL void on(const Identity& from, const Accepted& message, Time now);
  LOCKSTEP_COLD_DECL void on(const Identity& from, const Decided& message, Time now);
  LOCKSTEP_COLD_DECL void on(const Identity& from, const Refused& message, Time now);
  LOCKSTEP_COLD_DECL void notice_in_run(const Identity& from, const Notice& message);
  LOCKSTEP_COLD_DECL void notice_while_fresh(const Identity& from, const Notice& message, Time now);
  /// After a pause in which this process did not run: the others may have been heard meanwhile.
  LOCKSTEP_COLD_DECL void excuse_pause(Time now);
  /// True if the sender may ask this machine for a vote; answers it otherwise.
  LOCKSTEP_COLD_DECL bool may_ask(const Identity& from, const GenerationId& asked,
                                  const Ballot& ballot);

  /// False for a decision that no member can have made.
  LOCKSTEP_COLD_DECL bool is_possible(const Decision& next) const;
  /// Holds the votes of a run from now on, and of no other.
  LOCKSTEP_COLD_DECL void hold(std::uint64_t run);
  /// True if a member of a running job has been heard lately.
  LOCKSTEP_COLD_DECL bool hears_job(Time now) const;
  LOCKSTEP_COLD_DECL Contact& contact(const Identity& from);
  LOCKSTEP_COLD_DECL bool is_rejected(std::uint64_t incarnation) const;

  // --- before the first generation ---
  LOCKSTEP_COLD_DECL void tick_fresh(Time now);
  LOCKSTEP_COLD_DECL void form_first(Time now);
  /// The processes that have not come, as index 0 knows them.
  LOCKSTEP_COLD_DECL MissingMembers missing(Time now) const;

  // --- the end of a generation ---
  LOCKSTEP_COLD_DECL void begin_end(Time now);
  /// Whether a member can vote, and whether it can also be in the next generation.
  LOCKSTEP_COLD_DECL Presence voter(std::size_t rank, Time now) const;
  LOCKSTEP_COLD_DECL Presence presence(std::size_t rank, Time now) const;
  /// Proposes, waits, or gives up.
  LOCKSTEP_COLD_DECL void evaluate(Time now);
  /// True if the members that may still answer can decide; gives up if they cannot.
  LOCKSTEP_COLD_DECL bool has_quorum(Time now);
  LOCKSTEP_COLD_DECL void give_up(const std::vector<Presence>& members);
  LOCKSTEP_COLD_DECL void propose(const std::vector<Presence>& members, Time now);
  /// Votes on this machine, and asks the other machines that have not answered.
  LOCKSTEP_COLD_DECL void send_phase(Time now);
  /// Acts on a new phase of the proposer.
  LOCKSTEP_COLD_DECL void advance(Time now);
  LOCKSTEP_COLD_DECL void adopt(const Decision& decision, Time now);
  LOCKSTEP_COLD_DECL void finish(Outcome outcome);
  LOCKSTEP_COLD_DECL void fail(ElasticFailure::Kind kind, std::size_t rank,
                               std::string sentence = {});

  // --- newcomers ---
  LOCKSTEP_COLD_DECL std::vector<Seat> newcomers(Time now, const std::vector<Seat>& members) const;
  LOCKSTEP_COLD_DECL void update_newcomers(Time now);

  Identity self_;
  MachineId machine_;
  ParticipantRules rules_;
  VoteMemory& memory_;
  std::vector<Outgoing> outgoing_;
  std::optional<Outcome> outcome_;
  std::uint64_t serial_ = 0;
  Standing standing_ = Standing::fresh;
  bool waits_ = false;  // for the outcome of join or next
  bool has_newcomers_ = false, must_reform_ = false;
  bool untold_ = false;  // the current generation has not been an outcome
  bool left_out_ = false;
  std::vector<Contact> others_;  // by index: processes that are not members
  NewcomerPauses pauses_;
  Time next_poll_{}, next_resend_{};  // to processes; to machines

  // fresh
  std::uint64_t held_run_ = 0;  // whose votes this process holds; the only one that it may be in
  bool forming_ = false;        // index 0: asks the others to hold that run
  std::optional<std::uint32_t> left_by_;  // a member of the running job that has ended its work
  RollCall roll_call_;
  Time started_{}, running_heard_{};

  // in a run
  Decision decision_;
  std::size_t rank_ = 0;
  std::vector<Contact> members_;  // by rank
  std::vector<std::uint32_t> former_;
  std::vector<std::uint64_t> rejected_;
  Proposer proposer_;
  bool proposing_ = false;
  bool releases_ = false;  // rejected members: too few are left, which decide without their votes
  std::vector<Seat> proposed_;
  Time ended_{}, deadline_{}, retry_at_{}, last_tick_{};
  std::optional<Time> hopeless_since_;
  std::size_t connected_ = 0;  // ranks below this one that have had a letter in this generation
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/elastic/participant.ipp"
#endif
