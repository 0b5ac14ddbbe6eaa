/// \file
/// The messages between a process and a parameter server in an asynchronous phase. Invariants: the
/// client begins each exchange; what follows a message is determined by it, so that both make the same
/// calls of their group.
///
///     client                                          server
///       next, follow, serve  ───────────────────────>  the first server only
///                     <──────  reply; records, or for a server steps and the ranks of their pushes
///       sum           ── numbers of a server ───────>  the first server only
///                     <──────  those of all servers, added
///       pull          ── parts ─────────────────────>
///                     <──────  its weights; the first: the layers' state, and its updates
///       push          ── parts, gradients,
///                        record, states ────────────>  keeps them
///                     <──────  receipt
///       end           ──────────────────────────────>
///
/// How a step becomes part of the weights:
///
///     worker         push to all servers, next: "step 7 is pushed"
///     first server   decides: update 5 is step 7, once all servers have made update 4
///     all servers    make update 5 with the gradients that they keep
///     first server   all have made it: step 7 is finished, its record goes to all processes
///
/// With several slices to a step, each is pushed and reported so. The first report of a slice decides
/// whose gradients count, in all servers; a server drops the others after the update.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "lockstep/core/slice.hpp"
#include "lockstep/training/step/made_steps.hpp"

namespace lockstep::detail {

struct PushRequest {
  enum class Kind : std::uint32_t { next, follow, serve, sum, pull, push, end };
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  Kind kind = Kind::end;
  std::uint32_t stops = 0;    ///< 1: the phase is to end soon
  std::uint64_t step = none;  ///< of `push`; of `next`: the one that was pushed
  std::uint64_t slice = 0;    ///< of the step
  /// Records that the client has; of `serve`: updates that the server has made; of `push`: updates
  /// before the layers' state was pulled.
  std::uint64_t known = 0;
  std::uint64_t parts = 0;  ///< of the server's weights, which follow; 0: all of them
};

struct PushReply {
  enum class Kind : std::uint32_t { wait, step, done };
  Kind kind = Kind::wait;
  std::uint32_t slice = 0;  ///< of the step
  std::uint64_t step = 0;
  std::uint64_t count = 0;     ///< of the steps whose records, or sources, follow
  std::uint64_t finished = 0;  ///< updates that all servers have made
};

struct PushReceipt {
  std::uint32_t stops = 0;    ///< 1: the server's process asks for the end of the phase
  std::uint32_t is_late = 0;  ///< 1: the gradients of another worker count
};

static_assert(std::is_trivially_copyable_v<PushRequest> &&
              std::is_trivially_copyable_v<PushReply> && std::is_trivially_copyable_v<PushReceipt>);

/// The facts of a phase that all processes know.
struct PhaseShape {
  std::size_t state = 0;    ///< bytes of the layers' state
  std::size_t record = 0;   ///< numbers that a slice leaves: its step, examples, sums, ...
  std::size_t element = 1;  ///< bytes of a weight
  std::uint64_t steps = 0;
  std::uint64_t staleness = 0;
  MadeSteps made{};        ///< before the phase, which continues another one
  std::size_t slices = 1;  ///< of a step; several only with staleness 0
  std::size_t copies = 0;  ///< that workers may make of slices at a time
  /// Bytes of the layers' state that a slice leaves, if a step has several: its part of their sum.
  std::size_t slice_state = 0;
  std::size_t sums = 0;  ///< numbers that all servers add within an update

  /// Bytes of state in a push: of a whole step the state after it, then before.
  std::size_t pushed_state() const { return slices > 1 ? slice_state : 2 * state; }
  std::size_t step_record() const { return slices * record; }
};

/// The weights of a server, in bytes of all weights: those that clients read from it, and those that
/// it updates, in ascending order.
struct ServedWeights {
  Slice pulled{};
  std::vector<Slice> pushed{};
};

/// Parts of a buffer, one after the other.
inline std::size_t packed_size(std::span<const Slice> parts) {
  std::size_t all = 0;
  for (const Slice& part : parts) all += part.count;
  return all;
}
inline void pack(std::span<const Slice> parts, const std::byte* from, std::span<std::byte> to) {
  std::byte* next = to.data();
  for (const Slice& part : parts) next = std::copy_n(from + part.first, part.count, next);
}
inline void unpack(std::span<const Slice> parts, std::span<const std::byte> from, std::byte* to) {
  const std::byte* next = from.data();
  for (const Slice& part : parts) {
    std::copy_n(next, part.count, to + part.first);
    next += part.count;
  }
}

}  // namespace lockstep::detail
