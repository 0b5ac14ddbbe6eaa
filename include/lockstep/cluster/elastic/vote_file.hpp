/// \file
/// The votes of a machine in a file, changed by any of its processes. Invariants: a vote that was
/// returned survives the process that cast it; a process killed at any moment leaves the old vote or
/// the new one; a vote needs no space, so that a full file system does not end a job; a missing,
/// damaged or foreign file is an error and never counts as a vote.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/cluster/elastic/machine_folder.hpp"
#include "lockstep/cluster/elastic/vote_memory.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/process/file_descriptor.hpp"

namespace lockstep::detail {

/// The folder of a run on this machine, see MachineFolder. It holds the vote on the successor of
/// one generation: the first question about a later one replaces it, and earlier ones are closed.
/// The file has its full size from the start:
/// \code
///   0      the record: magic, which slot, its size and checksum, checksum of the record
///   4 KiB  slot 0, then slot 1, of 60 KiB each: a vote is written to the other slot, then the record
/// \endcode
class VoteFile final : public VoteMemory {
 public:
  /// `machine` must outlive this object.
  explicit VoteFile(const MachineFolder& machine) : machine_(machine) {}
  /// Leaves the run.
  ~VoteFile() override { leave(); }

  /// \throws FileError if the folder cannot be created, or the vote in it is damaged.
  LOCKSTEP_COLD_DECL void enter(std::uint64_t run) override;
  /// Nullopt if the vote on that generation is closed, or another process holds the file for long.
  /// \throws FileError if the vote cannot be read or stored.
  LOCKSTEP_COLD_DECL std::optional<Vote> change(const GenerationId& generation,
                                                const std::function<void(Vote&)>& change) override;
  std::string blocked_by() const override { return is_blocked_ ? folder_ + "/guard" : ""; }
  /// Ends this process' use of the folder, and removes it after the last process.
  LOCKSTEP_COLD_DECL void leave();

 private:
  /// Creates the votes of a new run. The first byte of `lock` records that this has happened.
  /// \throws FileError if the votes of a run in use are missing.
  LOCKSTEP_COLD_DECL void create_votes() const;
  struct Stored {
    std::uint64_t number = 0;  ///< of a generation
    Vote vote{};               ///< on its successor
    std::uint32_t slot = 0;
  };
  LOCKSTEP_COLD_DECL std::string encoded(const Stored& stored) const;
  /// Writes to the slot of `stored`. \throws FileError
  LOCKSTEP_COLD_DECL void store(const Stored& stored) const;
  /// \throws FileError
  LOCKSTEP_COLD_DECL Stored load() const;
  /// Locks the file while it is changed; not open if another process has it for too long.
  LOCKSTEP_COLD_DECL FileDescriptor guard() const;
  std::string votes() const { return folder_ + "/votes"; }

  const MachineFolder& machine_;
  std::uint64_t run_ = 0;
  std::string folder_;
  FileDescriptor lock_;
  bool is_blocked_ = false;  // another process held the guard during the last `change`
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/elastic/vote_file.ipp"
#endif
