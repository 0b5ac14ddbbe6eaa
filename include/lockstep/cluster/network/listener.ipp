#pragma once

#include "lockstep/cluster/network/listener.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <asio/ip/v6_only.hpp>
#include <asio/read.hpp>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "lockstep/cluster/network/file_limit.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

Listener::Listener(asio::io_context& io, PskContext* psk, milliseconds timeout,
                   SourceAllowlist allowlist, Admit admit, Log log)
    : io_(io),
      psk_(psk),
      timeout_(timeout),
      allowlist_(std::move(allowlist)),
      admit_(std::move(admit)),
      log_(std::move(log)) {}

asio::error_code Listener::listen(const tcp::endpoint& endpoint, int backlog) {
  asio::error_code error;
  auto acceptor = std::make_shared<tcp::acceptor>(io_);
  const int handle = ::socket(endpoint.protocol().family(),
                              SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (handle < 0) return {errno, asio::system_category()};
  acceptor->assign(endpoint.protocol(), handle, error);
  if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && endpoint.address().is_v6()) acceptor->set_option(asio::ip::v6_only(true), error);
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(backlog, error);
  if (error) return error;
  acceptors_.push_back(acceptor);
  accept(acceptor);
  return {};
}

void Listener::hand_over_proved(Proved proved) { proved_ = std::move(proved); }

std::uint16_t Listener::port(std::size_t index) const {
  asio::error_code ignored;
  return index < acceptors_.size() ? acceptors_[index]->local_endpoint(ignored).port()
                                   : std::uint16_t{0};
}

bool Listener::listens_by_ipv4() const {
  return std::any_of(acceptors_.begin(), acceptors_.end(), [](const Acceptor& acceptor) {
    asio::error_code ignored;
    return acceptor->local_endpoint(ignored).protocol() == tcp::v4();
  });
}

void Listener::send_and_close(const std::shared_ptr<Connection>& connection,
                              const std::string& last_frame) {
  connection->set_handlers([](FrameType, std::string_view) {}, [](const std::string&) {});
  connection->send(last_frame);
  connection->finish_sending();
  pending_.push_back({connection, source_of(*connection), Clock::now(), true});
}

void Listener::stop() {
  asio::error_code ignored;
  for (auto& acceptor : acceptors_) acceptor->close(ignored);
  acceptors_.clear();
  paused_.clear();
  for (auto& pending : pending_)
    if (!pending.closing) pending.connection->close();
}

bool Listener::idle() const {
  return std::none_of(pending_.begin(), pending_.end(),
                      [](const Pending& n) { return n.connection->open(); });
}

void Listener::tick(Clock::time_point now) {
  allowlist_.tick(now);
  for (auto i = pending_.begin(); i != pending_.end();) {
    const bool overdue = now - i->since >= timeout_;
    if (overdue && i->connection->open() && !i->closing)
      log_source(i->source, "did not identify itself in time; closed", now);
    if (overdue) i->connection->close();
    i = i->connection->open() ? std::next(i) : pending_.erase(i);
  }
  // Descriptors may be free again.
  for (auto& acceptor : std::exchange(paused_, {})) accept(acceptor);
}

void Listener::close() {
  stop();
  for (auto& pending : pending_) pending.connection->close();
  pending_.clear();
}

void Listener::log_source(const std::string& source, std::string_view fact, Clock::time_point now) {
  const std::string line = strangers_.line(source, fact, now);
  if (!line.empty()) log_(line);
}

std::string Listener::source_of(const Connection& connection) {
  return connection.remote().address().to_string();
}

void Listener::accept(const Acceptor& acceptor) {
  acceptor->async_wait(tcp::acceptor::wait_read, [this, acceptor](asio::error_code error) {
    if (error || !acceptor->is_open()) return;
    if (accept_all(*acceptor))
      accept(acceptor);
    else
      paused_.push_back(acceptor);
  });
}

bool Listener::accept_all(tcp::acceptor& acceptor) {
  // Bounded, so that a flood of connections cannot starve heartbeats.
  for (int i = 0; i < 256; ++i) {
    const int handle =
        ::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (handle < 0) {
      // The queue is empty.
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      if (errno == ECONNABORTED || errno == EINTR || errno == EPROTO) continue;
      log_out_of_files(errno);
      return false;
    }
    out_of_files_ = false;
    asio::error_code error;
    tcp::socket socket(io_);
    socket.assign(acceptor.local_endpoint(error).protocol(), handle, error);
    if (error) {
      ::close(handle);
      continue;
    }
    set_socket_options(handle, timeout_);
    on_accepted(std::make_shared<Connection>(std::move(socket)));
  }
  return true;
}

void Listener::log_out_of_files(int error) {
  const auto now = Clock::now();
  out_of_files_ = true;
  if (now < next_out_of_files_log_) return;
  next_out_of_files_log_ = now + join_log_interval;
  log_(format_text("a connection cannot be accepted ({}): {}",
                   std::generic_category().message(error), files_sentence()));
}

