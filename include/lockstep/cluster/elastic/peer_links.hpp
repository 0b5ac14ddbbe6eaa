/// \file
/// The connections of an elastic job's agreement. Invariants: all functions run on the member's
/// thread; a letter is delivered only from a process that has proved the job's secret and whose
/// settings are equal; at most two incoming connections and 16 unsent letters are kept for each
/// described process.
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/elastic/elastic_messages.hpp"
#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/cluster/network/connection.hpp"
#include "lockstep/cluster/network/listener.hpp"
#include "lockstep/cluster/network/lookup.hpp"
#include "lockstep/cluster/network/psk.hpp"
#include "lockstep/cluster/network/secret.hpp"
#include "lockstep/cluster/rendezvous/chief_address.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/log.hpp"

namespace lockstep::detail {

/// The reports of PeerLinks, with the described index of the process.
struct LinkEvents {
  std::function<void(const Letter&)> letter;
  std::function<void(std::size_t index)> refused;       ///< nothing listens there
  std::function<void(std::size_t index)> disconnected;  ///< the last connection has ended
  /// The settings of that process differ.
  std::function<void(std::size_t index, const std::string& sentence)> differs;
  std::function<void(LogLevel, std::string_view)> log;
};

/// One process' connections to the others, made when there is something to send:
///
///     send(letter) --> queued --connect--> TLS or greeting --> Hello, letters -->  the peer admits
///                        |                                  <-- Hello, letters --
///                        '--refused by its addresses------> refused(index)
///
/// Both ends send over the connection that has last brought something.
class PeerLinks {
 public:
  /// `hello` describes this process.
  LOCKSTEP_COLD_DECL PeerLinks(asio::io_context& io, const ResolvedCluster& described,
                               const Secret& secret, Hello hello, milliseconds silence,
                               LinkEvents events);
  PeerLinks(const PeerLinks&) = delete;  // handlers hold its address
  PeerLinks& operator=(const PeerLinks&) = delete;
  LOCKSTEP_COLD_DECL ~PeerLinks();

  /// Listens at this process' address, or LOCKSTEP_BIND. Nullopt if it does; otherwise a later call
  /// may succeed once the host name is resolved.
  LOCKSTEP_COLD_DECL std::optional<ListenFault> listen();
  bool listening() const { return !own_endpoints_.empty(); }
  /// A free port at that address. No other process can have it, nor a listener of this one before
  /// `hand_over_port`. The last eight are kept. \throws ClusterError
  LOCKSTEP_COLD_DECL std::uint16_t reserve_port();
  /// Allows a listener at that port, and gives up all others.
  LOCKSTEP_COLD_DECL void hand_over_port(std::uint16_t port);

  LOCKSTEP_COLD_DECL void send(std::size_t index, const Letter& letter);
  /// Why the last attempt to connect to that process failed; empty if it did not.
  const std::string& fault(std::size_t index) const { return peers_[index].fault; }
  /// The answer of a process that seems to have another secret, if none has proved this one; null
  /// without one. `lasting`: it has gone on for long.
  LOCKSTEP_COLD_DECL const std::string* secret_fault(bool lasting) const;
  /// Called from time to time: gives up attempts without an answer.
  LOCKSTEP_COLD_DECL void tick(Clock::time_point now);
  /// Flushes and closes what is open, and makes no new connection.
  LOCKSTEP_COLD_DECL void finish();
  /// True if all connections have ended.
  LOCKSTEP_COLD_DECL bool finished() const;
  LOCKSTEP_COLD_DECL void close();

 private:
  struct Link {
    std::shared_ptr<Connection> connection{};
    bool introduced = false;  ///< has sent its Hello
    bool differs = false;     ///< its letters are not for this job, except refusals
    Clock::time_point heard{};
  };
  struct Peer {
    explicit Peer(HostPort where) : lookup(std::move(where)) {}
    RepeatedLookup lookup;
    std::optional<Link> outgoing{};
    bool connected = false;  ///< the outgoing one
    std::vector<Link> incoming{};
    std::deque<std::string> queue{};
    std::vector<tcp::endpoint> endpoints{};
    std::size_t next_endpoint = 0;
    bool any_refused = false, any_failed = false;
    OtherSecret other_secret{};
    std::string fault{};
    Clock::time_point began{};
  };
  /// A port at all addresses of this process.
  struct Reserved {
    std::uint16_t port = 0;
    std::vector<tcp::socket> sockets{};
  };
  static constexpr std::size_t max_incoming = 2, max_queue = 16;

  LOCKSTEP_COLD_DECL void admit(const std::shared_ptr<Connection>& connection, const Hello& hello);
  /// Compares the settings. False if the process does not belong to this job or place.
  LOCKSTEP_COLD_DECL bool introduce(std::size_t index, Link& link, const Hello& hello);
  LOCKSTEP_COLD_DECL void on_frame(std::size_t index, const std::shared_ptr<Connection>& connection,
                                   FrameType type, std::string_view body);
  LOCKSTEP_COLD_DECL void on_end(std::size_t index, const std::shared_ptr<Connection>& connection);
  /// The handlers of an established connection.
  LOCKSTEP_COLD_DECL Connection::FrameHandler frames_of(std::size_t index,
                                                        std::weak_ptr<Connection> connection);
  LOCKSTEP_COLD_DECL Connection::EndHandler end_of(std::size_t index,
                                                   std::weak_ptr<Connection> connection);
  LOCKSTEP_COLD_DECL Link* find(std::size_t index, const Connection* connection);
  LOCKSTEP_COLD_DECL Link* best(Peer& peer);

  LOCKSTEP_COLD_DECL void dial(std::size_t index);
  LOCKSTEP_COLD_DECL void connect(std::size_t index);
  LOCKSTEP_COLD_DECL void on_connected(std::size_t index);
  LOCKSTEP_COLD_DECL void on_secure(std::size_t index);
  /// Tries the next address of the peer, or gives up until the next letter.
  LOCKSTEP_COLD_DECL void attempt_failed(std::size_t index, const std::string& why);
  LOCKSTEP_COLD_DECL void attempt_refused(std::size_t index);
  LOCKSTEP_COLD_DECL void try_next(std::size_t index);
  LOCKSTEP_COLD_DECL void log_once(std::size_t index, const std::string& what);
  LOCKSTEP_COLD_DECL HostPort own_address() const;
  /// Sockets at one port of all addresses of this process; 0: any port. Empty after an error.
  LOCKSTEP_COLD_DECL std::vector<tcp::socket> bind_all(std::uint16_t port, bool shared,
                                                       asio::error_code& error);

  asio::io_context& io_;
  ResolvedCluster described_;
  Hello hello_;
  std::string hello_frame_;
  milliseconds silence_;
  LinkEvents events_;
  std::unique_ptr<PskContext> client_, server_;  // null: the job has no secret
  Listener listener_;
  std::vector<Peer> peers_;
  std::vector<std::string> logged_;  // by index: the last problem
  RepeatedLookup own_lookup_;
  std::vector<tcp::endpoint> own_endpoints_;
  std::vector<Reserved> reserved_;
  bool finishing_ = false, has_met_peer_ = false;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/elastic/peer_links.ipp"
#endif
