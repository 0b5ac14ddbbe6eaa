/// \file
/// A model of one decision, for a search through all interleavings. It runs the library's Proposer,
/// Vote and Quorum. See docs/elastic-model.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "lockstep/cluster/elastic/ballot.hpp"
#include "lockstep/cluster/elastic/identity.hpp"
#include "lockstep/cluster/elastic/proposer.hpp"
#include "lockstep/cluster/elastic/quorum.hpp"

namespace elastic_test {

using lockstep::detail::Ballot;
using lockstep::detail::MachineId;
using lockstep::detail::Proposer;
using lockstep::detail::Quorum;
using lockstep::detail::Vote;

/// The limits of a search. `machines` is by rank.
struct Setup {
  std::vector<std::uint8_t> machines{};
  std::size_t attempts = 2;  ///< all calls of `begin` together
  std::size_t crashes = 2;
  // Faults of the protocol, which the search must find.
  bool quorum_without_dead = false, votes_die_with_processes = false, ignores_promises = false;
};

/// A message that was sent. It may be delivered at any time, in any order, or never; a question to
/// each machine. It is dropped once it can have no effect.
struct Sent {
  enum class Kind : std::uint8_t { prepare, promise, accept, accepted };
  Kind kind{};
  std::uint8_t machine = 0;  ///< of answers
  Ballot asked{}, promised{}, accepted{};
  std::string value{};
  auto operator<=>(const Sent&) const = default;
};

/// All processes, the votes of the machines, and the messages.
struct ModelState {
  std::vector<Proposer> proposers{};
  std::vector<bool> alive{};
  std::vector<Vote> votes{};           // by machine
  std::vector<Sent> sent{};            // sorted
  std::vector<std::string> decided{};  // different values that were decided
  std::size_t attempts = 0, crashes = 0;
  std::array<std::vector<bool>, 4> views{};  // by rank: the living, for `quorum_without_dead`

  void send(Sent message) {
    const auto at = std::lower_bound(sent.begin(), sent.end(), message);
    if (at == sent.end() || *at != message) sent.insert(at, std::move(message));
  }

  /// Equal for equal states only, except with a probability of 2^-64 for each pair.
  std::uint64_t fingerprint() const {
    std::uint64_t hash = 0x9E3779B97F4A7C15u;
    const auto add = [&](std::uint64_t n) {
      hash = (hash ^ n) * 0xFF51AFD7ED558CCDu;
      hash ^= hash >> 32;
    };
    const auto add_ballot = [&](const Ballot& ballot) { add(ballot.round * 16u + ballot.rank); };
    const auto add_text = [&](const std::string& text) {
      add(text.size());
      for (const char c : text) add(static_cast<unsigned char>(c));
    };
    for (std::size_t p = 0; p < proposers.size(); ++p) {
      const Proposer& proposer = proposers[p];
      add(alive[p]);
      add(static_cast<std::uint64_t>(proposer.phase()));
      add(proposer.seen());
      add_ballot(proposer.ballot());
      add_ballot(proposer.highest_accepted());
      add_text(proposer.value());
      for (const bool answered : proposer.answered()) add(answered + 2u);
    }
    for (const Vote& vote : votes) {
      add_ballot(vote.promised);
      add_ballot(vote.accepted);
      add_text(vote.value);
    }
    for (const Sent& message : sent) {
      add(static_cast<std::uint64_t>(message.kind) * 16u + message.machine);
      add_ballot(message.asked);
      add_ballot(message.promised);
      add_ballot(message.accepted);
      add_text(message.value);
    }
    for (const std::string& value : decided) add_text(value);
    for (const auto& view : views)
      for (const bool living : view) add(living + 2u);
    add(attempts * 16 + crashes);
    return hash;
  }
};

/// The result of a search.
struct Findings {
  std::size_t states = 0, transitions = 0, decided = 0;
  bool two_values = false;  ///< two different values were decided: a partition would train twice
  bool stuck = false;       ///< the living machines are a quorum, but cannot decide
};

/// The transitions of the model and the search.
class Model {
 public:
  explicit Model(Setup setup) : setup_(std::move(setup)) {
    std::vector<MachineId> ids;
    for (const auto machine : setup_.machines) ids.push_back({machine});
    quorum_ = Quorum(ids);
  }

