/// \file
/// An event file that grows. Invariants: each file has a new name, which sorts after those of the
/// files in its folder; a record reaches the file in one piece or not at all, unless the process is
/// killed meanwhile; errors never throw after the file was created.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Appends events to FOLDER/events.out.tfevents.SECONDS.HOST.PROCESS.NUMBER. SECONDS is the time,
/// or one more than in the folder's last name: readers join files in the order of their names.
///
///     append -> pending_ --flush--> write(2): a killed process loses no flushed event
///
/// Flushes when `max_queue` events are pending, when an event is appended `flush_seconds` after the
/// last flush, and at its end. If a write fails, as on a full disk, a partly written record is cut
/// off, the pending events are dropped, the first error is logged, and the next flush tries again.
class EventFile {
 public:
  /// Creates the folder if needed, and the file with the first event. \throws FileError.
  LOCKSTEP_COLD_DECL EventFile(const std::string& folder, double flush_seconds,
                               std::size_t max_queue);
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  LOCKSTEP_COLD_DECL ~EventFile();

  LOCKSTEP_DECL void append(std::string_view event);
  LOCKSTEP_DECL void flush();
  const std::string& path() const { return path_; }

 private:
  using Clock = std::chrono::steady_clock;

  LOCKSTEP_COLD_DECL void create(const std::string& folder);
  /// Handles the error `code` after `done` bytes of pending_ were written.
  LOCKSTEP_COLD_DECL void fail(std::size_t done, int code);

  std::string path_, pending_;
  std::size_t events_ = 0;   // pending
  std::size_t version_ = 0;  // bytes of the first record
  std::size_t written_ = 0;  // bytes
  std::chrono::duration<double> flush_seconds_;
  std::size_t max_queue_;
  Clock::time_point flushed_ = Clock::now();
  int descriptor_ = -1;
  bool has_failed_ = false;
};

/// Seconds since 1970.
LOCKSTEP_DECL double wall_time();

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/tensorboard/event_file.ipp"
#endif
