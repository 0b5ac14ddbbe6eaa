/// \file
/// A parameter server in an asynchronous phase. Invariants: each step is applied once, whoever pushes
/// it and however often; a pull gets weights between two updates; all updates are made by the thread
/// that calls `serve`.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
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
#include "lockstep/training/asynchronous/push_client.hpp"
#include "lockstep/training/asynchronous/push_messages.hpp"
#include "lockstep/training/asynchronous/tickets.hpp"

namespace lockstep::detail {

/// One thread for each client receives its requests and sends the replies:
///
///     client 0 ── thread ──┐ queue
///     client 1 ── thread ──┼─────── serve: update ── weights ── pulls of all threads
///     client 2 ── thread ──┘
///
/// The first server also hands out the steps, and keeps a record of each in the order in which it has
/// applied them; the other servers follow it.
class PushServer {
 public:
  /// A push, while `apply` runs.
  struct Push {
    const std::byte* gradients;  ///< of the owned weights
    const double* record;
    const std::byte* state;   ///< the layers' state after the step; null: not sent to this server
    const std::byte* pulled;  ///< that before the step
    std::uint64_t staleness;  ///< updates that the gradients miss
    double squares;           ///< of the gradients that other servers get
  };
  using Pairs = std::map<std::size_t, ProcessGroup>;

  /// `weights`: the owned ones; they, `state` and `pairs` must outlive the object. `first`: the rank of
  /// the first server, which is this one if it is not among the pairs.
  LOCKSTEP_COLD_DECL PushServer(const PhaseShape& shape, Pairs& pairs, std::size_t rank,
                                std::size_t first, std::span<std::byte> weights,
                                std::span<std::byte> state);
  /// Begins to answer the clients.
  LOCKSTEP_COLD_DECL void start();
  PushServer(const PushServer&) = delete;
  PushServer& operator=(const PushServer&) = delete;
  /// Ends the groups of the pairs if clients have not ended.
  LOCKSTEP_COLD_DECL ~PushServer();

  /// Applies pushes until there are new records, or for `most`. `apply(push)` updates weights and state.
  /// \returns false once all clients have ended. \throws what ended a client's thread.
  LOCKSTEP_DECL bool serve(FunctionRef<void(const Push&)> apply, std::chrono::milliseconds most);
  /// The records that have come since the last call, one after the other.
  LOCKSTEP_DECL std::vector<double> take_records();
  /// Asks for the end of the phase after the steps that have begun.
  LOCKSTEP_COLD_DECL void stop();
  /// The most updates that an applied step has missed.
  std::uint64_t most_stale() const { return most_stale_; }
  /// Pushes that were refused because their step was applied already.
  std::uint64_t refused() const { return refused_; }
  /// Whether each of the phase's steps so far was applied once.
  LOCKSTEP_COLD_DECL bool are_complete() const;

 private:
  struct Client {
    std::size_t rank;
    ProcessGroup* group;
    std::vector<std::byte> gradients{}, states{}, sent{};
    std::vector<double> record{};
    std::uint64_t pulled = 0;  // updates before the last pull
    std::uint64_t step = 0;
    double squares = 0;
    bool is_pushed = false, is_applied = false;
  };
  bool is_first() const { return !leader_; }
  std::size_t here(const Client& client) const { return rank_ < client.rank ? 0 : 1; }
  LOCKSTEP_COLD_DECL void start_thread(std::function<void()> body);
  LOCKSTEP_COLD_DECL void run(Client& client);
  LOCKSTEP_COLD_DECL void follow();
  LOCKSTEP_DECL void answer_next(Client& client, const PushRequest& request);
  LOCKSTEP_DECL void answer_pull(Client& client);
  LOCKSTEP_DECL void answer_push(Client& client, const PushRequest& request);
  LOCKSTEP_DECL void apply_push(Client& client, FunctionRef<void(const Push&)> apply);
  LOCKSTEP_COLD_DECL void end_thread(std::exception_ptr error);

  const PhaseShape shape_;
  const std::size_t rank_;
  const std::span<std::byte> weights_, state_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::optional<PushClient> leader_;  // this process as a client of the first server
  std::mutex updates_;                // held while weights change or are read
  std::uint64_t applied_ = 0;         // updates, guarded by updates_
  std::mutex mutex_;                  // of all below
  std::condition_variable changed_, pushed_;
  Tickets tickets_;
  std::vector<Client*> queue_;
  std::vector<bool> is_applied_;  // by step
  std::vector<double>
      records_;              // all of the phase, in the order of the updates of the first server
  std::size_t taken_ = 0;    // numbers that take_records has returned
  std::size_t running_ = 0;  // threads
  bool stops_ = false;
  std::exception_ptr error_{};
  std::uint64_t most_stale_ = 0, refused_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/asynchronous/push_server.ipp"
#endif
