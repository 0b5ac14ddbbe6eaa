/// \file
/// The parsed command line of a program. Invariants: all values have been checked; no file
/// has been opened yet.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/training/report/progress.hpp>

namespace support {

/// A program's name, description, defaults, and which options it has.
struct Program {
  std::string name{}, description{};
  int epochs = 1;
  std::size_t batch = 1;
  bool batch_is_per_replica = false;  ///< the default batch is per replica of the job
  double learning_rate = 0.01;
  bool reads_data = true;  ///< --data, --skip, --take, --no-shuffle, --validate, --virtual-shards
  std::string data = "folder with the data; default: drawn images";  ///< the help of --data
  std::string examples = "images";                                   ///< what --skip counts
  bool has_optimizers = false;    ///< --optimizer; --show without workers
  bool has_depths = false;        ///< --depth, --no-augment
  bool has_text = false;          ///< a language model's options, those of TextOptions
  std::size_t replica_limit = 0;  ///< maximum of --replicas; 0: no such option
  bool counts_devices = false;    ///< uses all GPUs by default: no --threads
  /// --cluster, --task, --elastic, --stall-timeout, --idle-timeout, --stragglers
  bool has_workers = false;
  bool has_servers = false;  ///< --mode, --staleness, --backup-workers, --ps-replicas
  bool has_updates = false;  ///< --update, --sync-every, --wire, --wire-warm-up
};

/// The file of the architecture that goes with the weights `path`: w.json for w.safetensors, otherwise with
/// ".json" added.
inline std::string architecture_path(const std::string& path) {
  constexpr std::string_view ending = ".safetensors";
  const bool has_ending = path.size() > ending.size() && path.ends_with(ending);
  return path.substr(0, path.size() - (has_ending ? ending.size() : 0)) + ".json";
}

/// The options of a language model.
struct TextOptions {
  std::string size = "tiny", style = "gpt2";
  int context = 0;  ///< 0: that of the size
  std::uint64_t accumulate = 1;
  std::size_t generate = 0;  ///< tokens after the prompt
  std::string prompt{};
  double temperature = 1;
  int top_k = 0;                ///< 0: all
  bool generates_only = false;  ///< from the weights of --init, without training
};

/// The options; see command_line.hpp for their meaning.
struct Options {
  std::optional<std::string> data, init, save, export_onnx, report, profile, tensorboard, trace;
  int epochs = 1;
  std::optional<std::uint64_t> steps_per_epoch;
  std::uint64_t steps_per_execution = 1;
  std::size_t batch = 1;
  bool batch_is_per_replica = false;  ///< until the job's replicas are known
  std::uint64_t skip = 0;
  std::optional<std::uint64_t> take;
  bool shuffle = true, validate = false, augment = true;
  int depth = 56;
  std::string optimizer = "sgd", precision = "float32";
  TextOptions text{};
  std::string update{}, wire{};               ///< empty without the option
  std::optional<std::uint64_t> wire_warm_up;  ///< updates, of --wire top_k and power_sgd
  std::optional<std::uint64_t> sync_every;    ///< steps of a round of --update local and diloco
  double learning_rate = 0.01;
  std::uint64_t seed = 1;
  int threads = 0;                        ///< per replica; 0: cores / replicas
  std::size_t replicas = 1;               ///< of this process; 0: one per GPU
  std::size_t virtual_shards = 0;         ///< 0: one slice per replica
  std::uint64_t verify_every = 0;         ///< 0: never
  std::optional<std::string> checkpoint;  ///< directory
  std::uint64_t checkpoint_every = 0;     ///< steps; 0: each epoch
  bool resume = false;
  /// --save also writes the architecture, unless --report takes the name of that file.
  bool saves_architecture = true;
  std::size_t show = 0;  ///< test images to print with their predictions
  lockstep::ProgressStyle progress = lockstep::ProgressStyle::automatic;
  std::optional<std::string> cluster, task;  ///< a file, and this process' task in the cluster
  std::size_t min_workers = 0;      ///< 0: LOCKSTEP_MIN_WORKERS, or a lost worker ends the job
  std::size_t server_replicas = 1;  ///< servers that own each range
  std::chrono::milliseconds stall_timeout{30'000}, idle_timeout{600'000};
  bool stragglers = false;
  bool asynchronous = false;               ///< of a job with parameter servers
  std::optional<std::uint64_t> staleness;  ///< updates that an asynchronous step may miss
  std::size_t backup_workers = 0;          ///< that a synchronous step need not wait for
};

}  // namespace support
