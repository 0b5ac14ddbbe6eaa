/// \file
/// Elastic jobs in simulated time: processes on machines that crash, stop, reboot and are cut off,
/// with the library's Participant in each. A program in each process forms the generations as a
/// Rendezvous does, and restarts when it ends with an error.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/cluster/elastic/participant.hpp"

namespace elastic_test {

using lockstep::detail::Decision;
using lockstep::detail::ElasticFailure;
using lockstep::detail::GenerationId;
using lockstep::detail::Identity;
using lockstep::detail::Letter;
using lockstep::detail::MachineId;
using lockstep::detail::Participant;
using lockstep::detail::ParticipantRules;
using lockstep::detail::Seat;
using lockstep::detail::Standing;
using lockstep::detail::Vote;
using lockstep::detail::VoteMemory;
using std::chrono::milliseconds;

/// splitmix64: the same on all systems.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t operator()() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  /// From 0 to n - 1.
  std::size_t below(std::size_t n) { return static_cast<std::size_t>((*this)() % n); }
  bool chance(unsigned percent) { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

/// The votes of one machine, by run: what VoteFile keeps in a folder.
struct SimulatedMachine {
  struct Folder {
    std::uint64_t number = 0;
    Vote vote{};
    std::set<std::size_t> users{};  // living processes, by index
  };
  MachineId id{};
  std::map<std::uint64_t, Folder> folders{};

  /// As the sweep when a process starts.
  void sweep() {
    std::erase_if(folders, [](const auto& entry) { return entry.second.users.empty(); });
  }
};

class SimulatedVotes final : public VoteMemory {
 public:
  SimulatedVotes(SimulatedMachine& machine, std::size_t index) : machine_(machine), index_(index) {}
  void enter(std::uint64_t run) override {
    leave();
    machine_.folders[run].users.insert(index_);
  }
  void leave() {
    for (auto& [run, folder] : machine_.folders) folder.users.erase(index_);
  }
  std::optional<Vote> change(const GenerationId& generation,
                             const std::function<void(Vote&)>& change) override {
    if (!blocked.empty()) return std::nullopt;
    auto& folder = machine_.folders.at(generation.run);
    if (folder.number > generation.number) return std::nullopt;
    if (folder.number < generation.number) folder.vote = {};
    folder.number = generation.number;
    change(folder.vote);
    return folder.vote;
  }
  std::string blocked_by() const override { return blocked; }

  std::string blocked{};  ///< the file whose lock another process holds

 private:
  SimulatedMachine& machine_;
  std::size_t index_;
};

/// The size of a simulation and its faults.
struct Weather {
  std::size_t processes = 3, machines = 1, min_workers = 1;
  unsigned loss = 0;               ///< percent of the letters
  int faults = 3;                  ///< crashes, stops, cuts and reboots
  milliseconds calm{1500};         ///< the longest time between two faults
  bool cuts = true, stops = true;  ///< of the network between machines; of processes
  bool forgetful = false;          ///< a fault of the protocol: votes die with the process
};

/// One job.
class Simulation {
 public:
  using Time = Participant::Time;

  Simulation(std::uint64_t seed, Weather weather)
      : random_(seed),
        weather_(weather),
        machines_(weather.machines),
        processes_(weather.processes) {
    for (auto& machine : machines_) reboot(machine);
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      processes_[i].machine = i * machines_.size() / processes_.size();
      at(milliseconds(random_.below(50)), [this, i] { start(i); });
    }
    at(milliseconds(100), [this] { next_fault(); });
  }

  /// Runs until all processes train together after the last fault. \return what is wrong; empty:
  /// nothing.
  std::string run(milliseconds limit = std::chrono::minutes(10)) {
    const Time end = now_ + limit;
    while (!events_.empty() && wrong_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.when;
      if (now_ > end) return "the processes do not train together after the last fault: " + state();
      event.action();
      if (faults_ == weather_.faults && complete()) return {};
    }
    return wrong_;
  }

  std::size_t generations() const { return decisions_.size(); }
  std::size_t formed() const { return formed_; }
  Time now() const { return now_; }
  bool trace = false;

 private:
  /// A process and its program.
  struct Process {
    std::size_t machine = 0;
    std::uint64_t life = 0;  // counts starts, so that events of an earlier one are dropped
    std::unique_ptr<SimulatedVotes> votes{};
    std::unique_ptr<Participant> participant{};  // null: not running
    Time stopped_until{};
    std::vector<std::function<void()>> held_back{};  // events while it is stopped
    std::optional<GenerationId> entered{};           // waits in a rendezvous, or trains
    bool trains = false;
    std::uint64_t entry = 0;
  };
  struct Event {
    Time when{};
    std::uint64_t order = 0;
    std::function<void()> action{};
    bool operator<(const Event& other) const {
      return std::pair(when, order) > std::pair(other.when, other.order);
    }
  };

  void at(milliseconds delay, std::function<void()> action) {
    events_.push({now_ + delay, ++order_, std::move(action)});
  }
  /// The same for an event in a process, which is held back while the process is stopped.
  void in(std::size_t i, milliseconds delay, std::function<void()> action) {
    at(delay,
       [this, i, life = processes_[i].life, action = std::move(action)] { act(i, life, action); });
  }
  void act(std::size_t i, std::uint64_t life, const std::function<void()>& action) {
    Process& process = processes_[i];
    if (!process.participant || process.life != life) return;
    if (process.stopped_until > now_) {
      process.held_back.push_back([this, i, life, action] { act(i, life, action); });
      return;
    }
    action();
    if (process.participant && process.life == life) after(i);
  }

  void start(std::size_t i) {
    Process& process = processes_[i];
    if (process.participant) return;
    SimulatedMachine& machine = machines_[process.machine];
    machine.sweep();
    ++process.life;
    process.stopped_until = {};
    process.held_back.clear();
    process.entered.reset();
    process.trains = false;
    const std::uint64_t incarnation = random_();
    ParticipantRules rules;
    rules.described = processes_.size();
    rules.seats.min_workers = weather_.min_workers;
    rules.silence = milliseconds(1000);
    rules.patience = milliseconds(8000);
    rules.random = [this] { return random_(); };
    rules.port = [] { return std::uint16_t{1}; };
    process.votes = std::make_unique<SimulatedVotes>(machine, i);
    process.participant = std::make_unique<Participant>(
        Identity{static_cast<std::uint32_t>(i), incarnation}, machine.id, rules, *process.votes);
    process.participant->join(now_);
    after(i);
    tick(i);
  }
  void tick(std::size_t i) {
    in(i, processes_[i].participant->waits() ? milliseconds(50) : milliseconds(250), [this, i] {
      processes_[i].participant->tick(now_);
      work(i);
      if (processes_[i].participant) tick(i);
    });
  }

  /// Sends what a participant wants to send, and acts on its outcome.
  void after(std::size_t i) {
    Participant& participant = *processes_[i].participant;
    for (auto& outgoing : participant.take_outgoing()) send(i, outgoing.to, outgoing.letter);
    if (const auto outcome = participant.take_outcome()) {
      if (const auto* const decision = std::get_if<Decision>(&*outcome))
        enter(i, *decision);
      else
        end(i);
    }
  }
  void send(std::size_t from, std::size_t to, const Letter& letter) {
    if (cut(from, to) || random_.chance(weather_.loss)) return;
    const milliseconds delay(1 + random_.below(random_.chance(5) ? 200 : 5));
    if (!processes_[to].participant)
      return in(from, milliseconds(1), [this, from, to] {
        if (!processes_[to].participant) processes_[from].participant->refused(to, now_);
      });
    in(to, delay, [this, from, to, letter] {
      if (!cut(from, to)) processes_[to].participant->receive(letter, now_);
    });
  }
  bool cut(std::size_t from, std::size_t to) const {
    const std::size_t a = processes_[from].machine, b = processes_[to].machine;
    return a != b && now_ < cut_until_ && (a == cut_off_) != (b == cut_off_);
  }

  // --- the program ---

  void enter(std::size_t i, const Decision& decision) {
    Process& process = processes_[i];
    const GenerationId id{decision.run, decision.number};
    const auto [known, fresh] = decisions_.try_emplace({id.run, id.number}, decision);
    if (!(known->second == decision)) wrong_ = "two memberships of one generation";
    (void)fresh;
    process.entered = id;
    process.trains = false;
    // All must be in it for a step; else the rendezvous fails after a while.
    const bool all = std::all_of(decision.seats.begin(), decision.seats.end(),
                                 [&](const Seat& seat) { return is_in(seat, id); });
    if (all) {
      ++formed_;
      for (const Seat& seat : decision.seats) processes_[seat.who.index].trains = true;
      check_one_trains();
      return;
    }
    in(i, milliseconds(2000), [this, i, id, entry = ++process.entry] {
      Process& late = processes_[i];
      if (late.entered != id || late.trains || late.entry != entry) return;
      late.participant->reject_newcomers(now_);
      const Decision& failed = decisions_.at({id.run, id.number});
      const auto rank = failed.rank_of(late.participant->self());
      if (id.number > 0 && rank && failed.seats[*rank].former == Seat::newcomer) return end(i);
      next(i);
    });
  }
  bool is_in(const Seat& seat, const GenerationId& id) const {
    const Process& process = processes_[seat.who.index];
    return process.participant && process.participant->self() == seat.who && process.entered == id;
  }
  void next(std::size_t i) {
    processes_[i].entered.reset();
    processes_[i].trains = false;
    processes_[i].participant->next(now_);
  }
  /// A step: fails if a member is not there any more, and is the boundary for newcomers.
  void work(std::size_t i) {
    Process& process = processes_[i];
    if (!process.entered || !process.trains || !process.participant) return;
    const Decision& decision = process.participant->decision();
    bool complete = true, newcomers = false;
    for (const Seat& seat : decision.seats) {
      complete = complete && is_in(seat, *process.entered);
      if (complete)
        newcomers = newcomers || processes_[seat.who.index].participant->has_newcomers();
    }
    if (!complete || newcomers || process.participant->must_reform()) next(i);
  }
  void end(std::size_t i) {
    kill(i);
    at(milliseconds(200 + random_.below(500)), [this, i] { start(i); });
  }
  void kill(std::size_t i) {
    Process& process = processes_[i];
    if (!process.participant) return;
    process.votes->leave();
    if (weather_.forgetful)
      for (auto& [run, folder] : machines_[process.machine].folders) folder.vote = {};
    graveyard_.push_back(std::move(process.participant));  // its own function may be running
    process.entered.reset();
    process.trains = false;
  }

  // --- faults ---

  void next_fault() {
    if (faults_ == weather_.faults) return;
    ++faults_;
    const std::size_t i = random_.below(processes_.size());
    const std::size_t kind = random_.below(10);
    if (kind < 6 || (kind == 6 && !weather_.stops) || (kind > 6 && !weather_.cuts)) {
      kill(i);
      if (random_.chance(30)) kill(random_.below(processes_.size()));  // two at once
      for (std::size_t p = 0; p < processes_.size(); ++p)
        if (!processes_[p].participant)
          at(milliseconds(100 + random_.below(1500)), [this, p] { start(p); });
    } else if (kind == 6) {
      processes_[i].stopped_until = now_ + milliseconds(random_.below(4000));
      at(milliseconds(4000), [this, i] { resume(i); });
    } else if (kind < 9) {
      cut_off_ = random_.below(machines_.size());
      cut_until_ = now_ + milliseconds(random_.below(6000));
    } else {
      const std::size_t m = processes_[i].machine;
      for (std::size_t p = 0; p < processes_.size(); ++p)
        if (processes_[p].machine == m && processes_[p].participant) end(p);
      reboot(machines_[m]);
    }
    at(milliseconds(random_.below(static_cast<std::size_t>(weather_.calm.count()))),
       [this] { next_fault(); });
  }
  void resume(std::size_t i) {
    processes_[i].stopped_until = {};
    for (const auto& action : std::exchange(processes_[i].held_back, {})) action();
  }
  void reboot(SimulatedMachine& machine) {
    machine.folders.clear();
    for (auto& byte : machine.id) byte = static_cast<std::uint8_t>(random_());
  }

  // --- invariants ---

  /// At most one generation can do a step: one whose members are all in it.
  void check_one_trains() {
    std::set<GenerationId> training;
    for (const auto& [key, decision] : decisions_) {
      const GenerationId id{key.first, key.second};
      if (std::all_of(decision.seats.begin(), decision.seats.end(),
                      [&](const Seat& seat) { return is_in(seat, id); }))
        training.insert(id);
    }
    if (training.size() > 1) wrong_ = "two generations train at once";
  }
  bool complete() const {
    const auto& first = processes_[0].entered;
    return first && std::all_of(processes_.begin(), processes_.end(), [&](const Process& process) {
             return process.participant && process.trains && process.entered == first;
           });
  }
  std::string state() const {
    std::string text;
    for (const Process& process : processes_) {
      text += process.participant ? std::to_string(int(process.participant->standing())) : "-";
      if (process.participant && process.participant->waits()) text += "w";
      if (process.entered) text += " in " + std::to_string(process.entered->number);
      text += process.trains ? " trains; " : "; ";
    }
    return text;
  }

  Random random_;
  Weather weather_;
  std::vector<SimulatedMachine> machines_;
  std::vector<Process> processes_;
  std::vector<std::unique_ptr<Participant>> graveyard_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Decision> decisions_;
  std::priority_queue<Event> events_;
  std::uint64_t order_ = 0;
  Time now_ = Time(std::chrono::hours(1));
  std::size_t cut_off_ = 0, formed_ = 0;
  Time cut_until_{};
  int faults_ = 0;
  std::string wrong_;
};

}  // namespace elastic_test