  /// Searches depth first through all states, at most `limit` of them. In one of `sample` states it
  /// also checks that a decision can still be reached.
  Findings search(std::size_t limit, std::size_t sample) {
    Findings found;
    std::unordered_set<std::uint64_t> seen;
    std::vector<ModelState> todo{start()};
    seen.insert(todo.back().fingerprint());
    while (!todo.empty() && !found.two_values && !found.stuck && seen.size() < limit) {
      const ModelState state = std::move(todo.back());
      todo.pop_back();
      ++found.states;
      found.decided += !state.decided.empty();
      if (found.states % sample == 0) found.stuck = is_stuck(state);
      for (ModelState& next : successors(state)) {
        ++found.transitions;
        found.two_values = found.two_values || next.decided.size() > 1;
        if (seen.insert(next.fingerprint()).second) todo.push_back(std::move(next));
      }
    }
    if (!todo.empty() && !found.two_values && !found.stuck) found.states = 0;  // not complete
    return found;
  }

  ModelState start() const {
    ModelState state;
    for (std::uint32_t rank = 0; rank < setup_.machines.size(); ++rank)
      state.proposers.emplace_back(quorum_, rank);
    state.alive.assign(setup_.machines.size(), true);
    state.votes.resize(quorum_.size());
    return state;
  }

  std::vector<ModelState> successors(const ModelState& state) const {
    std::vector<ModelState> result;
    const auto add = [&](ModelState next) {
      prune(next);
      result.push_back(std::move(next));
    };
    for (std::size_t p = 0; p < state.proposers.size(); ++p) {
      if (!state.alive[p]) continue;
      if (state.crashes < setup_.crashes) add(crash(state, p));
      if (state.attempts == setup_.attempts ||
          state.proposers[p].phase() == Proposer::Phase::decided)
        continue;
      add(begin(state, p));
      // A refusal has reported the highest promise.
      ModelState informed = state;
      Ballot highest;
      for (const Vote& vote : state.votes) highest = std::max(highest, vote.promised);
      if (highest.round <= state.proposers[p].seen()) continue;
      informed.proposers[p].on_promise(0, {}, {highest, {}, {}});
      add(begin(std::move(informed), p));
    }
    for (const Sent& message : state.sent) {
      if (!is_question(message)) {
        add(answer(state, message));
        continue;
      }
      for (std::size_t machine = 0; machine < state.votes.size(); ++machine)
        if (matters(state, message, machine)) add(ask(state, message, machine));
    }
    return result;
  }

 private:
  /// True if a living member can vote for the machine.
  bool votes(const ModelState& state, std::size_t machine) const {
    for (std::size_t p = 0; p < state.alive.size(); ++p)
      if (state.alive[p] && quorum_.machine_of(p) == machine) return true;
    return false;
  }

  /// The quorum of the living members only.
  Quorum quorum_of(const std::vector<bool>& living) const {
    std::vector<MachineId> ids;
    for (std::size_t r = 0; r < living.size(); ++r)
      if (living[r]) ids.push_back({setup_.machines[r]});
    return Quorum(ids);
  }
  /// The number of a machine in that quorum; one that does not exist if it is not in it.
  std::size_t number_of(std::size_t machine, const std::vector<bool>& living) const {
    std::size_t position = 0;
    for (std::size_t r = 0; r < living.size(); ++r) {
      if (living[r] && quorum_.machine_of(r) == machine)
        return quorum_of(living).machine_of(position);
      position += living[r];
    }
    return living.size();
  }

  ModelState crash(ModelState state, std::size_t p) const {
    state.alive[p] = false;
    ++state.crashes;
    if (setup_.votes_die_with_processes) state.votes[quorum_.machine_of(p)] = {};
    return state;
  }

  ModelState begin(ModelState state, std::size_t p) const {
    ++state.attempts;
    Proposer& proposer = state.proposers[p];
    if (setup_.quorum_without_dead) {
      state.views[p] = state.alive;
      const std::uint32_t seen = proposer.seen();
      proposer = Proposer(quorum_of(state.views[p]), static_cast<std::uint32_t>(p));
      proposer.on_promise(0, {}, {{seen, 0}, {}, {}});  // so that no round is begun twice
    }
    // Each attempt has a value of its own: the worst case.
    const Ballot ballot{std::max(proposer.ballot().round, proposer.seen()) + 1,
                        proposer.ballot().rank};
    proposer.begin(std::string(1, static_cast<char>('a' + 4 * ballot.round + ballot.rank)));
    state.send({Sent::Kind::prepare, 0, proposer.ballot(), {}, {}, {}});
    return state;
  }

