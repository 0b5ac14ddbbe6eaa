/// \file
/// One connection of a channel. Invariants: data are read straight into the receiver's memory, or
/// decrypted into it, and checked before `read` reports them as received; a record that does not
/// fit what is expected ends the connection; nothing is allocated after the first operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/collectives/algorithms/collective_call.hpp"
#include "lockstep/collectives/algorithms/shutdown.hpp"
#include "lockstep/collectives/tcp/tcp_health.hpp"
#include "lockstep/collectives/tcp/wire.hpp"
#include "lockstep/concepts/data_connection.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/process/file_descriptor.hpp"

namespace lockstep::detail {

/// One connection, used by one thread at a time. `send`, `receive` and the calls queue transfers,
/// `write` and `read` make progress on them as far as the kernel does without waiting.
class TcpLink {
 public:
  LOCKSTEP_COLD_DECL TcpLink(FileDescriptor socket, const std::optional<WireKey>& send_key,
                             const std::optional<WireKey>& receive_key);

  int socket() const { return socket_.number(); }
  TcpHealth& health() { return health_; }

  /// Queues the call of an operation, and expects the peer's.
  LOCKSTEP_DECL void send_call(const CollectiveCall& call);
  void receive_call() { call_pending_ = true; }
  LOCKSTEP_DECL void send(const std::byte* p, std::size_t n);
  LOCKSTEP_DECL void receive(std::byte* p, std::size_t n);

  bool writes() const { return staged_ < stage_end_ || direct_left_ > 0 || out_ < outs_.size(); }
  bool reads() const { return call_pending_ || in_ < ins_.size(); }
  bool awaits_call() const { return call_pending_; }

  /// An end of `write` or `read`. `ended`: the peer closed the connection, or it failed (see `fact`).
  /// `corrupt`: a record was changed on its way. `call`: the peer's call is in `peers_call`.
  /// `notice`: the peer ended its operations; see `notice`.
  enum class Event { none, ended, corrupt, call, notice };

  /// Sends as much as the kernel takes. Sets `progress` if anything moved.
  LOCKSTEP_DECL Event write(bool& progress);
  /// Receives what is expected, as far as it has arrived; stops after a call.
  LOCKSTEP_DECL Event read(bool& progress);
  /// Looks for a notice while nothing is expected. \return false if further input cannot be one, so
  /// that there is nothing to wait for.
  LOCKSTEP_DECL bool looks_for_notice(Event& event);
  /// After `ended` or a failed `write`: reads what has arrived, up to a notice.
  LOCKSTEP_COLD_DECL bool find_notice();

  const CollectiveCall& peers_call() const { return peers_call_; }
  const Shutdown& notice() const { return notice_; }
  const std::string& fact() const { return fact_; }

  /// Drops what is queued. Bytes of a record that is half sent stay.
  LOCKSTEP_COLD_DECL void drop_queues();
  /// Sends the notice after a half-sent record, then ends the sending side.
  LOCKSTEP_COLD_DECL void queue_notice(const Shutdown& why);
  LOCKSTEP_COLD_DECL void end_sending();

 private:
  /// From this many bytes on, data are sent from where they lie instead of being copied.
  static constexpr std::size_t least_direct = 8192;
  static constexpr std::size_t buffer_bytes = Wire::longest + 1024;

  template <class Byte>
  struct Transfer {
    Byte* p;
    std::size_t n;
  };

  /// Payload bytes of the longest data record of this connection.
  std::size_t longest() const { return sends_.sealed() ? Wire::longest : Wire::longest_plain; }
  /// Copies or encrypts small transfers into the stage, then begins a record of the caller's memory.
  LOCKSTEP_DECL void fill_stage();
  LOCKSTEP_DECL void begin_direct();
  /// Receives into the buffer. \return false if nothing has come.
  LOCKSTEP_DECL bool fill(bool& progress, Event& event);
  /// Receives the rest of a record's payload into `to`, and what follows it into the buffer.
  LOCKSTEP_DECL bool fill_payload(std::byte* to, bool& progress, Event& event);
  LOCKSTEP_DECL bool came(std::ptrdiff_t n, bool& progress, Event& event);
  /// Reads the next head from the buffer. \return false if it is not one that a peer sends.
  LOCKSTEP_DECL bool open_record();
  /// Whether the whole body of the open record is in the buffer.
  bool has_body() const { return buffered() >= head_.bytes + receives_.trailer_bytes(); }
  /// Checks the open record, whose body is in the buffer, and copies its payload.
  LOCKSTEP_DECL bool close_record(std::byte* payload);
  /// Receives the payload of the open data record; `done` if it is complete and correct.
  LOCKSTEP_DECL Event read_data(bool& progress, bool& done);
  LOCKSTEP_COLD_DECL Event fail(std::string fact);
  std::size_t buffered() const { return buffer_end_ - buffer_first_; }

  FileDescriptor socket_;
  Wire sends_, receives_;
  TcpHealth health_;

  std::vector<Transfer<const std::byte>> outs_;
  std::size_t out_ = 0;  // the first transfer of outs_ that is not sent
  std::vector<std::byte> stage_;
  std::size_t staged_ = 0, stage_end_ = 0;
  RecordHead direct_head_{};           // a record that is sent from the caller's memory
  const std::byte* direct_ = nullptr;  // its payload
  std::uint32_t direct_crc_ = 0;
  std::size_t direct_left_ = 0;  // bytes of the whole record

  std::vector<Transfer<std::byte>> ins_;
  std::size_t in_ = 0;
  bool call_pending_ = false;
  std::vector<std::byte> buffer_;
  std::size_t buffer_first_ = 0, buffer_end_ = 0;
  RecordHead head_{};  // of the record that is being received
  bool has_head_ = false;
  std::size_t received_ = 0;  // payload bytes of a data record that are in the receiver's memory
  std::uint32_t crc_ = 0;

  CollectiveCall peers_call_{};
  Shutdown notice_{};
  std::string fact_;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/collectives/tcp/tcp_link.ipp"
#endif
