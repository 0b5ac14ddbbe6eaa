#pragma once

#include "lockstep/cluster/elastic/peer_links.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <asio/ip/v6_only.hpp>
#include <cerrno>
#include <thread>
#include <utility>

#include "lockstep/cluster/rendezvous/control.hpp"
#include "lockstep/cluster/rendezvous/signature.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

PeerLinks::PeerLinks(asio::io_context& io, const ResolvedCluster& described, const Secret& secret,
                     Hello hello, milliseconds silence, LinkEvents events)
    : io_(io),
      described_(described),
      hello_(std::move(hello)),
      hello_frame_(frame(hello_)),
      silence_(silence),
      events_(std::move(events)),
      client_(secret.empty()
                  ? nullptr
                  : std::make_unique<PskContext>(PskContext::Side::client, secret, hello_.job_id)),
      server_(secret.empty()
                  ? nullptr
                  : std::make_unique<PskContext>(PskContext::Side::server, secret, hello_.job_id)),
      listener_(
          io, server_.get(), silence, SourceAllowlist(described, !secret.empty()),
          [this](const std::shared_ptr<Connection>& connection, const Hello& theirs) {
            admit(connection, theirs);
          },
          [this](std::string_view line) { events_.log(LogLevel::warning, line); }),
      logged_(described.world_size),
      own_lookup_(own_address()) {
  for (std::size_t i = 0; i < described.world_size; ++i)
    peers_.emplace_back(described.cluster->address(i));
  listener_.expect_peers(described.world_size);
}

PeerLinks::~PeerLinks() { close(); }

HostPort PeerLinks::own_address() const {
  const HostPort& described = described_.cluster->address(hello_.rank);
  if (!described_.bind) return described;
  return {described_.bind->host, described_.bind->port.value_or(described.port)};
}

std::optional<ListenFault> PeerLinks::listen() {
  constexpr milliseconds busy_limit{1000}, pause{10};
  constexpr std::size_t burst = 256;  // connections of others at the same moment
  const HostPort address = own_address();
  const auto& found = own_lookup_.poll(Clock::now());
  const auto fault_of = [&](const std::string& why, bool may_pass) {
    return ListenFault{
        format_text("elastic: rank {} cannot listen at its address {} ({}); each worker of an "
                    "elastic job listens there: correct the address, free the port, or set "
                    "LOCKSTEP_BIND to the address of this machine, such as 0.0.0.0",
                    hello_.rank, to_string(address), why),
        may_pass};
  };
  if (!found) return fault_of("its host name has not been resolved yet", true);
  std::string fault = found->error;
  bool is_elsewhere = true;  // no address of the name is one of this machine
  const auto found_at = Clock::now();
  for (const tcp::endpoint& endpoint : listening_endpoints(
           *found, described_, address.host, format_text("elastic: rank {}'s host", hello_.rank),
           server_ != nullptr, events_.log)) {
    asio::error_code error;
    // A process that was killed a moment ago may still have the address.
    do {
      error = listener_.listen(endpoint, static_cast<int>(peers_.size() + burst));
      if (error == asio::error::address_in_use) std::this_thread::sleep_for(pause);
    } while (error == asio::error::address_in_use && Clock::now() - found_at < busy_limit);
    if (!error) own_endpoints_.push_back(endpoint);
    if (error) fault = error.message();
    is_elsewhere = is_elsewhere && error.value() == EADDRNOTAVAIL;
  }
  if (listening()) return std::nullopt;
  // Only a new DNS answer can help.
  return fault_of(fault, is_elsewhere && !found->numeric);
}

const std::string* PeerLinks::secret_fault(bool lasting) const {
  for (const Peer& peer : peers_)
    if (!has_met_peer_ && !peer.other_secret.sentence().empty() &&
        (!lasting || peer.other_secret.lasts()))
      return &peer.other_secret.sentence();
  return nullptr;
}

std::vector<tcp::socket> PeerLinks::bind_all(std::uint16_t port, bool shared,
                                             asio::error_code& error) {
  std::vector<tcp::socket> sockets;
  for (const tcp::endpoint& own : own_endpoints_) {
    tcp::socket& socket = sockets.emplace_back(io_);
    open_socket(socket, own.protocol(), silence_, error);
    if (!error) socket.set_option(asio::socket_base::reuse_address(shared), error);
    if (!error && own.address().is_v6()) socket.set_option(asio::ip::v6_only(true), error);
    if (!error) socket.bind({own.address(), port}, error);
    if (!error && port == 0) port = socket.local_endpoint(error).port();
    if (error) return {};
  }
  return sockets;
}

