/// \file
/// Progress of a rank in the exchanges of its job, and what this process has sent in them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace lockstep {

/// Progress of one rank.
struct ExchangeProgress {
  /// Number of finished parts of exchanges. All ranks exchange the same parts in the same order, so
  /// the rank with the smallest number is the slowest.
  std::uint64_t done = 0;
  std::optional<std::size_t> waits_for{};  ///< the rank whose part is pending
  /// Changes whenever data of an exchange move. Known to its own process only.
  std::uint64_t moved = 0;
  bool operator==(const ExchangeProgress&) const = default;
};

namespace detail {
inline std::atomic<std::uint64_t> sent_bytes_so_far{0};

/// Called by transports.
inline void count_sent(std::size_t bytes) {
  sent_bytes_so_far.fetch_add(bytes, std::memory_order_relaxed);
}
}  // namespace detail

/// Bytes of data that collective operations of this process have sent to other processes since it
/// started: over TCP and MPI those of each receiver, over shared memory those that it wrote for the
/// others to read. Without the frames, calls and encryption of the transport. From any thread.
inline std::uint64_t sent_bytes() {
  return detail::sent_bytes_so_far.load(std::memory_order_relaxed);
}

}  // namespace lockstep
