#pragma once

#include "lockstep/training/checkpoint/checkpoint_writer.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process/threads.hpp"
#include "lockstep/files/safetensors.hpp"
#include "lockstep/training/checkpoint/byte_message.hpp"
#include "lockstep/training/report/start_line.hpp"

namespace lockstep::detail {

std::optional<CheckpointEntry> newest_entry(const CheckpointDirectory& from, const StateLayout& job,
                                            const std::vector<ParameterInfo>& parameters) {
  const auto check = [&](const CheckpointEntry& entry, std::string_view file, std::uint64_t size) {
    check_file_size(entry, file, size, parameters, job);
  };
  // If this process has no memory for the tensors.
  const auto keep_head = [](std::string_view file, std::span<const std::byte> begin) {
    std::uint64_t length = 0;
    if (file == callbacks_file_name || begin.size() < sizeof length)
      return std::numeric_limits<std::uint64_t>::max();
    std::memcpy(&length, begin.data(), sizeof length);
    return sizeof length + std::min(length, SafetensorsFile::import_limit);
  };
  const std::vector<std::uint64_t> steps = from.steps();
  std::string damaged;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      return job.is_distant ? from.read(*step, check, keep_head) : from.read(*step, check);
    } catch (const FileError& e) {  // also CheckpointError
      log(LogLevel::warning, e.what());
      add_item(damaged, ", ", from.path_of(*step));
    }
  }
  if (steps.empty()) return std::nullopt;
  throw CheckpointError(from.path(),
                        "no checkpoint is undamaged ({} cannot be used); restore one from a copy, "
                        "or start in another directory",
                        damaged);
}

/// Message with the chief's result: an entry, none, or an error.
[[gnu::cold]] inline ByteMessage found_by_chief(
    FunctionRef<std::optional<CheckpointEntry>()> find) {
  ByteMessage message;
  try {
    const std::optional<CheckpointEntry> entry = find();
    message.add(std::string_view(entry ? "entry" : "none"));
    if (!entry) return message;
    message.add(std::string_view(entry->path));
    message.add(std::string_view(entry->manifest));
    for (const auto& [name, bytes] : entry->files) {
      message.add(std::string_view(name));
      message.add(std::span<const std::byte>(bytes));
    }
  } catch (const FileError& e) {
    const bool is_damage = dynamic_cast<const CheckpointError*>(&e) != nullptr;
    message.set_error(is_damage ? "checkpoint error" : "file error", e.what());
  } catch (const UsageError& e) {
    message.set_error("usage error", e.what());
  } catch (const std::exception& e) {
    message.set_error("error", e.what());
  }
  return message;
}

std::optional<JobState> load_state(AnyReplicas& replicas, const StateLayout& job,
                                   std::string& notes,
                                   FunctionRef<std::optional<CheckpointEntry>()> find) {
  const TrainingPlace place = replicas.place();
  std::optional<CheckpointEntry> entry;
  if (place.is_alone) {
    entry = find();
  } else {
    ByteMessage message;
    if (place.is_chief) message = found_by_chief(find);
    replicas.broadcast(message.bytes);
    // A process that throws ends the job, also for those that still receive the message.
    replicas.agree("checkpoint", {});
    const std::string kind = message.next_text();
    if (kind == "checkpoint error") throw CheckpointError(message.next_text());
    if (kind == "file error") throw FileError(message.next_text());
    if (kind == "usage error") throw UsageError(message.next_text());
    if (kind == "error") throw Error(message.next_text());
    if (kind == "entry") {
      entry.emplace();
      entry->path = message.next_text();
      entry->manifest = message.next_text();
      while (message.has_next()) {
        std::string name = message.next_text();
        entry->files.emplace(std::move(name), message.next());
      }
    }
  }
  if (!entry) return std::nullopt;
  const std::string path = entry->path;
  const bool ignores =
      job.factors_layout == 0 && entry->files.contains(std::string(kept_file_name));
  JobState state = decode_state(std::move(*entry), replicas.parameters(), job, notes);
  if (ignores && place.is_chief)
    log(LogLevel::warning,
        format_text("checkpoint {}: it has gradients that replicas had not sent, in {}; this job "
                    "keeps none, and continues without them",
                    path, kept_file_name));
  return state;
}

