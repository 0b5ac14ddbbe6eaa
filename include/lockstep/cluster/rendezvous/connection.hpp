/// \file
/// One connection that carries frames, over plain TCP or TLS. Invariants: all is called from the
/// control thread; no frame is handed out that is too long or of no known type; what a peer does
/// not read is kept up to a limit, then the connection ends; after the end no handler is called.
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

#include "lockstep/cluster/rendezvous/frames.hpp"
#include "lockstep/cluster/rendezvous/psk.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

using asio::ip::tcp;

/// No Nagle, keepalive after a second, and `silence` for bytes to be acknowledged. A system that
/// lacks one of them still has the heartbeats.
LOCKSTEP_COLD_DECL void set_socket_options(int socket, std::chrono::milliseconds silence);

/// Opens a socket that a program started by this one does not inherit.
LOCKSTEP_COLD_DECL void open_socket(tcp::socket& socket, const tcp& family,
                                    std::chrono::milliseconds silence, asio::error_code& error);

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using FrameHandler = std::function<void(FrameType, std::string_view body)>;
  using EndHandler = std::function<void(const std::string& how)>;
  using HandshakeHandler = std::function<void(const asio::error_code&)>;

  explicit Connection(tcp::socket socket) : socket_(std::move(socket)) {}

  tcp::socket& socket() { return socket_; }
  bool open() const { return !ended_; }
  LOCKSTEP_COLD_DECL tcp::endpoint remote() const;
  LOCKSTEP_COLD_DECL tcp::endpoint local() const;

  /// Puts TLS on the connection. `done` gets an error if the key was not proved.
  LOCKSTEP_COLD_DECL void handshake(PskContext& context,
                                    asio::ssl::stream_base::handshake_type side,
                                    HandshakeHandler done);

  /// Reads frames from now on. The handlers may be replaced while they run.
  LOCKSTEP_COLD_DECL void start(FrameHandler on_frame, EndHandler on_end, std::size_t longest);
  LOCKSTEP_COLD_DECL void set_handlers(FrameHandler on_frame, EndHandler on_end,
                                       std::size_t longest = max_frame_bytes);
  LOCKSTEP_COLD_DECL void send(std::string bytes);

  /// Sends what is queued, then says that no more will come. What still comes is read.
  LOCKSTEP_COLD_DECL void finish_sending();

  /// Reads and forgets whatever still comes.
  LOCKSTEP_COLD_DECL void discard_input();

  /// Ends at once, without a word and without a call of a handler.
  LOCKSTEP_COLD_DECL void close();

 private:
  static constexpr std::size_t max_queued = 4 << 20;

  template <class Call>
  void with_stream(Call call);
  LOCKSTEP_COLD_DECL void read();
  LOCKSTEP_COLD_DECL void on_read(const asio::error_code& error, std::size_t n);
  LOCKSTEP_COLD_DECL void write();
  LOCKSTEP_COLD_DECL void on_written(const asio::error_code& error);
  LOCKSTEP_COLD_DECL void finish_writing();
  LOCKSTEP_COLD_DECL void shut_down_sending();
  LOCKSTEP_COLD_DECL void report_end(const std::string& how);
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
#include "lockstep/cluster/rendezvous/connection.ipp"
#endif