std::uint16_t PeerLinks::reserve_port() {
  constexpr std::size_t attempts = 16, most = 8;
  const bool any = !described_.data_ports;
  const PortRange ports = described_.data_ports.value_or(PortRange{});
  // Earlier proposals may still be the ones that are decided.
  if (reserved_.size() == most) reserved_.erase(reserved_.begin());
  asio::error_code error;
  // Shared only if connections of earlier generations have left no other port.
  for (const bool shared : {false, true})
    for (std::size_t i = 0; i < (any ? attempts : ports.size()); ++i) {
      error.clear();
      auto sockets = bind_all(static_cast<std::uint16_t>(any ? 0 : ports.first + i), shared, error);
      if (error) continue;
      reserved_.push_back({sockets.front().local_endpoint(error).port(), std::move(sockets)});
      return reserved_.back().port;
    }
  if (!reserved_.empty()) {
    reserved_.erase(reserved_.begin());
    return reserve_port();
  }
  throw ClusterError("elastic: no port of {} is free for the next generation ({}){}",
                     own_endpoints_.front().address().to_string(), error.message(),
                     described_.data_ports ? "; give LOCKSTEP_PORT_RANGE a wider range" : "");
}

void PeerLinks::hand_over_port(std::uint16_t port) {
  std::erase_if(reserved_, [&](const Reserved& one) { return one.port != port; });
  asio::error_code ignored;
  // Two sockets may have one port if both allow it and only one of them listens.
  for (Reserved& one : reserved_)
    for (tcp::socket& socket : one.sockets)
      socket.set_option(asio::socket_base::reuse_address(true), ignored);
}

void PeerLinks::send(std::size_t index, const Letter& letter) {
  Peer& peer = peers_[index];
  if (Link* const link = best(peer)) return link->connection->send(frame(letter));
  if (peer.queue.size() == max_queue) peer.queue.pop_front();
  peer.queue.push_back(frame(letter));
  dial(index);
}

void PeerLinks::tick(Clock::time_point now) {
  listener_.tick(now);
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (peer.outgoing && !peer.outgoing->introduced && now - peer.began >= silence_)
      attempt_failed(i, "no answer");
    else if (!peer.outgoing && !peer.queue.empty())
      dial(i);
  }
}

void PeerLinks::finish() {
  finishing_ = true;
  listener_.stop();
  for (Peer& peer : peers_) {
    if (peer.outgoing && peer.connected) peer.outgoing->connection->finish_sending();
    for (Link& link : peer.incoming) link.connection->finish_sending();
  }
}

bool PeerLinks::finished() const {
  return std::none_of(peers_.begin(), peers_.end(),
                      [](const Peer& peer) { return peer.outgoing || !peer.incoming.empty(); });
}

void PeerLinks::close() {
  finishing_ = true;
  listener_.close();
  reserved_.clear();
  for (Peer& peer : peers_) {
    if (peer.outgoing) peer.outgoing->connection->close();
    for (Link& link : peer.incoming) link.connection->close();
    peer.outgoing.reset();
    peer.incoming.clear();
    peer.queue.clear();
  }
}

// --- established connections ---

PeerLinks::Link* PeerLinks::find(std::size_t index, const Connection* connection) {
  Peer& peer = peers_[index];
  if (peer.outgoing && peer.outgoing->connection.get() == connection) return &*peer.outgoing;
  for (Link& link : peer.incoming)
    if (link.connection.get() == connection) return &link;
  return nullptr;
}

PeerLinks::Link* PeerLinks::best(Peer& peer) {
  Link* found = peer.outgoing && peer.connected ? &*peer.outgoing : nullptr;
  for (Link& link : peer.incoming)
    if (!found || link.heard > found->heard) found = &link;
  return found;
}

Connection::FrameHandler PeerLinks::frames_of(std::size_t index,
                                              std::weak_ptr<Connection> connection) {
  return [this, index, connection = std::move(connection)](FrameType type, std::string_view body) {
    if (const auto link = connection.lock()) on_frame(index, link, type, body);
  };
}