JobState load_state(AnyReplicas& replicas, const StateLayout& job, const std::string& directory) {
  std::string notes;
  auto state = load_state(replicas, job, notes, [&] {
    auto entry = newest_entry(CheckpointDirectory(directory), job, replicas.parameters());
    if (!entry) throw FileError(directory, "it has no checkpoint; check the directory's name");
    return entry;
  });
  if (!notes.empty() && replicas.place().is_chief)
    log(LogLevel::warning, rounding_line(directory, notes));
  return std::move(*state);
}

void save_state(AnyReplicas& replicas, JobState state, const std::string& directory,
                std::size_t keep) {
  CheckpointWriter checkpoints(
      {.directory = directory, .keep = keep, .asynchronous = false, .required = true}, false,
      replicas, {});
  if (!replicas.place().is_chief) return;
  checkpoints.open();
  checkpoints.save(std::move(state));
}

CheckpointWriter::CheckpointWriter(const CheckpointOptions& options, bool removes,
                                   AnyReplicas& replicas, const std::vector<std::string>& metrics)
    : FitCheckpoints(options, replicas.place().is_chief),
      removes_(removes),
      replicas_(replicas),
      parameters_(replicas.parameters()),
      directory_(options.directory),
      monitor_("checkpoint", options.best.empty() ? "loss" : options.best, options.mode, 0) {
  if (!options_.best.empty()) monitor_.begin(metrics);
}

CheckpointWriter::~CheckpointWriter() {
  try {
    join();
  } catch (const std::exception& e) {
    log_error(e);
  }
}

std::optional<JobState> CheckpointWriter::begin(const StateLayout& job, std::string& notes) {
  auto state = load_state(replicas_, job, notes, [&]() -> std::optional<CheckpointEntry> {
    open();
    if (options_.resume) return newest_entry(directory_, job, parameters_);
    if (const auto steps = directory_.steps(); !steps.empty())
      throw UsageError(
          "checkpoint {}: the directory has the checkpoint of a run ({}); resume it, or choose "
          "another directory",
          options_.directory, directory_.path_of(steps.back()));
    return std::nullopt;
  });
  if (!state) return state;
  continue_from(*state, state->steps);
  return state;
}

void CheckpointWriter::continue_from(const JobState& state, std::optional<std::uint64_t> last) {
  last_step_ = last;
  if (!state.best || state.best->name != options_.best) return;
  best_ = state.best->value;
  best_step_ = state.best->step;
}

std::optional<BestCheckpoint> CheckpointWriter::best() const {
  if (!best_) return std::nullopt;
  return BestCheckpoint{options_.best, *best_, *best_step_};
}

void CheckpointWriter::open() {
  if (!is_chief_) return;
  directory_.open_for_writing();
  known_ = directory_.steps();
}

std::string CheckpointWriter::described() const {
  std::string text = options_.every == 0 ? std::string("after each epoch")
                                         : format_text("every {} steps", options_.every);
  if (!options_.best.empty()) text += format_text(", best '{}'", options_.best);
  return text;
}

void CheckpointWriter::warn_if_never_logged(const TrainingControl& run) {
  if (!options_.best.empty()) monitor_.warn_if_never_logged(run);
}

void CheckpointWriter::note_epoch(const Logs& logs, std::uint64_t steps) {
  if (options_.best.empty()) return;
  const auto value = monitor_.value(logs, is_chief_ ? 0 : 1);
  if (!value || !monitor_.improves(*value, best_)) return;
  best_ = value;
  best_step_ = steps;
}

