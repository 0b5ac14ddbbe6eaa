/// \file
/// TCP over the simulated network. Invariants: a stream delivers each byte once and in order, or the
/// connection ends with an error; a segment is at most 64 KiB; the receiver's window bounds what is
/// in flight; lost segments are sent again after the retransmission timeout of RFC 6298, or after
/// the first duplicate acknowledgement, since the network keeps the order within a connection.
///
/// \code
///                               out_ of the sender
///   freed        │ received and │ in flight      │ not sent yet │
///   ─────────────┼──────────────┼────────────────┼──────────────┤
///            taken_         arrived_           sent_        written_
/// \endcode
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/testing/kernel/file.hpp"
#include "lockstep/testing/kernel/sim_network.hpp"

namespace lockstep::testing::detail {

/// Bytes between a sender and a receiver, in one copy.
class SimStream {
 public:
  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return end_; }
  void append(const char* p, std::size_t n);
  /// Copies bytes from `from` to `to`.
  std::size_t copy(std::uint64_t from, std::uint64_t to, std::span<const iovec> target) const;
  void drop_until(std::uint64_t end);

 private:
  std::vector<char> bytes_;  // a ring
  std::uint64_t begin_ = 0, end_ = 0;
};

class SimSocket : public SimFile {
 public:
  SimSocket(SimProcess& owner, SimNetwork& network);

  std::uint32_t ready() override;
  ssize_t read(std::span<const iovec> to, bool peek) override;
  ssize_t write(std::span<const iovec> from) override;
  void close() override;
  void fire(std::uint32_t kind, std::uint64_t a, std::uint64_t b) override;

  int bind(SimAddress address);
  int listen(int backlog);
  int connect(SimAddress address);
  /// Null if no connection is waiting.
  std::shared_ptr<SimSocket> accept();
  int shutdown(int how);
  int set_option(int level, int name, const void* value, socklen_t size);
  int get_option(int level, int name, void* value, socklen_t* size);

  enum class State { fresh, listening, connecting, accepting, open, failed, closed };
  State state() const { return state_; }
  const SimAddress& local() const { return local_; }
  const SimAddress& remote() const { return remote_; }
  std::size_t machine() const { return machine_; }
  int take_error() { return std::exchange(error_, 0); }
  std::size_t readable() const;
  SimTime receive_timeout = never, send_timeout = never;

 private:
  friend class SimNetwork;
  enum Packet : std::uint32_t {
    syn,
    syn_ack,
    data,
    ack,
    duplicate_ack,
    reset,
    probe,
    timer,
    alive
  };
  static constexpr std::uint64_t fin_bit = std::uint64_t{1} << 63;
  static constexpr std::size_t segment = 65536;

  void send_packet(std::uint32_t kind, std::uint64_t a, std::uint64_t b, std::size_t bytes);
  void on_syn(SimSocket& client);
  void on_data(std::uint64_t begin, std::uint64_t end, bool fin);
  void on_ack(std::uint64_t until, std::uint64_t limit, bool duplicate);
  void on_timer();
  void on_alive();
  void become_open();
  void push();
  void send_segment(std::uint64_t begin, std::uint64_t end);
  void acknowledge(bool duplicate = false);
  void arm(SimTime at);
  void arm_alive(SimTime at);
  void fail(int error);
  void end(bool send_reset);
  bool is_outstanding() const { return acked_ < sent_ || (fin_sent_ && !fin_acked_); }
  SimTime retransmission_timeout() const;
  std::uint64_t window_limit() const;
  std::size_t room() const;

  SimNetwork& network_;
  std::size_t machine_;
  State state_ = State::fresh;
  SimAddress local_{}, remote_{};
  SimSocket* peer_ = nullptr;
  int error_ = 0;
  bool orphan_ = false, read_shut_ = false;

  // Listening.
  std::size_t backlog_ = 0;
  std::deque<SimSocket*> queue_;    // to be accepted
  std::vector<SimSocket*> halves_;  // that await their client's first packet
  SimSocket* listener_ = nullptr;
  SimTime began_ = 0;

  // Sending.
  SimStream out_;
  std::uint64_t acked_ = 0, sent_ = 0, limit_ = 0, recover_ = 0;
  bool fin_queued_ = false, fin_sent_ = false, fin_acked_ = false, was_full_ = false;
  SimTime outstanding_since_ = 0, timer_at_ = never, timer_pending_ = never;
  SimTime last_arrival_ = 0;  // at the peer, which keeps the order
  int retransmits_ = 0, probes_ = 0, attempts_ = 0;
  bool probed_tail_ = false;
  SimTime smooth_ = 0, variation_ = 0, sample_begin_ = never;
  std::uint64_t sample_end_ = 0;

  // Receiving.
  std::uint64_t arrived_ = 0, taken_ = 0, advertised_ = 0;
  bool fin_arrived_ = false;
  SimTime last_received_ = 0, last_ack_ = 0;

  // Options.
  std::size_t send_buffer_ = 1 << 20, receive_buffer_ = 1 << 20;
  bool keeps_alive_ = false, lingers_ = false, reuses_ = false;
  int linger_ = 0;
  SimTime alive_idle_ = 7200 * second, alive_interval_ = 75 * second, user_timeout_ = 0;
  int alive_count_ = 9;
  SimTime alive_pending_ = never;
  std::map<std::pair<int, int>, int> options_;
};

}  // namespace lockstep::testing::detail
