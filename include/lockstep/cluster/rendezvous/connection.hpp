/// \file
/// One connection that carries frames, over plain TCP or TLS. Invariants: all is called from the
/// control thread; no frame is handed out that is too long or of no known type; what a peer does
/// not read is kept up to a limit, then the connection ends; after the end no handler is called.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/ssl.hpp>
#include <asio/write.hpp>
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

namespace lockstep::detail {

using asio::ip::tcp;

/// No Nagle, keepalive after a second, and `silence` for bytes to be acknowledged. A system that
/// lacks one of them still has the heartbeats.
inline void set_socket_options(int socket, std::chrono::milliseconds silence) {
  const auto set = [socket](int level, int name, int value) {
    (void)::setsockopt(socket, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>(silence / std::chrono::seconds(1)) + 1);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(silence.count()));
}

/// Opens a socket that a program started by this one does not inherit.
inline void open_socket(tcp::socket& socket, const tcp& protocol, std::chrono::milliseconds silence,
                        asio::error_code& error) {
  const int handle =
      ::socket(protocol.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (handle < 0)
    error = asio::error_code(errno, asio::system_category());
  else
    socket.assign(protocol, handle, error);
  if (!error) set_socket_options(socket.native_handle(), silence);
}

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using FrameHandler = std::function<void(FrameType, std::string_view body)>;
  using EndHandler = std::function<void(const std::string& how)>;
  using HandshakeHandler = std::function<void(const asio::error_code&)>;

  explicit Connection(tcp::socket socket) : socket_(std::move(socket)) {}

  tcp::socket& socket() { return socket_; }
  bool open() const { return !ended_; }
  tcp::endpoint remote() const {
    asio::error_code ignored;
    return socket_.remote_endpoint(ignored);
  }
  tcp::endpoint local() const {
    asio::error_code ignored;
    return socket_.local_endpoint(ignored);
  }

  /// Puts TLS on the connection. `done` gets an error if the key was not proved.
  void handshake(PskContext& context, asio::ssl::stream_base::handshake_type side,
                 HandshakeHandler done) {
    tls_.emplace(socket_, context.tls());
    tls_->async_handshake(
        side, [self = shared_from_this(), done = std::move(done)](asio::error_code error) {
          if (self->ended_) return;
          if (!error && !PskContext::proved(self->tls_->native_handle()))
            error = asio::error::access_denied;
          done(error);
        });
  }

  /// Reads frames from now on. The handlers may be replaced while they run.
  void start(FrameHandler on_frame, EndHandler on_end, std::size_t longest) {
    handle(std::move(on_frame), std::move(on_end), longest);
    read();
  }
  void handle(FrameHandler on_frame, EndHandler on_end, std::size_t longest = longest_frame) {
    on_frame_ = std::make_shared<FrameHandler>(std::move(on_frame));
    on_end_ = std::make_shared<EndHandler>(std::move(on_end));
    longest_ = longest;
  }

  void send(std::string bytes) {
    if (ended_ || finishing_) return;
    queued_ += bytes.size();
    if (queued_ > most_queued) return end("does not read what it is sent");
    queue_.push_back(std::move(bytes));
    if (queue_.size() == 1) write();
  }

  /// Sends what is queued, then says that no more will come. What still comes is read.
  void finish() {
    if (ended_ || finishing_) return;
    finishing_ = true;
    if (queue_.empty()) shut();
  }

  /// Reads and forgets whatever still comes.
  void drain() {
    if (ended_) return;
    socket_.async_read_some(asio::buffer(chunk_), [self = shared_from_this()](
                                                      const asio::error_code& error, std::size_t) {
      if (error) return self->close();
      self->drain();
    });
  }

  /// Ends at once, without a word and without a call of a handler.
  void close() {
    if (ended_) return;
    ended_ = true;
    asio::error_code ignored;
    socket_.close(ignored);
  }

 private:
  static constexpr std::size_t most_queued = 4 << 20;

  template <class Call>
  void with_stream(Call call) {
    if (tls_)
      call(*tls_);
    else
      call(socket_);
  }

  void read() {
    with_stream([this](auto& stream) {
      stream.async_read_some(asio::buffer(chunk_),
                             [self = shared_from_this()](asio::error_code error, std::size_t n) {
                               self->take(error, n);
                             });
    });
  }

  void take(const asio::error_code& error, std::size_t n) {
    if (ended_) return;
    if (error) return end(fate(error));
    input_.append(chunk_.data(), n);
    std::string_view rest = input_;
    Frame frame;
    for (Framing framing; (framing = next_frame(rest, longest_, frame)) != Framing::incomplete;) {
      if (framing == Framing::wrong) return end("sent what is no message of lockstep");
      const auto handler = on_frame_;
      (*handler)(frame.type, frame.body);
      if (ended_) return;
      rest.remove_prefix(frame.size);
    }
    input_.erase(0, input_.size() - rest.size());
    read();
  }

  void write() {
    with_stream([this](auto& stream) {
      asio::async_write(stream, asio::buffer(queue_.front()),
                        [self = shared_from_this()](asio::error_code error, std::size_t) {
                          self->written(error);
                        });
    });
  }

  void written(const asio::error_code& error) {
    if (ended_) return;
    // What the peer said before it went is still read; the reader then meets the end.
    if (error) return finish_writing();
    queued_ -= queue_.front().size();
    queue_.pop_front();
    if (!queue_.empty()) return write();
    if (finishing_) shut();
  }
  void finish_writing() {
    finishing_ = true;
    shut();
  }
  void shut() {
    asio::error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }

  void end(const std::string& how) {
    close();
    const auto handler = on_end_;
    if (handler) (*handler)(how);
  }

  static std::string fate(const asio::error_code& error) {
    if (error == asio::error::eof || error == asio::ssl::error::stream_truncated)
      return "closed its connection";
    if (error == asio::error::connection_reset || error == asio::error::broken_pipe)
      return "closed its connection (reset)";
    if (error == asio::error::timed_out) return "cannot be reached any more (timed out)";
    return "lost its connection (" + error.message() + ")";
  }

  tcp::socket socket_;
  std::optional<asio::ssl::stream<tcp::socket&>> tls_;
  std::shared_ptr<FrameHandler> on_frame_;
  std::shared_ptr<EndHandler> on_end_;
  std::size_t longest_ = longest_frame, queued_ = 0;
  std::deque<std::string> queue_;
  std::string input_;
  std::array<char, 16 * 1024> chunk_{};
  bool finishing_ = false, ended_ = false;
};

}  // namespace lockstep::detail
