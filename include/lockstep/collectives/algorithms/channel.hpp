/// \file
/// The transport of a group of processes, as the algorithms of ChannelGroup see it.
#pragma once

#include <concepts>
#include <cstddef>
#include <vector>

#include "lockstep/collectives/algorithms/collective_call.hpp"
#include "lockstep/core/exchange_progress.hpp"

namespace lockstep {

/// One member's connections to its peers. Only one thread uses them at a time. Between two members bytes arrive in the order in which they were sent, and each
/// `receive` has a `send` of as many bytes at the peer.
///
/// - `peers()`: the ranks to which there is a connection.
/// - `send(peer, p, n)`, `receive(peer, p, n)`: queue a transfer; p stays valid until `complete`. If
///   all members are peers, the first ones of an operation with each are queued before its first
///   `complete`, so that they can travel with the call.
/// - `complete()`: returns when all queued transfers are done. Throws if a peer does not make
///   progress until the deadline, is lost, or calls another operation.
/// - `reserve(n)`: n bytes of the channel's memory, which data need not be copied to or from. Valid
///   until the next call.
/// - `progress()`: the `complete`s done and the peer that one waits for. From any thread.
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
      { c.reserve(n) } -> std::same_as<std::byte*>;
      { c.progress() } -> std::same_as<ExchangeProgress>;
      { c.run(detail::CollectiveCall{}, body) } -> std::same_as<void>;
    };

}  // namespace lockstep
