#pragma once

#include "lockstep/cluster/network/connection.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/write.hpp>
#include <cerrno>

namespace lockstep::detail {

void set_socket_options(int socket, std::chrono::milliseconds silence) {
  const auto set = [socket](int level, int name, int value) {
    (void)::setsockopt(socket, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  // Keepalive probes find a dead idle peer, the user timeout one with data in flight.
  set(IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>(silence / std::chrono::seconds(1)) + 1);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(silence.count()));
}

void open_socket(tcp::socket& socket, const tcp& family, std::chrono::milliseconds silence,
                 asio::error_code& error) {
  const int handle =
      ::socket(family.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (handle < 0)
    error = asio::error_code(errno, asio::system_category());
  else
    socket.assign(family, handle, error);
  if (error && handle >= 0) ::close(handle);
  if (!error) set_socket_options(socket.native_handle(), silence);
}

bool receive_byte(tcp::socket& socket, char& byte, int flags) {
  ssize_t got = 0;
  do got = ::recv(socket.native_handle(), &byte, 1, flags);
  while (got < 0 && errno == EINTR);
  return got == 1;
}

tcp::endpoint Connection::remote() const {
  asio::error_code ignored;
  return socket_.remote_endpoint(ignored);
}

tcp::endpoint Connection::local() const {
  asio::error_code ignored;
  return socket_.local_endpoint(ignored);
}

void Connection::handshake(PskContext& context, asio::ssl::stream_base::handshake_type side,
                           HandshakeHandler done) {
  tls_.emplace(socket_, context.tls());
  tls_->async_handshake(
      side, [self = shared_from_this(), done = std::move(done)](asio::error_code error) {
        if (self->ended_) return;
        // A handshake without the key would leave the peer unauthenticated.
        if (!error && !PskContext::proved(self->tls_->native_handle()))
          error = asio::error::access_denied;
        done(error);
      });
}

void Connection::start(FrameHandler on_frame, EndHandler on_end, std::size_t longest) {
  set_handlers(std::move(on_frame), std::move(on_end), longest);
  read();
}

void Connection::set_handlers(FrameHandler on_frame, EndHandler on_end, std::size_t longest) {
  on_frame_ = std::move(on_frame);
  on_end_ = std::move(on_end);
  longest_ = longest;
}

void Connection::send(std::string bytes) {
  if (ended_ || finishing_) return;
  queued_ += bytes.size();
  if (queued_ > max_queued) return report_end("does not read its messages");
  queue_.push_back(std::move(bytes));
  // Else a write is in flight, and `on_written` continues.
  if (queue_.size() == 1) write();
}

void Connection::finish_sending() {
  if (ended_ || finishing_) return;
  finishing_ = true;
  if (queue_.empty()) shut_down_sending();
}

void Connection::discard_input() {
  if (ended_) return;
  socket_.async_read_some(asio::buffer(chunk_),
                          [self = shared_from_this()](const asio::error_code& error, std::size_t) {
                            if (error) return self->close();
                            self->discard_input();
                          });
}

int Connection::release() {
  if (ended_) return -1;
  ended_ = true;
  asio::error_code error;
  const int socket = socket_.release(error);
  return error ? -1 : socket;
}

void Connection::close() {
  if (ended_) return;
  ended_ = true;
  asio::error_code ignored;
  socket_.close(ignored);
}

template <class Call>
void Connection::with_stream(Call call) {
  if (tls_)
    call(*tls_);
  else
    call(socket_);
}

void Connection::read() {
  with_stream([this](auto& stream) {
    stream.async_read_some(asio::buffer(chunk_),
                           [self = shared_from_this()](asio::error_code error, std::size_t n) {
                             self->on_read(error, n);
                           });
  });
}

void Connection::on_read(const asio::error_code& error, std::size_t n) {
  if (ended_) return;
  if (error) return report_end(describe_error(error));
  input_.append(chunk_.data(), n);
  std::string_view rest = input_;
  Frame frame;
  for (Framing framing; (framing = next_frame(rest, longest_, frame)) != Framing::incomplete;) {
    if (framing == Framing::wrong) return report_end("sent bytes that are not a lockstep message");
    const FrameHandler handler = on_frame_;  // a copy: the handler may replace itself
    handler(frame.type, frame.body);
    if (ended_) return;
    rest.remove_prefix(frame.size);
  }
  // Only an incomplete frame stays.
  input_.erase(0, input_.size() - rest.size());
  read();
}

void Connection::write() {
  with_stream([this](auto& stream) {
    asio::async_write(stream, asio::buffer(queue_.front()),
                      [self = shared_from_this()](asio::error_code error, std::size_t) {
                        self->on_written(error);
                      });
  });
}

void Connection::on_written(const asio::error_code& error) {
  if (ended_) return;
  // The peer may have sent data before it closed. The reader delivers that, then meets the end.
  if (error) return finish_writing();
  queued_ -= queue_.front().size();
  queue_.pop_front();
  if (!queue_.empty()) return write();
  if (finishing_) shut_down_sending();
}

void Connection::finish_writing() {
  finishing_ = true;
  shut_down_sending();
}

void Connection::shut_down_sending() {
  asio::error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
}

void Connection::report_end(const std::string& how) {
  close();
  if (const EndHandler handler = on_end_) handler(how);
}

std::string Connection::describe_error(const asio::error_code& error) {
  if (error == asio::error::eof || error == asio::ssl::error::stream_truncated)
    return "closed its connection";
  if (error == asio::error::connection_reset || error == asio::error::broken_pipe)
    return "closed its connection (reset)";
  if (error == asio::error::timed_out) return "became unreachable (timed out)";
  return "lost its connection (" + error.message() + ")";
}

}  // namespace lockstep::detail