Connection::EndHandler PeerLinks::end_of(std::size_t index, std::weak_ptr<Connection> connection) {
  return [this, index, connection = std::move(connection)](const std::string&) {
    const auto ended = connection.lock();
    if (!ended) return;
    const Link* const link = find(index, ended.get());
    if (link && !link->introduced) log_once(index, "closed the connection without a greeting");
    on_end(index, ended);
  };
}

void PeerLinks::admit(const std::shared_ptr<Connection>& connection, const Hello& hello) {
  const std::size_t index = hello.rank;
  Link link{connection, false, false, Clock::now()};
  if (finishing_) return connection->close();
  if (index >= peers_.size() || index == hello_.rank || !introduce(index, link, hello))
    return listener_.send_and_close(
        connection,
        frame(Refuse{format_text(
            "the process at {} is rank {} of another job, or has the same rank; give all workers "
            "one description and distinct ranks, and set LOCKSTEP_MIN_WORKERS on all or on none",
            to_string(own_address()), hello_.rank)}));
  connection->set_handlers(frames_of(index, connection), end_of(index, connection));
  connection->send(hello_frame_);
  std::vector<Link>& incoming = peers_[index].incoming;
  if (incoming.size() == max_incoming) {
    incoming.front().connection->close();
    incoming.erase(incoming.begin());
  }
  incoming.push_back(link);
  if (!link.differs) return;
  events_.differs(index, logged_[index]);
}

bool PeerLinks::introduce(std::size_t index, Link& link, const Hello& hello) {
  if (hello.job_id != hello_.job_id || hello.rank != index) return false;
  const bool first = index < hello_.rank;  // the same sentence on both sides
  const auto sentence = difference(
      "elastic", described_.name(first ? index : hello_.rank), first ? hello.fields : hello_.fields,
      described_.name(first ? hello_.rank : index), first ? hello_.fields : hello.fields);
  link.introduced = has_met_peer_ = true;
  peers_[index].fault.clear();
  peers_[index].other_secret.clear();
  link.differs = sentence.has_value();
  if (sentence) log_once(index, *sentence);
  return true;
}

void PeerLinks::on_frame(std::size_t index, const std::shared_ptr<Connection>& connection,
                         FrameType type, std::string_view body) {
  Link* const link = find(index, connection.get());
  if (!link) return;
  const auto reject = [&](const std::string& why) {
    log_once(index, why);
    connection->close();
    on_end(index, connection);
  };
  if (!link->introduced) {
    if (const auto refusal = type == FrameType::refuse ? parse<Refuse>(body) : std::nullopt)
      return reject(printable(refusal->sentence));
    const auto hello = type == FrameType::hello ? parse<Hello>(body) : std::nullopt;
    if (!hello || !introduce(index, *link, *hello)) return reject("is another process");
    link->heard = Clock::now();
    if (link->differs) events_.differs(index, logged_[index]);
    return;
  }
  const auto letter = type == FrameType::agreement ? parse_letter(body) : std::nullopt;
  if (!letter || letter->from.index != index) return reject("sent a corrupt message");
  if (link->differs && !std::holds_alternative<Refused>(letter->message)) return;
  link->heard = Clock::now();
  events_.letter(*letter);
}

void PeerLinks::on_end(std::size_t index, const std::shared_ptr<Connection>& connection) {
  Peer& peer = peers_[index];
  const Link* const link = find(index, connection.get());
  // The participant connects again at once after a loss, but not to a service that is not a peer.
  const bool was_peer = link && link->introduced;
  if (peer.outgoing && peer.outgoing->connection == connection) peer.outgoing.reset();
  std::erase_if(peer.incoming, [&](const Link& one) { return one.connection == connection; });
  if (was_peer && !best(peer) && !finishing_) events_.disconnected(index);
}

// --- new connections ---

void PeerLinks::dial(std::size_t index) {
  Peer& peer = peers_[index];
  if (peer.outgoing || finishing_) return;
  const auto& found = peer.lookup.poll(Clock::now());
  if (!found) return;  // `tick` calls again
  peer.endpoints = found->endpoints;
  peer.next_endpoint = 0;
  peer.any_refused = peer.any_failed = false;
  if (peer.endpoints.empty()) {
    peer.any_failed = true;
    peer.fault = found->error;
  }
  connect(index);
}