void Listener::on_accepted(const std::shared_ptr<Connection>& connection) {
  const std::string source = source_of(*connection);
  if (!allowlist_.allows(connection->remote().address())) {
    log_source(source, "is not from a host of the cluster, and the job has no secret; closed",
               Clock::now());
    return connection->close();
  }
  make_room(source);
  pending_.push_back(
      {.connection = connection,
       .source = source,
       .since = Clock::now(),
       .is_described = is_crowded_ && allowlist_.describes(connection->remote().address())});
  connection->socket().async_wait(
      tcp::socket::wait_read, [this, connection](const asio::error_code& error) {
        if (!connection->open()) return;
        char first = 0;
        if (!error && receive_byte(connection->socket(), first, MSG_PEEK))
          detect_protocol(connection, first);
        else
          reject(connection, {});
      });
}

void Listener::detect_protocol(const std::shared_ptr<Connection>& connection, char first) {
  constexpr char tls_record = 0x16;
  if (first == tls_record && psk_) {
    connection->handshake(
        *psk_, asio::ssl::stream_base::server, [this, connection](const asio::error_code& error) {
          if (!error && !proved_) return read_hello(connection);
          if (!error) {
            remove(connection);
            return proved_(connection);
          }
          reject(connection, error.category() == asio::error::get_ssl_category()
                                 ? "did not prove that it has the job's secret; refused"
                                 : "");
        });
  } else if (first == tls_record) {
    refuse(connection,
           "speaks TLS, as a worker with a secret does, but the chief has none; refused",
           "the chief has no secret, but this process has one; set LOCKSTEP_SECRET_FILE to the "
           "same secret on all ranks, or unset it on all");
  } else if (first == greeting[0]) {
    auto bytes = std::make_shared<std::array<char, greeting.size()>>();
    asio::async_read(connection->socket(), asio::buffer(*bytes),
                     [this, connection, bytes](const asio::error_code& error, std::size_t) {
                       if (!connection->open()) return;
                       if (error || std::string_view(bytes->data(), bytes->size()) != greeting)
                         return reject(connection, "does not speak lockstep's protocol");
                       if (!psk_) return read_hello(connection);
                       refuse(connection,
                              "is a worker without a secret, but the chief has one; it was "
                              "refused",
                              "the chief has a secret, but this process has none; set "
                              "LOCKSTEP_SECRET_FILE to the same secret on all ranks");
                     });
  } else {
    reject(connection, "does not speak lockstep's protocol");
  }
}

void Listener::read_hello(const std::shared_ptr<Connection>& connection) {
  // A shared_ptr in its own handler would be a cycle.
  const std::weak_ptr<Connection> weak = connection;
  connection->start(
      [this, weak](FrameType type, std::string_view body) {
        const auto speaker = weak.lock();
        auto hello = type == FrameType::hello ? parse<Hello>(body) : std::nullopt;
        if (!hello) return reject(speaker, "did not begin with a hello message");
        remove(speaker);
        admit_(speaker, std::move(*hello));
      },
      [this, weak](const std::string&) { remove(weak.lock()); }, max_first_frame_bytes);
}

void Listener::refuse(const std::shared_ptr<Connection>& connection, std::string_view fact,
                      std::string_view sentence) {
  log_source(source_of(*connection), fact, Clock::now());
  remove(connection);
  send_and_close(connection, frame(Refuse{std::string(sentence), Refuse::Reason::other_secret}));
  // Unread input would turn the close into a reset, which discards the refusal on its way.
  connection->discard_input();
}

void Listener::reject(const std::shared_ptr<Connection>& connection, std::string_view fact) {
  if (!fact.empty()) log_source(source_of(*connection), fact, Clock::now());
  connection->close();
  remove(connection);
}

void Listener::remove(const std::shared_ptr<Connection>& connection) {
  pending_.remove_if([&](const Pending& n) { return n.connection == connection; });
}

int Listener::rank_of(Pending& pending) {
  Connection& connection = *pending.connection;
  char first = 0;
  pending.has_spoken =
      pending.has_spoken || connection.tls() || receive_byte(connection.socket(), first, MSG_PEEK);
  return 4 * connection.has_proved_key() + 2 * pending.is_described + pending.has_spoken;
}

void Listener::make_room(const std::string& source) {
  const auto is_same = [&](const Pending& n) { return n.source == source; };
  const auto drop_lowest = [&](const auto& is_candidate) {
    is_crowded_ = true;
    auto lowest = pending_.end();
    int rank = 0;
    for (auto i = pending_.begin(); i != pending_.end(); ++i) {
      if (!is_candidate(*i)) continue;
      const int own = rank_of(*i);
      if (lowest != pending_.end() && own >= rank) continue;
      lowest = i;
      rank = own;
      if (rank == 0) break;
    }
    lowest->connection->close();
    pending_.erase(lowest);
  };
  if (std::count_if(pending_.begin(), pending_.end(), is_same) >=
      static_cast<std::ptrdiff_t>(max_pending_per_source + expected_peers_))
    drop_lowest(is_same);
  if (pending_.size() >= max_pending + expected_peers_)
    drop_lowest([](const Pending&) { return true; });
}

}  // namespace lockstep::detail
