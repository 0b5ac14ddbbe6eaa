/// \file
/// One connection that carries frames, over plain TCP or TLS. Invariants: all functions run on the
/// control thread; a frame that is too long or of unknown type is never delivered; unsent bytes are
/// bounded, and a peer that does not read loses its connection; no handler runs after the end.
#pragma once

#include <array>
#include <asio/ip/tcp.hpp>
#include <asio/ssl.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/cluster/network/frames.hpp"
#include "lockstep/cluster/network/psk.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

using asio::ip::tcp;

/// Disables Nagle's algorithm, enables keepalive after one second, and limits the time for which
/// sent bytes may stay unacknowledged to `silence`. Errors are ignored: a system without one of
/// these options still has the heartbeats.
LOCKSTEP_COLD_DECL void set_socket_options(int socket, std::chrono::milliseconds silence);

/// Opens a non-blocking socket with close-on-exec, so that child processes do not inherit it.
LOCKSTEP_COLD_DECL void open_socket(tcp::socket& socket, const tcp& family,
                                    std::chrono::milliseconds silence, asio::error_code& error);

/// Reads one byte of a readable socket, with the flags of recv(2). False if there is none.
LOCKSTEP_COLD_DECL bool receive_byte(tcp::socket& socket, char& byte, int flags = 0);

/// A socket with frames in both directions. Handlers hold a shared_ptr, so the object lives until
/// the last operation has completed.
///
///     connected --handshake()--> TLS --start()--> open --finish_sending()--> half-closed --> ended
///         |____________plain TCP___________________^  |_____close(), error, end of stream_____^
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using FrameHandler = std::function<void(FrameType, std::string_view body)>;
  using EndHandler = std::function<void(const std::string& how)>;
  using HandshakeHandler = std::function<void(const asio::error_code&)>;

  /// Takes a connected or connecting socket.
  explicit Connection(tcp::socket socket) : socket_(std::move(socket)) {}

  tcp::socket& socket() { return socket_; }
  /// False after `close` or an error.
  bool open() const { return !ended_; }
  /// The peer's address and port; unspecified if the socket is closed.
  LOCKSTEP_COLD_DECL tcp::endpoint remote() const;
  /// This end's address and port.
  LOCKSTEP_COLD_DECL tcp::endpoint local() const;

  /// Performs the TLS handshake, then calls `done`, with an error unless the peer proved the key.
  LOCKSTEP_COLD_DECL void handshake(PskContext& context,
                                    asio::ssl::stream_base::handshake_type side,
                                    HandshakeHandler done);

  /// Starts to read frames of at most `longest` bytes. `on_end` runs at most once.
  LOCKSTEP_COLD_DECL void start(FrameHandler on_frame, EndHandler on_end, std::size_t longest);
  /// Replaces the handlers, also from within one of them.
  LOCKSTEP_COLD_DECL void set_handlers(FrameHandler on_frame, EndHandler on_end,
                                       std::size_t longest = max_frame_bytes);
  /// Queues a frame. Does nothing after the end.
  LOCKSTEP_COLD_DECL void send(std::string bytes);

  /// Flushes the queue, then shuts down the sending half. Keeps reading.
  LOCKSTEP_COLD_DECL void finish_sending();

  /// Reads and discards all further input, until the peer closes.
  LOCKSTEP_COLD_DECL void discard_input();

  /// The TLS state after `handshake`; null without one.
  SSL* tls() { return tls_ ? tls_->native_handle() : nullptr; }
  /// At a server, also during the handshake: true once the client has proved its key.
  bool has_proved_key() { return tls_ && PskContext::proved(tls_->native_handle()); }
  /// Gives the socket away; otherwise as `close`. \return the descriptor, -1 if it is closed.
  LOCKSTEP_COLD_DECL int release();

  /// Closes the socket at once: no message, no handler call.
  LOCKSTEP_COLD_DECL void close();

 private:
  static constexpr std::size_t max_queued = 4 << 20;

  /// Calls with the TLS stream, or with the plain socket.
  template <class Call>
  void with_stream(Call call);
  LOCKSTEP_COLD_DECL void read();
  /// Splits the input into frames and delivers them.
  LOCKSTEP_COLD_DECL void on_read(const asio::error_code& error, std::size_t n);
  /// Writes the front of the queue; at most one write is in flight.
  LOCKSTEP_COLD_DECL void write();
  /// Removes the written frame and writes the next.
  LOCKSTEP_COLD_DECL void on_written(const asio::error_code& error);
  /// Stops writing after an error. Input that has arrived is still read.
  LOCKSTEP_COLD_DECL void finish_writing();
  LOCKSTEP_COLD_DECL void shut_down_sending();
  /// Closes the connection and calls the end handler.
  LOCKSTEP_COLD_DECL void report_end(const std::string& how);
  /// An error code as the end of a sentence about the peer: "closed its connection".
  LOCKSTEP_COLD_DECL static std::string describe_error(const asio::error_code& error);

  tcp::socket socket_;
  std::optional<asio::ssl::stream<tcp::socket&>> tls_;
  FrameHandler on_frame_;
  EndHandler on_end_;
  std::size_t longest_ = max_frame_bytes, queued_ = 0;
  std::deque<std::string> queue_;
  std::string input_;
  std::array<char, 16 * 1024> chunk_{};
  bool finishing_ = false, ended_ = false;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/network/connection.ipp"
#endif
