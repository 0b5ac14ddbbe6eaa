/// \file
/// A parameter server in an asynchronous phase. Invariants: all servers make the same updates by the
/// gradients of the same workers in the same order, each step once, and none is more than one update
/// ahead of another; a pull gets weights between two updates; all updates are made by the thread that
/// calls `serve`.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "lockstep/collectives/algorithms/process_group.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/training/asynchronous/push_client.hpp"
#include "lockstep/training/asynchronous/push_messages.hpp"
#include "lockstep/training/asynchronous/tickets.hpp"

namespace lockstep::detail {

/// One thread for each client receives its requests and sends the replies:
///
///     client 0 ── thread ──┐ kept gradients
///     client 1 ── thread ──┼─────── serve: update ── weights ── pulls of all threads
///     client 2 ── thread ──┘
///
/// The first server hands out the steps, or their slices, and decides the order of the updates and
/// whose gradients count; see push_messages.hpp.
class PushServer {
 public:
  /// The gradients of a step, or of a slice. The memory of a step's slices is valid, and may be
  /// overwritten, until `apply` returns for the last one.
  struct Push {
    std::byte* gradients;          ///< of `parts`, one after the other
    std::span<const Slice> parts;  ///< owned weights, in bytes of all
    bool is_whole;                 ///< all owned weights
    std::byte* state;              ///< the layers' state after the step, or the slice's part
    const std::byte* pulled;       ///< that before the step; null for a slice
    bool is_next;                  ///< the state was pulled after the update before this one
    std::span<const double> record;
    std::size_t slice;  ///< of the step
  };
  using Pairs = std::map<std::size_t, ProcessGroup>;

  /// `weights`: all of them; they, `state` and `pairs` must outlive the object. `servers`: the ranks
  /// of all, of which the first one decides.
  LOCKSTEP_COLD_DECL PushServer(const PhaseShape& shape, Pairs& pairs, std::size_t rank,
                                Slice servers, ServedWeights owned, std::span<std::byte> weights,
                                std::span<std::byte> state);
  PushServer(const PushServer&) = delete;
  PushServer& operator=(const PushServer&) = delete;
  /// Ends the groups of the pairs if clients have not ended.
  LOCKSTEP_COLD_DECL ~PushServer();

  /// Begins to answer the clients.
  LOCKSTEP_COLD_DECL void start();
  /// Makes updates until a record is known, or for `most`. `apply(push)` updates weights and state; of
  /// a step with several slices, the call for the last one, after those for the others in order.
  /// \returns false once all clients have ended and all records are taken. \throws what ended a
  /// client's thread.
  LOCKSTEP_DECL bool serve(FunctionRef<void(const Push&)> apply, std::chrono::milliseconds most);
  /// Within `apply`, adds numbers of all servers, which call it for the same updates.
  LOCKSTEP_DECL void sum(std::span<double> values);
  /// The records of updates that all servers have made, since the last call.
  LOCKSTEP_DECL std::vector<double> take_records();
  /// Asks for the end of the phase after the steps that have begun.
  LOCKSTEP_COLD_DECL void stop();
  /// The most updates that a step has missed.
  std::uint64_t most_stale() const { return most_stale_; }
  /// At the first server: the slices that were not used, since those of another worker count.
  LOCKSTEP_DECL std::uint64_t dropped();
  /// The steps of the updates that this server has made, in order.
  std::span<const std::uint64_t> steps_made() const { return {order_.data(), applied_}; }

