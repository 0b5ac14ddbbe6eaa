#pragma once

#include "lockstep/training/elastic/elastic_runs.hpp"

#include <span>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/training/checkpoint/byte_message.hpp"
#include "lockstep/training/run.hpp"
#include "lockstep/training/signal_stop.hpp"

namespace lockstep::detail {

[[gnu::cold]] inline std::vector<std::byte> state_message(
    const JobState& state, const std::vector<ParameterInfo>& parameters) {
  const EncodedState encoded(state, parameters);
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

/// `own`: a state with the type and the sizes of this model's buffers.
[[gnu::cold]] inline JobState state_in_message(std::vector<std::byte> bytes,
                                               const std::vector<ParameterInfo>& parameters,
                                               const JobState& own) {
  ByteMessage message;
  message.bytes = std::move(bytes);
  CheckpointEntry entry;
  entry.path = "the state of another worker";
  entry.manifest = message.next_text();
  while (message.has_next()) {
    std::string name = message.next_text();
    entry.files.emplace(std::move(name), message.next());
  }
  JobState sizes = own;
  sizes.signature.clear();  // compared when the generation was formed
  std::string notes;
  return decode_state(std::move(entry), parameters, sizes, notes);
}

std::size_t ElasticRuns::exchange(AnyReplicas& replicas, RunStanding mine, const JobState& own,
                                  std::vector<RunStanding>& all, std::optional<JobState>& state) {
  state.reset();
  mine.root = replicas.place().first_replica;
  all = read_standings(replicas.gather(std::as_bytes(std::span(&mine, 1))));
  const std::size_t donor = donor_of(all);
  if (all[donor].call == 0) return donor;
  const std::vector<ParameterInfo> parameters = replicas.parameters();
  std::vector<std::byte> bytes;
  if (donor == replicas.place().rank) bytes = state_message(own, parameters);
  replicas.broadcast_from(static_cast<std::size_t>(all[donor].root), bytes);
  state = state_in_message(std::move(bytes), parameters, own);
  return donor;
}

/// The state of a model between two calls.
[[gnu::cold]] inline JobState state_between_calls(const AnyReplicas& replicas,
                                                  const BetweenRuns& kept) {
  JobState state;
  replicas.save(state);
  kept.save(state);
  return state;
}

void ElasticRuns::join(AnyReplicas& replicas) {
  JobState own;
  replicas.save(own);
  own.totals.resize(replicas.begin_logs().totals().size());
  std::vector<RunStanding> all;
  std::optional<JobState> state;
  const std::size_t donor = exchange(replicas, {}, own, all, state);
  if (!state) return;
  replicas.load(*state);
  set_pending(all[donor], std::move(*state));
}

void ElasticRuns::set_pending(RunStanding at, JobState state) {
  at.is_complete = 0;  // this process does not have the result
  pending_ = Pending{at, std::move(state)};
}

void ElasticRuns::note_nested_call() {
  if (!allows_nested_)
    throw UsageError(
        "callback: in an elastic job evaluate, predict and fit are called in on_train_batch_end and "
        "on_epoch_end only; move the call there");
  ++nested_;
}

ElasticRuns::Entry ElasticRuns::enter(AnyReplicas& replicas, BetweenRuns& kept) {
  if (replicas.must_reform()) {
    const bool has_joined = pending_.has_value();
    Recovered now =
        has_joined ? recover(replicas, "another worker was lost", pending_->at, pending_->state)
                   : recover(replicas, "another worker was lost", {.call = call_},
                             state_between_calls(replicas, kept));
    if (!now.has_returned && (has_joined || now.at.has_begun != 0))
      set_pending(now.at, std::move(now.state));
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

void ElasticRuns::finish(AnyReplicas& replicas) {
  const std::byte here{1};
  replicas.gather(std::span(&here, 1));
}

Recovered ElasticRuns::recover(AnyReplicas& replicas, const std::string& why, RunStanding mine,
                               JobState own) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<RunStanding> all;
  std::optional<JobState> state;
  std::size_t donor = 0;
  try {
    replicas.reform(why, own, [&] { donor = exchange(replicas, mine, own, all, state); });
  } catch (const PeerLost& e) {
    const int signal = stop_.stop_requested() ? reported_signal(stop_) : 0;
    if (signal == 0) throw;
    log(LogLevel::warning, e.what());
    throw Evicted(signal);
  }
  Recovered now{.at = all[donor], .phase = mine.phase};
  now.has_returned = now.at.call > mine.call;
  now.is_behind = mine.is_behind(now.at);
  now.are_complete = true;
  for (const RunStanding& s : all)
    now.are_complete = now.are_complete && s.call == mine.call && s.is_complete != 0;
  if (state && now.has_returned)
    set_pending(now.at, std::move(*state));
  else if (state)
    now.state = std::move(*state);
  replicas.load(now.has_returned || !state ? own : now.state);
  if (replicas.place().is_chief)
    log(LogLevel::info,
        fmt::format("elastic: {}; recovered in {:.2f} s, continues after step {}",
                    replicas.describe_change(),
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
                    replicas.steps()));
  return now;
}

void ElasticRuns::repeat(AnyReplicas& replicas, BetweenRuns& kept, const std::stop_token& stop,
                         FunctionRef<void()> run, FunctionRef<void()> undo) {
  const Scope scope(*this, stop);
  if (enter(replicas, kept).skip) return;
  bool is_complete = false;
  for (;;) {
    std::string why;
    try {
      if (!is_complete) run();
      is_complete = true;
      return finish(replicas);
    } catch (const PeerLost& e) {
      why = e.what();
    }
    try {
      const Recovered now =
          recover(replicas, why, {.call = call_, .is_complete = is_complete ? 1U : 0U},
                  state_between_calls(replicas, kept));
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

}  // namespace lockstep::detail