void CheckpointWriter::save(JobState state) {
  wait();
  last_step_ = state.steps;
  // Always in a separate thread, which blocks signals: a write beyond the limit of file sizes
  // then fails with EFBIG instead of ending the process by SIGXFSZ.
  bool is_distant = false;
  try {
    auto shared = std::make_shared<JobState>(std::move(state));
    is_distant = shared->distant != nullptr;
    thread_ = start_thread("checkpoint", [this, best = best_step_, shared] {
      try {
        write(*shared, best);
      } catch (...) {
        error_ = std::current_exception();
      }
      shared->drop_buffers();
    });
  } catch (...) {
    error_ = std::current_exception();
  }
  if (!options_.asynchronous || is_distant) wait();  // the others answer until it is written
}

void CheckpointWriter::finish() {
  if (!removes_ || !is_chief_) return;
  keep_on_error([&] {
    directory_.open_for_writing();
    directory_.remove_all();
  });
}

void CheckpointWriter::wait() {
  try {
    join();
  } catch (const std::exception& e) {
    if (options_.required) throw;
    log_error(e);
  }
}

void CheckpointWriter::join() {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void CheckpointWriter::log_error(const std::exception& error) {
  log(LogLevel::error, format_text("checkpoint: {}; training goes on without it, and the older "
                                   "checkpoints are kept",
                                   error.what()));
}

void CheckpointWriter::write(const JobState& state, std::optional<std::uint64_t> best) {
  const EncodedState encoded(state, parameters_);
  try {
    if (!directory_.is_open()) open();  // by a process that has become the chief
  } catch (const DirectoryInUse& e) {
    if (replicas_.elastic() == nullptr) throw;
    // The last chief hangs; its end releases the lock.
    return log(LogLevel::warning,
               format_text("checkpoint: {}; the next checkpoint tries again", e.what()));
  }
  directory_.write(state.steps, encoded.files(), encoded.description());
  known_.push_back(state.steps);
  prune(state.steps, best);
}

void CheckpointWriter::prune(std::uint64_t newest, std::optional<std::uint64_t> best) {
  const std::vector<std::uint64_t> steps = directory_.steps();
  // The entry of a better value may have failed; then the best one is still that on disk.
  if (best && std::find(steps.begin(), steps.end(), *best) != steps.end()) {
    if (best != best_on_disk_) directory_.note("best", *best);
    best_on_disk_ = best;
  }
  std::size_t kept = 0;  // entries, from the newest back
  bool has_noted = false;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const bool is_known = std::find(known_.begin(), known_.end(), *step) != known_.end();
    if (*step > newest && !is_known && !std::exchange(has_noted, true))
      directory_.note("latest", *step);
    if (options_.keep == 0) continue;
    // Known entries after this one are damaged, or of an optimizer that was reset since.
    if (*step > newest ? is_known : kept >= options_.keep && *step != best_on_disk_)
      keep_on_error([&] { directory_.remove(*step); });
    else
      ++kept;
  }
}

void CheckpointWriter::keep_on_error(FunctionRef<void()> remove) {
  try {
    remove();
  } catch (const FileError& e) {
    log(LogLevel::warning, format_text("checkpoint: {}; an older checkpoint remains", e.what()));
  }
}

/// Makes a CheckpointWriter for a fit.
struct PluggedCheckpoints final : CheckpointPort {
  std::unique_ptr<FitCheckpoints> make(const CheckpointOptions& options, bool removes,
                                       AnyReplicas& replicas,
                                       const std::vector<std::string>& metrics) const override {
    return std::make_unique<CheckpointWriter>(options, removes, replicas, metrics);
  }
  void save(AnyReplicas& replicas, JobState state, const std::string& directory,
            std::size_t keep) const override {
    save_state(replicas, std::move(state), directory, keep);
  }
};
#ifdef LOCKSTEP_SEPARATE_COMPILATION
template <>
const CheckpointPort* port<CheckpointPort>() {
  return plug<CheckpointPort, PluggedCheckpoints>();
}
#else
inline const Plugged<CheckpointPort, PluggedCheckpoints> plugged_checkpoints;
#endif

}  // namespace lockstep::detail
