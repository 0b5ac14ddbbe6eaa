/// \file
/// The options of an elastic job, which goes on with the surviving workers when some are lost.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

/// Whether and how a job survives the loss of workers. The program includes <lockstep/elastic.hpp>.
struct Elastic {
  std::size_t min_workers = 0;  ///< the fewest that train; 0: off, a lost worker ends the job
  /// Folder for the votes of this machine's processes, which must be the same for all of them.
  /// Empty: LOCKSTEP_ELASTIC_DIRECTORY, else /dev/shm.
  std::string directory{};

  /// True if the job is elastic.
  explicit operator bool() const { return min_workers > 0; }
};

}  // namespace lockstep
