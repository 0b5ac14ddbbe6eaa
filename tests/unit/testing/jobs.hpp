/// \file
/// A small training job, for simulated workers.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/testing.hpp"

namespace jobs {

namespace ls = lockstep;
using namespace std::chrono_literals;

/// Trains with replicas in this process. \return the hash of the weights.
std::string train_replicas(std::size_t replicas, std::size_t steps);
/// Trains as a worker; each step takes `time`. \return the hash of the weights.
std::string train(const ls::testing::Worker& worker, std::size_t steps,
                  std::chrono::nanoseconds time = 0ns);

/// How a worker ended. Nothing is set if it was killed.
struct End {
  std::string weights{};              ///< of a worker that has finished
  std::optional<std::size_t> lost{};  ///< the rank of its PeerLost
  std::string what{};                 ///< of its exception
  std::chrono::nanoseconds at{};
};

/// Runs a job whose steps take 10 ms each. Its log is dropped.
std::vector<End> run(std::size_t workers, std::size_t steps, const ls::testing::Network& network,
                     ls::testing::Report* report = nullptr);

/// Ranks 0 and 1 make a data connection, rank 2 joins 3.5 s later. \return whether a byte then
/// passes between ranks 0 and 1.
bool waits_for_third(const ls::testing::Network& network);

}  // namespace jobs