 private:
  /// Gradients that are not part of the weights yet.
  struct Kept {
    std::uint64_t step = 0, slice = 0;
    std::uint64_t seen = 0, state_seen = 0;  // updates before the pulls of weights and of state
    std::vector<std::byte> gradients{}, states{};
    std::vector<double> record{};
    std::vector<Slice> parts{};
    bool is_whole = true;
  };
  struct Client {
    std::size_t rank;
    ProcessGroup* group;
    std::vector<std::byte> sent{};
    std::vector<Slice> pulled_parts{};
    std::uint64_t pulled = 0;                   // updates before the last pull
    std::vector<std::unique_ptr<Kept>> kept{};  // at most one for each slice of a step
  };
  bool is_first() const { return !leader_; }
  LOCKSTEP_COLD_DECL void start_thread(std::function<void()> body);
  LOCKSTEP_COLD_DECL void run(Client& client);
  LOCKSTEP_COLD_DECL void follow();
  LOCKSTEP_DECL void answer_next(Client& client, const PushRequest& request);
  LOCKSTEP_DECL void answer_serve(Client& client, const PushRequest& request);
  LOCKSTEP_DECL void answer_sum(Client& client);
  /// Adds the numbers of one server, and waits for those of the others.
  LOCKSTEP_DECL void add(std::span<double> values);
  LOCKSTEP_DECL void answer_pull(Client& client, const PushRequest& request);
  /// Receives the parts of a request about weights of `owned`.
  LOCKSTEP_DECL void receive_parts(Client& client, const PushRequest& request,
                                   std::span<const Slice> owned, std::vector<Slice>& parts);
  /// \returns false if the phase has failed.
  LOCKSTEP_DECL bool answer_push(Client& client, const PushRequest& request);
  /// Notes that all servers have a client's gradients of a slice. Call it with the mutex.
  LOCKSTEP_DECL void accept(const Client& client, std::uint64_t step, std::uint64_t slice);
  /// Whether the gradients of another worker count. Call it with the mutex.
  LOCKSTEP_DECL bool is_late(const Kept& push) const;
  /// Memory for a push. Call it with the mutex.
  LOCKSTEP_DECL std::unique_ptr<Kept> unused_kept();
  /// Decides the next update if all servers have made the last one. Call it with the mutex.
  LOCKSTEP_DECL void decide();
  LOCKSTEP_COLD_DECL void heed(bool stops);
  /// \throws Error unless a client's request is possible.
  LOCKSTEP_DECL void check(const Client& client, bool is_possible);
  /// The gradients that count of the slices of the next update. Call it with the mutex.
  LOCKSTEP_DECL void find_next();
  LOCKSTEP_DECL void apply(FunctionRef<void(const Push&)> update);
  LOCKSTEP_COLD_DECL void end_thread(std::exception_ptr error);
  LOCKSTEP_DECL void wake();

  const PhaseShape shape_;
  const Slice servers_;
  const ServedWeights owned_;
  const std::span<std::byte> weights_, state_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::optional<PushClient> leader_;    // this process as a client of the first server
  std::mutex updates_;                  // held while weights change or are copied
  std::mutex mutex_;                    // of all below
  std::condition_variable changed_;     // for the threads of clients
  std::condition_variable decided_;     // for `serve`
  std::uint64_t applied_ = 0;           // updates; changes with both mutexes
  std::vector<std::uint64_t> order_;    // the steps of the updates, at most one more than applied
  std::vector<std::uint64_t> sources_;  // of each update, the rank whose push counts of each slice
  std::uint64_t finished_ = 0;          // updates that all servers have made
  std::vector<double> records_;         // of the updates of this server
  std::uint64_t taken_ = 0;             // records that take_records has returned
  std::vector<std::unique_ptr<Kept>> unused_;  // memory
  std::vector<Kept*> next_;                    // of the slices of the next update
  // Only at the first server:
  Tickets tickets_;
  std::deque<std::uint64_t> pushed_;  // steps that all servers keep
  std::map<std::uint64_t, std::vector<std::uint64_t>>
      accepted_;                        // ranks by slice, of such and begun
  std::vector<std::uint64_t> made_by_;  // updates, by server
  std::vector<double> sums_;            // of `sum`
  std::uint64_t added_ = 0;             // calls of `add`
  std::size_t running_ = 0;             // threads
  bool stops_ = false;
  std::exception_ptr error_{};
  std::uint64_t most_stale_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/asynchronous/push_server.ipp"
#endif
