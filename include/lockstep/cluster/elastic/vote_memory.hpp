/// \file
/// The memory of a machine's voter, as the agreement sees it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/cluster/elastic/ballot.hpp"
#include "lockstep/cluster/elastic/elastic_messages.hpp"

namespace lockstep::detail {

/// The memory of this machine's voter, which outlives the processes that vote.
class VoteMemory {
 public:
  VoteMemory() = default;
  VoteMemory(const VoteMemory&) = delete;
  VoteMemory& operator=(const VoteMemory&) = delete;
  virtual ~VoteMemory() = default;

  /// Keeps the votes of this run from now on, and those of an earlier one no longer. \throws
  /// FileError if it cannot.
  virtual void enter(std::uint64_t run) = 0;
  /// Changes the vote on the successor of a generation and returns it, once it is stored. Nullopt
  /// if this machine cannot vote on that any more.
  virtual std::optional<Vote> change(const GenerationId& generation,
                                     const std::function<void(Vote&)>& change) = 0;
  /// The file whose lock another process held for too long during the last `change`; empty: none.
  virtual std::string blocked_by() const { return {}; }
};

}  // namespace lockstep::detail
