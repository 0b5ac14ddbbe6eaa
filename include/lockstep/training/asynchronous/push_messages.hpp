/// \file
/// The messages between a process and a parameter server in an asynchronous phase. Invariants: the
/// client begins each exchange; what follows a message is determined by it, so that both make the same
/// calls of their group.
///
///     client                                          server
///       next, follow  ──────────────────────────────>  the first server only
///                     <──────  reply, new records
///       pull          ──────────────────────────────>
///                     <──────  its weights; the first: the layers' state
///       push          ── gradients, record, states ─>
///                     <──────  receipt
///       end           ──────────────────────────────>
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lockstep::detail {

struct PushRequest {
  enum class Kind : std::uint32_t { next, follow, pull, push, end };
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  Kind kind = Kind::end;
  std::uint32_t stops = 0;    ///< 1: the phase is to end soon
  std::uint64_t step = none;  ///< pushed; with `next`: the one that this worker has finished
  std::uint64_t known = 0;    ///< records that the client has
  double squares = 0;         ///< of the gradients that other servers get
};

struct PushReply {
  enum class Kind : std::uint32_t { wait, step, done };
  Kind kind = Kind::wait;
  std::uint32_t stops = 0;
  std::uint64_t step = 0;
  std::uint64_t records = 0;  ///< that follow
};

struct PushReceipt {
  std::uint32_t is_applied = 0;  ///< 0: the step was part of the weights already
  std::uint32_t stops = 0;       ///< the server's process asks for the end of the phase
};

static_assert(std::is_trivially_copyable_v<PushRequest> &&
              std::is_trivially_copyable_v<PushReply> && std::is_trivially_copyable_v<PushReceipt>);

/// Steps of a phase that all processes agree on, in bytes and elements.
struct PhaseShape {
  std::size_t state = 0;   ///< bytes of the layers' state
  std::size_t record = 0;  ///< numbers that a step leaves: examples, sums, ...
  std::uint64_t steps = 0;
  std::uint64_t staleness = 0;
};

}  // namespace lockstep::detail
