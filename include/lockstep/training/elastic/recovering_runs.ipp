#pragma once

#include "lockstep/training/elastic/recovering_runs.hpp"

#include <algorithm>
#include <chrono>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process/stop_of_process.hpp"
#include "lockstep/training/checkpoint/byte_message.hpp"
#include "lockstep/training/checkpoint/encoded_state.hpp"
#include "lockstep/training/elastic/elastic_fit.hpp"
#include "lockstep/training/elastic/range_exchange.hpp"
#include "lockstep/training/run.hpp"
#include "lockstep/training/signal_stop.hpp"

namespace lockstep::detail {

/// A state without its buffers.
[[gnu::cold]] inline std::vector<std::byte> message_of(const JobState& state) {
  const EncodedState encoded(state, {});
  ByteMessage message;
  message.add(std::string_view(encoded.description() + "\n}"));
  for (const CheckpointFile& file : encoded.files()) {
    message.add(std::string_view(file.name));
    std::vector<std::byte> bytes;
    for (const auto& part : file.bytes) bytes.insert(bytes.end(), part.begin(), part.end());
    message.add(std::span<const std::byte>(bytes));
  }
  return std::move(message.bytes);
}

[[gnu::cold]] inline JobState state_in_message(std::vector<std::byte> bytes,
                                               const StateLayout& layout) {
  ByteMessage message;
  message.bytes = std::move(bytes);
  CheckpointEntry entry;
  entry.path = "the state of another worker";
  entry.manifest = message.next_text();
  while (message.has_next()) {
    std::string name = message.next_text();
    entry.files.emplace(std::move(name), message.next());
  }
  std::string notes;
  // The signature was compared when the generation was formed.
  JobState state =
      decode_state(std::move(entry), {}, {.type = layout.type, .totals = layout.totals}, notes);
  for (const std::string& slot : layout.slot_names)
    state.slot_values.emplace_back(slot, std::vector<std::byte>());
  return state;
}

/// Whether all processes have the result of this call.
[[gnu::cold]] inline bool are_complete(const std::vector<RunStanding>& all, std::uint64_t call) {
  return std::all_of(all.begin(), all.end(),
                     [&](const RunStanding& s) { return s.call == call && s.is_complete != 0; });
}

std::size_t RecoveringRuns::exchange(AnyReplicas& replicas, RunStanding& mine, JobState& own,
                                     std::vector<RunStanding>& all,
                                     std::optional<JobState>& state) {
  std::optional<JobState> before = std::exchange(state, std::nullopt);
  mine.root = replicas.place().first_replica;
  all = read_standings(replicas.gather(std::as_bytes(std::span(&mine, 1))));
  const std::size_t donor = donor_of(all);
  if (all[donor].call == 0) return donor;
  if (all[donor].call == mine.call && !are_complete(all, mine.call)) {
    boundary_.roll_back(own);
    has_rolled_back_ = true;
    mine.is_complete = 0;  // also if a process is lost meanwhile
  }
  const bool has_all =
      std::none_of(all.begin(), all.end(), [&](const auto& s) { return s.is_behind(all[donor]); });
  if (has_all) {
    if (!replicas.is_whole())
      exchange_owned(replicas, mine, own, all, donor, state, std::move(before));
    return donor;
  }
  StateLayout layout = replicas.layout();
  layout.totals = replicas.begin_logs().totals().size();
  const auto root = static_cast<std::size_t>(all[donor].root);
  const bool is_donor = donor == replicas.place().rank, is_behind = mine.is_behind(all[donor]);
  std::vector<std::byte> bytes;
  if (is_donor) bytes = message_of(own);
  replicas.broadcast_from(root, bytes);
  if (is_behind) state = state_in_message(std::move(bytes), layout);
  if (!replicas.is_whole()) {
    exchange_owned(replicas, mine, own, all, donor, state, std::move(before));
    if (is_behind && all[donor].call == mine.call) replicas.load(*state);
    return donor;
  }
  // Only a process that continues with the state later keeps a copy of it.
  const bool to_replicas = is_behind && all[donor].call == mine.call;
  for (std::size_t i = 0; i < layout.buffers(); ++i) {
    const std::size_t size = i == 1 ? layout.state : layout.weights;
    const auto receive = [&](std::span<std::byte> to) {
      replicas.broadcast_from(root, size, nullptr, to.data());
    };
    if (to_replicas) {
      replicas.set_buffer(i, receive);
    } else if (is_behind) {
      buffer_of(*state, i).resize(size);
      receive(buffer_of(*state, i));
    } else {
      replicas.broadcast_from(root, size, is_donor ? buffer_of(own, i).data() : nullptr, nullptr);
    }
  }
  if (to_replicas) replicas.load_facts(*state);
  return donor;
}

/// Places of the slots that a process needs, or has.
[[gnu::cold]] inline void allocate_slots(JobState& state, std::size_t bytes) {
  for (auto& slot : state.slot_values) slot.second.resize(bytes);
}

/// Sends the layers' state `from` a process that `has` it `to` all.
[[gnu::cold]] inline void exchange_state(AnyReplicas& replicas, const std::vector<RunStanding>& all,
                                         bool has, const std::vector<std::byte>& from,
                                         std::vector<std::byte>& to) {
  if (to.empty()) return;
  const std::byte mine{has};
  const auto givers = replicas.gather({&mine, 1});
  for (std::size_t i = 0; i < givers.size(); ++i) {
    if (givers[i].at(0) == std::byte{}) continue;
    replicas.broadcast_from(static_cast<std::size_t>(all[i].root), to.size(), from.data(),
                            to.data());
    if (i == replicas.place().rank) to = from;
    return;
  }
  try {
    ElasticRuns::finish(replicas);  // none leaves before all know
  } catch (const PeerLost&) {
  }
  replicas.throw_owners_lost();
}

void RecoveringRuns::exchange_owned(AnyReplicas& replicas, const RunStanding& mine, JobState& own,
                                    const std::vector<RunStanding>& all, std::size_t donor,
                                    std::optional<JobState>& state,
                                    std::optional<JobState> before) {
  const StateLayout layout = replicas.layout();
  const std::size_t element = size_of(layout.type), n = layout.weights / element;
  const bool is_behind = mine.is_behind(all[donor]);
  const auto root = static_cast<std::size_t>(all[donor].root);
  JobState& to = is_behind ? *state : own;
  to.weights.resize(layout.weights);
  to.state.resize(layout.state);
  std::uint64_t steps = own.steps;  // of the donor
  replicas.broadcast_from(root, sizeof steps, reinterpret_cast<const std::byte*>(&steps),
                          reinterpret_cast<std::byte*>(&steps));
  // The elements of this process as of the donor's boundary. One that has not passed it may have made
  // the update that others have received.
  const OwnedState none;
  const RunStanding& at = all[donor];
  const bool has_received = is_behind && before && before->owned && received_at_ &&
                            !received_at_->is_behind(at) && !at.is_behind(*received_at_);
  const JobState& mine_now = has_received ? *before : own;
  const OwnedState& its = mine_now.owned ? *mine_now.owned : none;
  const bool has_later = is_behind && !its.later.empty();
  const std::uint64_t version = has_later ? its.later_steps : mine_now.steps;
  const bool offers = !is_behind || (its.owned.size() > 0 && version == steps);
  exchange_state(replicas, all, offers && its.has_state && (!is_behind || !its.later_state.empty()),
                 has_later ? its.later_state : own.state, to.state);
  const auto held = [&](const auto& ranges) {
    std::vector<HeldRange> result;
    if (offers)
      for (const Slice& range : ranges) result.push_back({range, version});
    return result;
  };
  const auto source = [&](std::size_t i) -> const std::byte* {
    if (has_later) return its.later[i].data();
    return i == 0 ? mine_now.weights.data() : mine_now.slot_values[i - 1].second.data();
  };
  const Ranges whole{{0, n}};
  // Until all processes have theirs, none gives up what it had.
  const Ranges needs =
      union_of(replicas.owned().parts(), offers ? its.owned.parts() : std::span<const Slice>());
  const auto exchange = [&](const Ranges& has, const Ranges& wanted, const RangeBuffers& buffers) {
    try {
      exchange_ranges(replicas, {held(has), wanted}, buffers);
    } catch (const RangeLost&) {
      try {
        finish(replicas);  // none leaves before all know
      } catch (const PeerLost&) {
      }
      replicas.throw_owners_lost();
    }
  };
  const bool has_weights = (!is_behind || has_received) && its.has_weights;
  exchange(has_weights ? whole : its.owned, whole,
           {.from = {offers ? source(0) : nullptr}, .to = {to.weights.data()}, .element = element});
  const bool owns = needs.size() > 0;
  allocate_slots(to, owns ? layout.weights : 0);
  if (steps == 0) {  // they have the optimizer's initial values
    JobState initial;
    replicas.save_own(initial);
    to.slot_values = std::move(initial.slot_values);
    to.owned.emplace().owned = replicas.owned();
    return finish(replicas);
  }
  RangeBuffers buffers{.from = {}, .to = {}, .element = element};
  for (std::size_t i = 0; i < to.slot_values.size(); ++i) {
    buffers.from.push_back(offers && its.owned.size() > 0 ? source(i + 1) : nullptr);
    buffers.to.push_back(owns ? to.slot_values[i].second.data() : nullptr);
  }
  exchange(its.owned, needs, buffers);
  to.owned.emplace().owned = needs;
  if (is_behind) received_at_ = at;
  finish(replicas);
}

void RecoveringRuns::join(AnyReplicas& replicas) {
  JobState own;  // not needed, since a process that has just made its model has no state to give
  std::vector<RunStanding> all;
  RunStanding mine;
  const std::size_t donor = exchange(replicas, mine, own, all, joining_);
  if (!joining_) return;
  replicas.load(*joining_);
  set_pending(all[donor], std::move(*std::exchange(joining_, std::nullopt)));
}

void RecoveringRuns::set_pending(RunStanding at, JobState state) {
  at.is_complete = 0;  // this process does not have the result
  pending_ = Pending{at, std::move(state)};
}

RecoveringRuns::Entry RecoveringRuns::enter(AnyReplicas& replicas, BetweenRuns& kept) {
  if (replicas.must_reform()) {
    const bool has_joined = pending_.has_value();
    Recovered now =
        has_joined ? recover(replicas, "another worker was lost", pending_->at, pending_->state)
                   : recover(replicas, "another worker was lost", {.call = call_},
                             kept.with_own(replicas));
    if (!now.has_returned && (has_joined || now.at.has_begun != 0)) {
      Signature signature = std::move(now.state.signature);
      replicas.save_own(now.state);  // the buffers, which only the replicas have
      now.state.signature = std::move(signature);
      set_pending(now.at, std::move(now.state));
    }
  }
  if (!pending_) return {};
  // Again, since the program may have changed the model since it joined.
  replicas.load(pending_->state);
  kept.restore(pending_->state);
  if (call_ < pending_->at.call) return {.skip = true};
  Recovered at{.at = pending_->at, .state = std::move(pending_->state)};
  pending_.reset();
  return {.at = std::move(at)};
}

Recovered RecoveringRuns::recover(AnyReplicas& replicas, const std::string& why, RunStanding mine,
                                  JobState own) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<RunStanding> all;
  std::optional<JobState> state;
  std::size_t donor = 0;
  boundary_.pause();
  has_rolled_back_ = false;
  received_at_.reset();
  or_evicted(
      [&] {
        replicas.reform(why, own, [&] { donor = exchange(replicas, mine, own, all, state); });
      },
      [&] { return stop_.stop_requested() ? reported_signal(stop_) : 0; });
  Recovered now{.at = all[donor]};
  now.has_returned = now.at.call > mine.call;
  now.is_behind = mine.is_behind(now.at);
  now.are_complete = are_complete(all, mine.call);
  if (now.has_returned) {
    replicas.load(own);
    if (state) set_pending(now.at, std::move(*state));
  } else {
    if (!state) replicas.load(own);
    now.state = state ? std::move(*state) : std::move(own);
    now.state.drop_buffers();  // the replicas have them
  }
  boundary_.clear();
  if (replicas.place().is_chief)
    log(LogLevel::info,
        format_text("elastic: {}; recovered in {:.2f} s, continues after step {}",
                    replicas.describe_change(),
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
                    replicas.steps()));
  return now;
}

