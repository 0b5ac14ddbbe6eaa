/// \file
/// The frame of a program: command line, errors, report, exit code. Invariants: every
/// error becomes one paragraph on stderr; paths are checked before training starts; a requested
/// report is written even if training fails.
///
/// Exit codes: 0 success; 1 an error; 2 an invalid command line or cluster description; 3 another
/// process of the job failed, left or never joined; 130, 143, 129 after SIGINT, SIGTERM, SIGHUP.
#pragma once

#include <functional>

#include <lockstep/core/error.hpp>

#include "support/job.hpp"

namespace support {

/// The command line requests a combination of options that was not built.
class NotBuilt : public lockstep::UsageError {
 public:
  using lockstep::UsageError::UsageError;
};

/// Runs `body`. \returns the exit code for main.
int run(const Program& program, int argc, char** argv, const std::function<void(Job&)>& body);

}  // namespace support
