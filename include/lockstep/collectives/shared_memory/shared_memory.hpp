/// \file
/// Memory that the processes of a user on one machine share. Invariants: it has no name in a file
/// system and disappears with the last process that maps it, also after SIGKILL; its size never
/// changes and what is used is reserved before, so that no access raises SIGBUS; a process maps only
/// memory that its own user made for this run of the job; forked children do not inherit it.
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
///     | page 0: magic, layout, sizes, HMAC-SHA256(key, sizes, name, run) | bytes | heap |
///
/// All bytes are 0 at first and need memory only when they are reserved or written.
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
    /// Bytes of a second part, which is left out where the system refuses such sizes.
    std::size_t heap = 0;
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

  /// `bytes()` of memory, aligned to a page.
  std::byte* data() const { return begin_ + page; }
  std::size_t bytes() const { return bytes_; }
  /// `heap_bytes()` of memory, aligned to a page; null if it cannot be had.
  std::byte* heap() const { return heap_; }
  std::size_t heap_bytes() const { return heap_ == nullptr ? 0 : heap_bytes_; }

  /// Reserves p[0..n) of this memory, on the calling thread's NUMA node if no process has written it
  /// yet. \return false if the system cannot (Linux before 5.14): then `create` has reserved `data()`,
  /// and `heap()` must not be used. \throws Error if there is not enough memory.
  LOCKSTEP_COLD_DECL bool reserve(std::byte* p, std::size_t n);

 private:
  static constexpr std::size_t page = 4096;
  static constexpr std::size_t most_page = std::size_t{64} << 10;  // of any system

  SharedMemory(int file, const Options& options)
      : file_(file), bytes_(options.bytes), heap_bytes_(options.heap) {}
  /// The heap's offset in the file.
  std::size_t heap_at() const { return (page + bytes_ + most_page - 1) / most_page * most_page; }
  std::size_t file_bytes() const {
    return heap_bytes_ > 0 ? heap_at() + heap_bytes_ : page + bytes_;
  }
  LOCKSTEP_COLD_DECL void map();

  int file_;
  std::size_t bytes_, heap_bytes_;
  std::byte* begin_ = nullptr;
  std::byte* heap_ = nullptr;
  int process_ = 0;  // that mapped it
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/shared_memory/shared_memory.ipp"
#endif
