/// \file
/// Lets in who proves to belong to the job, and keeps strangers from doing harm. Invariants: a
/// connection has `patience` from its first moment to say who it is, however it behaves; of those
/// that have not yet said it there are at most 64, and 8 from one source: the oldest makes room
/// for the next, so that strangers who hang cannot keep a worker out.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/ip/v6_only.hpp>
#include <asio/read.hpp>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/cluster/rendezvous/connection.hpp"
#include "lockstep/cluster/rendezvous/file_limit.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/sources.hpp"
#include "lockstep/cluster/rendezvous/stranger_log.hpp"

namespace lockstep::detail {

class Listener {
 public:
  using Admit = std::function<void(std::shared_ptr<Connection>, Hello)>;
  using Say = std::function<void(std::string_view)>;

  static constexpr std::size_t most_newcomers = 64, most_newcomers_of_one_source = 8;

  /// `psk`: nothing without a secret. `sources`: who may come at all. `admit` gets connections that
  /// have said who they are.
  Listener(asio::io_context& io, PskContext* psk, milliseconds patience, Sources sources,
           Admit admit, Say say)
      : io_(io),
        psk_(psk),
        patience_(patience),
        sources_(std::move(sources)),
        admit_(std::move(admit)),
        say_(std::move(say)) {}
  Listener(const Listener&) = delete;  // its connections' handlers keep its address
  Listener& operator=(const Listener&) = delete;

