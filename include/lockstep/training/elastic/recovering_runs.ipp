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
  state.reset();
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
  if (has_all) return donor;
  StateLayout layout = replicas.layout();
  layout.totals = replicas.begin_logs().totals().size();
  const auto root = static_cast<std::size_t>(all[donor].root);
  const bool is_donor = donor == replicas.place().rank, is_behind = mine.is_behind(all[donor]);
  std::vector<std::byte> bytes;
  if (is_donor) bytes = message_of(own);
  replicas.broadcast_from(root, bytes);
  if (is_behind) state = state_in_message(std::move(bytes), layout);
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

void RecoveringRuns::join(AnyReplicas& replicas) {
  JobState own;  // not needed, since a process that has just made its model has no state to give
  std::vector<RunStanding> all;
  std::optional<JobState> state;
  RunStanding mine;
  const std::size_t donor = exchange(replicas, mine, own, all, state);
  if (!state) return;
  replicas.load(*state);
  set_pending(all[donor], std::move(*state));
}

void RecoveringRuns::set_pending(RunStanding at, JobState state) {
  at.is_complete = 0;  // this process does not have the result
  pending_ = Pending{at, std::move(state)};
}

RecoveringRuns::Entry RecoveringRuns::enter(AnyReplicas& replicas, BetweenRuns& kept) {
  if (replicas.must_reform()) {
    const bool has_joined = pending_.has_value();
    Recovered now =
        has_joined
            ? recover(replicas, "another worker was lost", pending_->at, pending_->state)
            : recover(replicas, "another worker was lost", {.call = call_}, kept.with(replicas));
    if (!now.has_returned && (has_joined || now.at.has_begun != 0)) {
      Signature signature = std::move(now.state.signature);
      replicas.save(now.state);  // the buffers, which only the replicas have
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
                  kept.with(replicas));
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