void RecoveringRuns::fit(FitLoop& loop, AnyReplicas& replicas, BetweenRuns& kept,
                         const std::stop_token& stop) {
  ElasticFit(*this, loop, replicas, kept).run(stop);
}

void RecoveringRuns::repeat(AnyReplicas& replicas, BetweenRuns& kept, const std::stop_token& stop,
                            FunctionRef<void()> run, FunctionRef<void()> undo) {
  const Scope scope(*this, stop);
  if (enter(replicas, kept).skip) return;
  bool is_complete = false;
  for (;;) {
    std::string why;
    try {
      if (!is_complete) {
        boundary_.mark(replicas);
        run();
      }
      is_complete = true;
      return finish(replicas);
    } catch (const PeerLost& e) {
      why = e.what();
    }
    try {
      const Recovered now =
          recover(replicas, why, {.call = call_, .is_complete = is_complete ? 1U : 0U},
                  kept.with_own(replicas));
      if (now.has_returned) return;
      if (now.are_complete) continue;
    } catch (const Error& e) {
      if (!is_complete) throw;
      return log(LogLevel::warning, e.what());  // the next call throws
    }
    is_complete = false;
    undo();
  }
}

std::unique_ptr<ElasticRuns> make_elastic_runs() { return std::make_unique<RecoveringRuns>(); }

}  // namespace lockstep::detail
