/// \file
/// A process that exchanges with parameter servers in an asynchronous phase. Invariant: it reports a
/// step after all servers have its gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "lockstep/collectives/algorithms/process_group.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/training/asynchronous/push_messages.hpp"
#include "lockstep/training/asynchronous/touched_rows.hpp"

namespace lockstep::detail {

/// Used by one thread.
class PushClient {
 public:
  struct Server {
    std::size_t rank;
    ServedWeights weights{};
  };

  /// `servers`: the first one hands out the steps. `pairs` must outlive the object.
  LOCKSTEP_COLD_DECL PushClient(const PhaseShape& shape, std::map<std::size_t, ProcessGroup>& pairs,
                                std::vector<Server> servers);

  /// Reports the step that was pushed last, and asks for the next one. Waits for at most a fraction of a
  /// second.
  LOCKSTEP_DECL PushReply next(bool stops);
  /// The same for a process that makes no steps.
  LOCKSTEP_DECL PushReply follow(bool stops);
  /// The same for a server, which has made `applied` updates; appends to `order`, for each of the next
  /// ones, the step and the rank whose push counts of each slice.
  LOCKSTEP_DECL PushReply serve(bool stops, std::uint64_t applied,
                                std::vector<std::uint64_t>& order);
  /// Adds numbers of all servers, of which this is one, within an update.
  LOCKSTEP_DECL void sum(std::span<double> values);
  /// The weights that the next pull and push are about, in bytes of all; none: all of them.
  void set_touched(std::vector<Slice>& touched) { touched_ = touched; }
  /// The same in a process that has them at other places.
  void set_touched(const PlacedRows& placed) { placed_ = &placed; }
  /// Reads the weights and the layers' state.
  LOCKSTEP_DECL void pull(std::byte* weights, std::span<std::byte> state);
  /// Sends the gradients, the record and the state of the step, or slice, that `next` has given.
  /// `state`: that after the step, or the slice's part.
  LOCKSTEP_DECL void push(std::uint64_t step, const std::byte* gradients,
                          std::span<const double> record, std::span<const std::byte> state);
  /// Ends the phase for all servers.
  LOCKSTEP_COLD_DECL void end();
  /// Ends all exchanges with the servers by an error. From any thread.
  LOCKSTEP_COLD_DECL void abort();
  /// The records that have come since the last call.
  LOCKSTEP_DECL std::vector<double> take_records();

 private:
  ProcessGroup& pair(const Server& server) { return pairs_->at(server.rank); }
  LOCKSTEP_DECL PushReply ask(PushRequest request);
  /// \throws Error for numbers that are not of this phase.
  LOCKSTEP_DECL void check(const PushReply& reply) const;
  /// Sends a request about weights of `range`, and fills in parts_ and places_.
  LOCKSTEP_DECL void ask_for(const Server& server, PushRequest request,
                             std::span<const Slice> range);

  PhaseShape shape_;
  std::map<std::size_t, ProcessGroup>* pairs_;
  std::vector<Server> servers_;
  std::uint64_t pushed_ = PushRequest::none;  // a step that the first server has not heard of
  std::uint64_t slice_ = 0;                   // of the step that `next` has given
  std::uint64_t state_seen_ = 0;              // updates before the layers' state was pulled
  std::uint64_t known_ = 0;                   // records received
  bool stops_ = false;                        // a server's process asks for the end
  std::vector<double> records_;
  std::vector<std::byte> states_;       // of a push
  const PlacedRows* placed_ = nullptr;  // null: the weights have their own places
  std::vector<Slice> touched_, parts_, places_;
  std::vector<std::byte> packed_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/asynchronous/push_client.ipp"
#endif
