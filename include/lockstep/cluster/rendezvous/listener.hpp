/// \file
/// Lets in who proves to belong to the job, and keeps strangers from doing harm. Invariants: a
/// connection has `patience` from its first moment to say who it is, however it behaves; of those
/// that have not yet said it there are at most 64, and 8 from one source: the oldest makes room
/// for the next, so that strangers who hang cannot keep a worker out.
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/cluster/rendezvous/connection.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/source_allowlist.hpp"
#include "lockstep/cluster/rendezvous/stranger_log.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

class Listener {
 public:
  using Admit = std::function<void(std::shared_ptr<Connection>, Hello)>;
  using Log = std::function<void(std::string_view)>;

  static constexpr std::size_t max_pending = 64, max_pending_per_source = 8;

  /// `psk`: nothing without a secret. `sources`: who may come at all. `admit` gets connections that
  /// have said who they are.
  LOCKSTEP_COLD_DECL Listener(asio::io_context& io, PskContext* psk, milliseconds timeout,
                              SourceAllowlist allowlist, Admit admit, Log log);
  Listener(const Listener&) = delete;  // its connections' handlers keep its address
  Listener& operator=(const Listener&) = delete;

  /// Listens at `endpoint`; an error says why not. `backlog`: connections that may come at once.
  LOCKSTEP_COLD_DECL asio::error_code listen(const tcp::endpoint& endpoint, int backlog);
  bool listening() const { return !acceptors_.empty(); }
  LOCKSTEP_COLD_DECL bool listens_by_ipv4() const;
  /// Connections wait, but the process has no file descriptor for them.
  bool out_of_files() const { return out_of_files_; }

  /// Sends the last frame to a connection that was admitted, and keeps it until it is gone.
  LOCKSTEP_COLD_DECL void send_and_close(const std::shared_ptr<Connection>& connection,
                                         const std::string& last_frame);

  /// Nobody comes in any more; those who were closing may still read why.
  LOCKSTEP_COLD_DECL void stop();
  LOCKSTEP_COLD_DECL bool idle() const;

  /// From time to time: ends what is overdue.
  LOCKSTEP_COLD_DECL void tick(Clock::time_point now);
  LOCKSTEP_COLD_DECL void close();

  /// Says something about a source, but not too often.
  LOCKSTEP_COLD_DECL void log_source(const std::string& source, std::string_view fact,
                                     Clock::time_point now);
  LOCKSTEP_COLD_DECL static std::string source_of(const Connection& connection);

 private:
  struct Pending {
    std::shared_ptr<Connection> connection;
    std::string source;
    Clock::time_point since;
    bool closing = false;
  };
  using Acceptor = std::shared_ptr<tcp::acceptor>;

  LOCKSTEP_COLD_DECL void accept(const Acceptor& acceptor);

  /// False if the system cannot give a descriptor now.
  LOCKSTEP_COLD_DECL bool accept_all(tcp::acceptor& acceptor);
  LOCKSTEP_COLD_DECL void log_out_of_files(int error);
  LOCKSTEP_COLD_DECL void on_accepted(const std::shared_ptr<Connection>& connection);

  /// By the first byte: TLS, plain, or neither.
  LOCKSTEP_COLD_DECL void detect_protocol(const std::shared_ptr<Connection>& connection,
                                          char first);
  LOCKSTEP_COLD_DECL void read_hello(const std::shared_ptr<Connection>& connection);
  LOCKSTEP_COLD_DECL void refuse(const std::shared_ptr<Connection>& connection,
                                 std::string_view fact, std::string_view sentence);
  LOCKSTEP_COLD_DECL void reject(const std::shared_ptr<Connection>& connection,
                                 std::string_view fact);
  LOCKSTEP_COLD_DECL void remove(const std::shared_ptr<Connection>& connection);
  LOCKSTEP_COLD_DECL void evict_oldest(const std::string& source);

  asio::io_context& io_;
  PskContext* psk_;
  milliseconds timeout_;
  SourceAllowlist allowlist_;
  Admit admit_;
  Log log_;
  StrangerLog strangers_;
  std::vector<Acceptor> acceptors_, paused_;
  std::list<Pending> pending_;  // the oldest first
  bool out_of_files_ = false;
  Clock::time_point next_out_of_files_log_{};
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/listener.ipp"
#endif
