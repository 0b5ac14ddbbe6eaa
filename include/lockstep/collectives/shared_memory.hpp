/// \file
/// Memory that the processes of a user on one machine share. Invariants: it has no name in a file
/// system and disappears with the last process that maps it, also after SIGKILL; its size never
/// changes, so that no access raises SIGBUS; a process maps only memory that its own user made for
/// this run of the job.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep {

/// A mapped, sealed memfd.
///
///     process 0   create ──> place() = "PID/FD" ──(key-value store)──> open   process 1, 2, ...
///                 close_file, when all have opened it
///
///     | page 0: magic, layout, size, HMAC-SHA256(key, size, name, run) | bytes, initially 0 |
/// \code
///   const lockstep::SharedMemory::Options options{.bytes = n, .run = id, .name = "x", .key = key};
///   auto memory = lockstep::SharedMemory::create(options);           // in one process
///   auto same = lockstep::SharedMemory::open(place, options);        // in each other one
/// \endcode
class SharedMemory {
 public:
  /// Equal in all processes. Without a key the proof rejects memory of another run, but not that of
  /// an attacker with the same user id.
  struct Options {
    std::size_t bytes = 0;
    std::string run{}, name{}, key{};
  };

  /// \throws Error if the system has no such memory, or not enough.
  LOCKSTEP_COLD_DECL static std::shared_ptr<SharedMemory> create(const Options& options);
  /// Maps what another process has created. \throws Error if the memory cannot be reached (another
  /// PID namespace or user, a process that is not dumpable), or is not that of `options`.
  LOCKSTEP_COLD_DECL static std::shared_ptr<SharedMemory> open(std::string_view place,
                                                               const Options& options);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  LOCKSTEP_COLD_DECL ~SharedMemory();

  /// Where other processes find the memory: "PID/FD". Valid until `close_file`.
  LOCKSTEP_COLD_DECL std::string place() const;
  /// Closes the descriptor; the mapping remains.
  LOCKSTEP_COLD_DECL void close_file();

  /// `bytes` of memory, aligned to a page.
  std::byte* data() const { return begin_ + page; }

 private:
  static constexpr std::size_t page = 4096;

  SharedMemory(int file, std::size_t bytes) : file_(file), bytes_(bytes) {}
  LOCKSTEP_COLD_DECL void map();

  int file_;
  std::size_t bytes_;
  std::byte* begin_ = nullptr;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/shared_memory.ipp"
#endif
