/// \file
/// What the command line of an example program said. Invariant: a value that is here has been
/// checked; nothing was opened yet.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/training/report/progress.hpp>

namespace support {

/// What a program is called, does, and starts from.
struct Program {
  std::string name{}, description{};
  int epochs = 1;
  std::size_t batch = 1;
  bool batch_is_per_replica = false;  ///< the default batch is so many for each replica of the job
  double learning_rate = 0.01;
  bool reads_images = true;  ///< --data, --skip, --take, --no-shuffle, --validate, --virtual-shards
  bool has_optimizers = false;    ///< --optimizer
  bool has_depths = false;        ///< --depth, --no-augment
  std::size_t replica_limit = 0;  ///< the most --replicas; 0: no such option
  bool counts_devices = false;    ///< a device of a kind that can be counted: no --threads
  bool has_workers = false;  ///< --cluster, --task, --stall-timeout, --idle-timeout, --stragglers
};

struct Options {
  std::optional<std::string> data, init, save, report, profile;
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
  double learning_rate = 0.01;
  std::uint64_t seed = 1;
  int threads = 0;                 ///< of a replica; 0: cores / replicas
  std::size_t replicas = 1;        ///< of this process; 0: one on each GPU
  std::size_t virtual_shards = 0;  ///< 0: one slice a replica
  std::uint64_t verify_every = 0;  ///< 0: never
  lockstep::ProgressStyle progress = lockstep::ProgressStyle::automatic;
  std::optional<std::string> cluster, task;  ///< a file, and this process' place in the cluster
  std::chrono::milliseconds stall_timeout{30'000}, idle_timeout{600'000};
  bool stragglers = false;
};

}  // namespace support