  static bool is_question(const Sent& message) {
    return message.kind == Sent::Kind::prepare || message.kind == Sent::Kind::accept;
  }
  /// True if the question would change the vote of the machine. Refusals are left out: a proposer
  /// may begin again without them.
  bool matters(const ModelState& state, const Sent& message, std::size_t machine) const {
    const Vote& vote = state.votes[machine];
    if (!votes(state, machine)) return false;
    Vote after = vote;
    if (message.kind == Sent::Kind::prepare)
      after.prepare(message.asked);
    else
      after.accept(message.asked, message.value);
    return after != vote;
  }
  /// True if the proposer would count the answer.
  bool counts(const ModelState& state, const Sent& message) const {
    const Proposer& proposer = state.proposers[message.asked.rank];
    const auto phase = message.kind == Sent::Kind::promise ? Proposer::Phase::preparing
                                                           : Proposer::Phase::accepting;
    if (!state.alive[message.asked.rank] || proposer.ballot() != message.asked ||
        proposer.phase() != phase)
      return false;
    const std::size_t machine = number_in(state, message);
    return machine < proposer.answered().size() && !proposer.answered()[machine];
  }
  /// Drops what can have no effect any more, so that more states are equal.
  void prune(ModelState& state) const {
    std::erase_if(state.sent, [&](const Sent& message) {
      if (!is_question(message)) return !counts(state, message);
      for (std::size_t machine = 0; machine < state.votes.size(); ++machine)
        if (matters(state, message, machine)) return false;
      return true;
    });
    for (std::uint32_t p = 0; p < state.alive.size(); ++p)
      if (!state.alive[p]) state.proposers[p] = Proposer(quorum_, p);
  }
  std::size_t number_in(const ModelState& state, const Sent& message) const {
    return setup_.quorum_without_dead ? number_of(message.machine, state.views[message.asked.rank])
                                      : message.machine;
  }

  ModelState ask(ModelState state, const Sent& message, std::size_t machine) const {
    Vote& vote = state.votes[machine];
    const auto number = static_cast<std::uint8_t>(machine);
    if (message.kind == Sent::Kind::prepare) {
      vote.prepare(message.asked);
      state.send(
          {Sent::Kind::promise, number, message.asked, vote.promised, vote.accepted, vote.value});
    } else {
      vote.accept(message.asked, message.value);
      state.send({Sent::Kind::accepted, number, message.asked, vote.promised, {}, {}});
    }
    return state;
  }

  ModelState answer(ModelState state, const Sent& message) const {
    Proposer& proposer = state.proposers[message.asked.rank];
    const auto before = proposer.phase();
    const std::size_t machine = number_in(state, message);
    if (message.kind == Sent::Kind::promise) {
      Vote vote{message.promised, message.accepted, message.value};
      if (setup_.ignores_promises) vote = {message.promised, {}, {}};
      proposer.on_promise(machine, message.asked, vote);
    } else {
      proposer.on_accepted(machine, message.asked, message.promised);
    }
    if (proposer.phase() == before) return state;
    if (proposer.phase() == Proposer::Phase::accepting)
      state.send({Sent::Kind::accept, 0, proposer.ballot(), {}, {}, proposer.value()});
    if (proposer.phase() == Proposer::Phase::decided) {
      const auto at =
          std::lower_bound(state.decided.begin(), state.decided.end(), proposer.value());
      if (at == state.decided.end() || *at != proposer.value())
        state.decided.insert(at, proposer.value());
    }
    return state;
  }

  /// True if the lowest living rank, undisturbed, does not decide although the living machines are
  /// a quorum.
  bool is_stuck(ModelState state) const {
    std::vector<bool> living(state.votes.size());
    for (std::size_t machine = 0; machine < living.size(); ++machine)
      living[machine] = votes(state, machine);
    if (!quorum_.reached(living)) return false;
    const auto p = static_cast<std::size_t>(
        std::find(state.alive.begin(), state.alive.end(), true) - state.alive.begin());
    Proposer& proposer = state.proposers[p];
    if (proposer.phase() == Proposer::Phase::decided) return false;
    for (const Vote& vote : state.votes) proposer.on_promise(0, {}, {vote.promised, {}, {}});
    state = begin(std::move(state), p);
    const Ballot ballot = state.proposers[p].ballot();
    for (const auto kind : {Sent::Kind::prepare, Sent::Kind::accept})
      for (std::size_t machine = 0; machine < living.size(); ++machine) {
        const auto question = std::find_if(
            state.sent.begin(), state.sent.end(),
            [&](const Sent& sent) { return sent.kind == kind && sent.asked == ballot; });
        if (!living[machine] || question == state.sent.end()) continue;
        state = ask(state, Sent(*question), machine);
        const Vote& vote = state.votes[machine];
        const bool first = kind == Sent::Kind::prepare;
        state = answer(state, {first ? Sent::Kind::promise : Sent::Kind::accepted,
                               static_cast<std::uint8_t>(machine), ballot, vote.promised,
                               vote.accepted, vote.value});
      }
    return state.proposers[p].phase() != Proposer::Phase::decided || state.decided.size() != 1;
  }

  Setup setup_;
  Quorum quorum_;
};

}  // namespace elastic_test
