/// \file
/// The transport of a group of processes, as the algorithms of ChannelGroup see it.
#pragma once

#include <concepts>
#include <cstddef>
#include <vector>

#include "lockstep/collectives/collective_call.hpp"

namespace lockstep {

/// One member's connections to its peers. Only one thread uses them at a time; `abort` may be
/// called from any. Between two members bytes arrive in the order in which they were sent, and each
/// `receive` has a `send` of as many bytes at the peer.
///
/// - `peers()`: the ranks to which there is a connection.
/// - `send(peer, p, n)`, `receive(peer, p, n)`: queue a transfer; p stays valid until `complete`.
/// - `complete()`: returns when all queued transfers are done. Throws if a peer does not make
///   progress until the deadline, is lost, or calls another operation.
/// - `run(call, body)`: runs `body()` as one operation; `call` is compared with that of all peers.
template <class C>
concept Channel =
    requires(C& c, const std::byte* from, std::byte* to, std::size_t n, void (*body)()) {
      { c.rank() } -> std::same_as<std::size_t>;
      { c.size() } -> std::same_as<std::size_t>;
      { c.peers() } -> std::same_as<const std::vector<std::size_t>&>;
      { c.send(n, from, n) } -> std::same_as<void>;
      { c.receive(n, to, n) } -> std::same_as<void>;
      { c.complete() } -> std::same_as<void>;
      { c.abort() } -> std::same_as<void>;
      { c.run(detail::CollectiveCall{}, body) } -> std::same_as<void>;
    };

}  // namespace lockstep