  /// Listens at `endpoint`; an error says why not. `backlog`: connections that may come at once.
  asio::error_code listen(const tcp::endpoint& endpoint, int backlog) {
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
  bool listening() const { return !acceptors_.empty(); }
  bool listens_by_ipv4() const {
    return std::any_of(acceptors_.begin(), acceptors_.end(), [](const Acceptor& acceptor) {
      asio::error_code ignored;
      return acceptor->local_endpoint(ignored).protocol() == tcp::v4();
    });
  }
  /// Connections wait, but the process has no file descriptor for them.
  bool starved() const { return starved_; }

  /// Sends the last frame to a connection that was admitted, and keeps it until it is gone.
  void dismiss(const std::shared_ptr<Connection>& connection, const std::string& last_frame) {
    connection->handle([](FrameType, std::string_view) {}, [](const std::string&) {});
    connection->send(last_frame);
    connection->finish();
    newcomers_.push_back({connection, source_of(*connection), Clock::now(), true});
  }

  /// Nobody comes in any more; those who were dismissed may still read why.
  void stop() {
    asio::error_code ignored;
    for (auto& acceptor : acceptors_) acceptor->close(ignored);
    acceptors_.clear();
    paused_.clear();
    for (auto& newcomer : newcomers_)
      if (!newcomer.dismissed) newcomer.connection->close();
  }
  bool idle() const {
    return std::none_of(newcomers_.begin(), newcomers_.end(),
                        [](const Newcomer& n) { return n.connection->open(); });
  }

  /// From time to time: ends what is overdue.
  void tick(Clock::time_point now) {
    sources_.tick(now);
    for (auto i = newcomers_.begin(); i != newcomers_.end();) {
      const bool overdue = now - i->since >= patience_;
      if (overdue && i->connection->open() && !i->dismissed)
        report(i->source, "did not say in time what it wants; it was closed", now);
      if (overdue) i->connection->close();
      i = i->connection->open() ? std::next(i) : newcomers_.erase(i);
    }
    // Descriptors may be free again.
    for (auto& acceptor : std::exchange(paused_, {})) accept(acceptor);
  }

  void close() {
    stop();
    for (auto& newcomer : newcomers_) newcomer.connection->close();
    newcomers_.clear();
  }

  /// Says something about a source, but not too often.
  void report(const std::string& source, std::string_view fact, Clock::time_point now) {
    const std::string line = strangers_.line(source, fact, now);
    if (!line.empty()) say_(line);
  }
  static std::string source_of(const Connection& connection) {
    return connection.remote().address().to_string();
  }

 private:
  struct Newcomer {
    std::shared_ptr<Connection> connection;
    std::string source;
    Clock::time_point since;
    bool dismissed = false;
  };
  using Acceptor = std::shared_ptr<tcp::acceptor>;

  void accept(const Acceptor& acceptor) {
    acceptor->async_wait(tcp::acceptor::wait_read, [this, acceptor](asio::error_code error) {
      if (error || !acceptor->is_open()) return;
      if (accept_all(*acceptor))
        accept(acceptor);
      else
        paused_.push_back(acceptor);
    });
  }

  /// False if the system cannot give a descriptor now.
  bool accept_all(tcp::acceptor& acceptor) {
    for (int i = 0; i < 256; ++i) {
      const int handle =
          ::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (handle < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
        if (errno == ECONNABORTED || errno == EINTR || errno == EPROTO) continue;
        note_starved(errno);
        return false;
      }
      starved_ = false;
      asio::error_code error;
      tcp::socket socket(io_);
      socket.assign(acceptor.local_endpoint(error).protocol(), handle, error);
      if (error) {
        ::close(handle);
        continue;
      }
      set_socket_options(handle, patience_);
      greet(std::make_shared<Connection>(std::move(socket)));
    }
    return true;
  }

  void note_starved(int error) {
    const auto now = Clock::now();
    starved_ = true;
    if (now < next_starved_line_) return;
    next_starved_line_ = now + waiting_line_interval;
    say_(text({"a connection cannot be accepted (", std::generic_category().message(error),
               "): ", files_sentence()}));
  }

  void greet(const std::shared_ptr<Connection>& connection) {
    const std::string source = source_of(*connection);
    if (!sources_.welcome(connection->remote().address())) {
      report(source, "comes from no host of the cluster, and there is no secret; it was closed",
             Clock::now());
      return connection->close();
    }
    make_room(source);
    newcomers_.push_back({connection, source, Clock::now()});
    connection->socket().async_wait(
        tcp::socket::wait_read, [this, connection](const asio::error_code& error) {
          if (!connection->open()) return;
          char first = 0;
          const auto got =
              error ? 0 : ::recv(connection->socket().native_handle(), &first, 1, MSG_PEEK);
          if (got == 1)
            choose(connection, first);
          else
            reject(connection, {});
        });
  }

  /// By the first byte: TLS, plain, or neither.
  void choose(const std::shared_ptr<Connection>& connection, char first) {
    constexpr char tls_record = 0x16;
    if (first == tls_record && psk_) {
      connection->handshake(
          *psk_, asio::ssl::stream_base::server, [this, connection](const asio::error_code& error) {
            if (!error) return hear(connection);
            reject(connection, error.category() == asio::error::get_ssl_category()
                                   ? "did not prove the job's secret; it was refused"
                                   : "");
          });
    } else if (first == tls_record) {
      refuse(connection,
             "speaks TLS, as a worker with a secret does, but the chief has none; it was refused",
             "the chief has no secret, but this process has one; set LOCKSTEP_SECRET_FILE to the "
             "same secret on all ranks, or unset it on all");
    } else if (first == greeting[0]) {
      auto bytes = std::make_shared<std::array<char, greeting.size()>>();
      asio::async_read(connection->socket(), asio::buffer(*bytes),
                       [this, connection, bytes](const asio::error_code& error, std::size_t) {
                         if (!connection->open()) return;
                         if (error || std::string_view(bytes->data(), bytes->size()) != greeting)
                           return reject(connection, "speaks no protocol of lockstep");
                         if (!psk_) return hear(connection);
                         refuse(connection,
                                "is a worker without a secret, but the chief has one; it was "
                                "refused",
                                "the chief has a secret, but this process has none; set "
                                "LOCKSTEP_SECRET_FILE to the same secret on all ranks");
                       });
    } else {
      reject(connection, "speaks no protocol of lockstep");
    }
  }

  void hear(const std::shared_ptr<Connection>& connection) {
    const std::weak_ptr<Connection> weak = connection;
    connection->start(
        [this, weak](FrameType type, std::string_view body) {
          const auto speaker = weak.lock();
          auto hello = type == FrameType::hello ? parse<Hello>(body) : std::nullopt;
          if (!hello) return reject(speaker, "sent something else than who it is");
          remove(speaker);
          admit_(speaker, std::move(*hello));
        },
        [this, weak](const std::string&) { remove(weak.lock()); }, longest_first_frame);
  }

  void refuse(const std::shared_ptr<Connection>& connection, std::string_view fact,
              std::string_view sentence) {
    report(source_of(*connection), fact, Clock::now());
    remove(connection);
    dismiss(connection, frame(Refuse{std::string(sentence)}));
    // Reads the rest, so that closing does not throw the refusal away.
    connection->drain();
  }

  void reject(const std::shared_ptr<Connection>& connection, std::string_view fact) {
    if (!fact.empty()) report(source_of(*connection), fact, Clock::now());
    connection->close();
    remove(connection);
  }

  void remove(const std::shared_ptr<Connection>& connection) {
    newcomers_.remove_if([&](const Newcomer& n) { return n.connection == connection; });
  }

  void make_room(const std::string& source) {
    const auto same = [&](const Newcomer& n) { return n.source == source; };
    const auto drop = [&](std::list<Newcomer>::iterator oldest) {
      oldest->connection->close();
      newcomers_.erase(oldest);
    };
    if (std::count_if(newcomers_.begin(), newcomers_.end(), same) >=
        static_cast<std::ptrdiff_t>(most_newcomers_of_one_source))
      drop(std::find_if(newcomers_.begin(), newcomers_.end(), same));
    if (newcomers_.size() >= most_newcomers) drop(newcomers_.begin());
  }

  asio::io_context& io_;
  PskContext* psk_;
  milliseconds patience_;
  Sources sources_;
  Admit admit_;
  Say say_;
  StrangerLog strangers_;
  std::vector<Acceptor> acceptors_, paused_;
  std::list<Newcomer> newcomers_;  // the oldest first
  bool starved_ = false;
  Clock::time_point next_starved_line_{};
};

}  // namespace lockstep::detail