void PeerLinks::connect(std::size_t index) {
  Peer& peer = peers_[index];
  if (peer.next_endpoint >= peer.endpoints.size()) {
    peer.queue.clear();
    if (!peer.any_failed && peer.any_refused) return events_.refused(index);
    return log_once(index, peer.fault);
  }
  const tcp::endpoint endpoint = peer.endpoints[peer.next_endpoint++];
  tcp::socket socket(io_);
  asio::error_code error;
  open_socket(socket, endpoint.protocol(), silence_, error);
  const auto connection = std::make_shared<Connection>(std::move(socket));
  peer.outgoing = Link{connection, false, false, Clock::now()};
  peer.connected = false;
  peer.began = Clock::now();
  if (error) return attempt_failed(index, error.message());
  connection->socket().async_connect(endpoint, [this, index,
                                                connection](const asio::error_code& result) {
    if (!connection->open() || !find(index, connection.get())) return;
    // Without a listener the kernel may connect a loopback socket to itself (simultaneous
    // open).
    const bool to_itself = !result && connection->local() == connection->remote();
    if (to_itself || result == asio::error::connection_refused) return attempt_refused(index);
    // One of the addresses of localhost, for example, of a machine without IPv6.
    if (result == asio::error::network_unreachable || result == asio::error::host_unreachable ||
        result.value() == EADDRNOTAVAIL || result == asio::error::address_family_not_supported) {
      if (!peers_[index].any_refused) peers_[index].fault = result.message();
      return try_next(index);
    }
    if (result) return attempt_failed(index, result.message());
    on_connected(index);
  });
}

void PeerLinks::on_connected(std::size_t index) {
  const auto connection = peers_[index].outgoing->connection;
  if (!client_) {
    connection->send(std::string(greeting));
    return on_secure(index);
  }
  connection->handshake(
      *client_, asio::ssl::stream_base::client,
      [this, index, connection](const asio::error_code& error) {
        if (!find(index, connection.get())) return;
        if (!error) return on_secure(index);
        const bool is_tls = error.category() == asio::error::get_ssl_category();
        OtherSecret& other_secret = peers_[index].other_secret;
        std::string fault = format_text(
            "{} that it has the job's secret ({})",
            is_tls ? "did not prove" : "closed the connection before it proved", error.message());
        if (is_alert_of_other_secret(error)) {
          fault = format_text(
              "{} and this process do not have the same secret; set LOCKSTEP_SECRET_FILE to the same "
              "secret on all ranks",
              described_.name(index));
          other_secret.note(Clock::now(), fault);
        } else if (is_tls) {
          other_secret.clear();
        }
        attempt_failed(index, fault);
      });
}

void PeerLinks::on_secure(std::size_t index) {
  Peer& peer = peers_[index];
  const auto connection = peer.outgoing->connection;
  peer.connected = true;
  connection->send(hello_frame_);
  for (std::string& letter : peer.queue) connection->send(std::move(letter));
  peer.queue.clear();
  if (finishing_) connection->finish_sending();
  connection->start(frames_of(index, connection), end_of(index, connection), max_frame_bytes);
}

void PeerLinks::attempt_failed(std::size_t index, const std::string& why) {
  peers_[index].any_failed = true;
  peers_[index].fault = why;
  try_next(index);
}

void PeerLinks::attempt_refused(std::size_t index) {
  Peer& peer = peers_[index];
  peer.any_refused = true;
  if (!peer.any_failed) peer.fault = "connection refused";
  try_next(index);
}

void PeerLinks::try_next(std::size_t index) {
  peers_[index].outgoing->connection->close();
  peers_[index].outgoing.reset();
  connect(index);
}

void PeerLinks::log_once(std::size_t index, const std::string& what) {
  if (std::exchange(logged_[index], what) == what) return;
  const std::string name = described_.name(index);
  std::string line = what.starts_with("elastic: ") ? "" : "elastic: ";
  if (line.empty() || what.starts_with(name))
    line += what;
  else
    line += name + ": " + what;
  events_.log(LogLevel::warning, line);
}

}  // namespace lockstep::detail
