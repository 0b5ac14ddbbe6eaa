#pragma once

#include "lockstep/cluster/network/data_connector.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/ip/address.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/cluster/network/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/process/threads.hpp"

namespace lockstep {

/// A connection that this process makes.
struct DataConnector::Attempt {
  Attempt(DataConnector& owner, std::size_t peer_rank, std::size_t number,
          asio::ip::tcp::endpoint where)
      : peer(peer_rank),
        index(number),
        endpoint(std::move(where)),
        client(detail::PskContext::Side::client, owner.options_.key,
               owner.identity(owner.options_.rank, peer_rank, number)),
        timer(owner.io_) {}

  std::size_t peer, index;
  asio::ip::tcp::endpoint endpoint;
  detail::PskContext client;
  detail::Timer timer;
  std::shared_ptr<detail::Connection> connection{};
  std::chrono::milliseconds pause{10};
  std::string fact = "it does not answer";
};

namespace detail {

/// The inverse of DataConnector::place: "ADDRESS PORT,ADDRESS PORT"; empty if it is malformed.
inline std::vector<asio::ip::tcp::endpoint> parse_places(std::string_view places) {
  std::vector<asio::ip::tcp::endpoint> found;
  while (true) {
    const std::string_view place = places.substr(0, places.find(','));
    const std::size_t space = place.rfind(' ');
    if (space == std::string_view::npos) return {};
    asio::error_code error;
    const auto address = asio::ip::make_address(std::string(place.substr(0, space)), error);
    std::uint16_t port = 0;
    const char* const end = place.data() + place.size();
    const auto parsed = std::from_chars(place.data() + space + 1, end, port);
    if (error || parsed.ec != std::errc{} || parsed.ptr != end) return {};
    found.emplace_back(address, port);
    if (place.size() == places.size()) return found;
    places.remove_prefix(place.size() + 1);
  }
}

}  // namespace detail

DataConnector::DataConnector(DataOptions options)
    : options_(std::move(options)),
      server_(detail::PskContext::Side::server, options_.key, ""),
      listener_(
          io_, &server_, std::chrono::seconds(2), detail::SourceAllowlist({}, true),
          [](const std::shared_ptr<detail::Connection>&, const detail::Hello&) {}, options_.log),
      ticks_(io_),
      end_(io_) {
  for (const std::size_t peer : options_.peers)
    for (std::size_t i = 0; i < options_.per_peer && peer > options_.rank; ++i)
      expected_[identity(peer, options_.rank, i)] = {peer, i};
  if (!expected_.empty()) listen();
}

DataConnector::~DataConnector() {
  listener_.close();
  for (const auto& attempt : attempts_)
    if (attempt->connection) attempt->connection->close();
  attempts_.clear();
}

std::string DataConnector::identity(std::size_t from, std::size_t to, std::size_t index) const {
  return format_text("{} {}>{} #{}", options_.run, from, to, index);
}

void DataConnector::listen() {
  listener_.hand_over_proved(
      [this](const std::shared_ptr<detail::Connection>& connection) { on_proved(connection); });
  listener_.expect_peers(expected_.size());
  listen_at(options_.address, 0);
  for (std::size_t i = 0; i < options_.more_addresses.size(); ++i)
    listen_at(options_.more_addresses[i], i + 1);
  // A proxy on this machine, such as a sidecar, may pass connections on to the loopback address.
  const auto address = asio::ip::make_address(options_.address);
  const auto loopback = address.is_v4() ? asio::ip::address(asio::ip::address_v4::loopback())
                                        : asio::ip::address(asio::ip::address_v6::loopback());
  if (!address.is_loopback()) (void)listener_.listen({loopback, listener_.port()}, SOMAXCONN);
}

const std::string& DataConnector::address_of(std::size_t connection) const {
  const std::size_t i = connection % options_.stripes % (options_.more_addresses.size() + 1);
  return i == 0 ? options_.address : options_.more_addresses[i - 1];
}

void DataConnector::listen_at(const std::string& text, std::size_t index) {
  asio::error_code error;
  const auto address = asio::ip::make_address(text, error);
  if (error)
    throw ClusterError("data connections: '{}' is not an IP address of this machine", text);
  const auto any = address.is_v4() ? asio::ip::address(asio::ip::address_v4::any())
                                   : asio::ip::address(asio::ip::address_v6::any());
  const PortRange ports = options_.ports.value_or(PortRange{});
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const auto port = static_cast<std::uint16_t>(ports.first + i);
    error = listener_.listen({address, port}, SOMAXCONN);
    if (error.value() == EADDRNOTAVAIL)  // of a host that passes its ports on
      error = listener_.listen({any, port}, SOMAXCONN);
    if (error != asio::error::address_in_use) break;
  }
  if (error && options_.ports)
    throw ClusterError(
        "data connections: cannot listen at {} on a port from {} to {} ({}); free one, or give the "
        "workers of a machine a larger range by LOCKSTEP_DATA_PORTS",
        text, ports.first, ports.last, error.message());
  if (error)
    throw ClusterError("data connections: cannot listen at {} ({}); see LOCKSTEP_DATA_ADDRESS",
                       text, error.message());
  place_ += format_text("{}{} {}", place_.empty() ? "" : ",", text, listener_.port(index));
}

std::vector<DataConnection> DataConnector::connect(const std::map<std::size_t, std::string>& places,
                                                   TimePoint deadline,
                                                   const std::function<void()>& wait_for_all) {
  const std::vector<Missing> missing = connect_until(places, deadline);
  if (!missing.empty())
    throw CollectiveError(missing[0].peer,
                          "data connections: {}; check the network between the two (firewall, "
                          "routes), LOCKSTEP_DATA_ADDRESS and LOCKSTEP_DATA_PORTS",
                          missing[0].fact);
  listen_during(wait_for_all);
  return take_connections();
}

std::vector<DataConnection> DataConnector::connect(const std::map<std::size_t, std::string>& places,
                                                   TimePoint deadline,
                                                   std::vector<Missing>& missing) {
  missing = connect_until(places, deadline);
  return take_connections();
}

std::vector<DataConnector::Missing> DataConnector::connect_until(
    const std::map<std::size_t, std::string>& places, TimePoint deadline) {
  const auto began = std::chrono::steady_clock::now();
  for (const auto& [peer, place] : places) {
    const auto endpoints = detail::parse_places(place);
    if (endpoints.size() != options_.more_addresses.size() + 1)
      throw CollectiveError(
          peer,
          "data connections: replica {} sent '{}', which is not an address on each "
          "of {} interfaces",
          peer, place, options_.more_addresses.size() + 1);
    for (std::size_t i = 0; i < options_.per_peer; ++i)
      attempts_.push_back(std::make_unique<Attempt>(
          *this, peer, i, endpoints[i % options_.stripes % endpoints.size()]));
  }
  const std::size_t all = expected_.size() + attempts_.size();
  end_.at(deadline, [this] { late_ = true; });
  for (const auto& attempt : attempts_) start(*attempt);
  tick();
  while (connections_.size() < all && !late_ && !cancelled_)
    if (io_.run_one() == 0) break;
  end_.cancel();
  if (connections_.size() < all && cancelled_)
    throw CollectiveAborted(options_.rank,
                            "data connections: replica {} stopped because another replica failed",
                            options_.rank);
  return missing(std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began));
}

void DataConnector::listen_during(const std::function<void()>& f) {
  if (expected_.empty()) return f();
  struct Running {
    explicit Running(asio::io_context& context)
        : io(context), thread(detail::start_thread("data listener", [this] { run(); })) {}
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    ~Running() { stop(); }
    void run() {
      try {
        io.run();
      } catch (...) {
        error = std::current_exception();
      }
    }
    void stop() {
      io.stop();
      if (thread.joinable()) thread.join();
    }
    asio::io_context& io;
    std::exception_ptr error{};
    std::thread thread;
  };
  Running running(io_);
  f();
  running.stop();
  if (running.error) std::rethrow_exception(running.error);
}

std::vector<DataConnection> DataConnector::take_connections() {
  listener_.close();
  std::vector<DataConnection> result;
  for (auto& [place, connection] : connections_) result.push_back(std::move(connection));
  connections_.clear();
  return result;
}

void DataConnector::cancel() {
  detail::post(io_, [this] { cancelled_ = true; });
}

void DataConnector::tick() {
  listener_.tick(detail::Clock::now());
  ticks_.after(std::chrono::milliseconds(250), [this] { tick(); });
}

void DataConnector::on_proved(const std::shared_ptr<detail::Connection>& connection) {
  const std::string name = detail::PskContext::identity(connection->tls());
  const auto found = expected_.find(name);
  if (found == expected_.end() ||
      !keep(*connection, found->second.first, found->second.second, true)) {
    listener_.log_source(detail::Listener::source_of(*connection),
                         "asked for a data connection that this run does not have; closed",
                         detail::Clock::now());
    connection->close();
  }
}

void DataConnector::start(Attempt& attempt) {
  attempt.connection = std::make_shared<detail::Connection>(asio::ip::tcp::socket(io_));
  asio::ip::tcp::socket& socket = attempt.connection->socket();
  asio::error_code error;
  detail::open_socket(socket, attempt.endpoint.protocol(), options_.silence, error);
  // From the address that the job has chosen, so that the data take that network.
  const auto own = asio::ip::make_address(address_of(attempt.index), error);
  if (!error && own.is_v4() == attempt.endpoint.address().is_v4()) {
    asio::error_code ignored;
    socket.bind({own, 0}, ignored);
  }
  if (!socket.is_open()) return retry(attempt, "no socket can be opened");
  const auto connection = attempt.connection;
  socket.async_connect(attempt.endpoint, [this, &attempt,
                                          connection](const asio::error_code& failure) {
    if (!connection->open()) return;
    if (failure) return retry(attempt, failure.message());
    connection->handshake(attempt.client, asio::ssl::stream_base::client,
                          [this, &attempt](const asio::error_code& refusal) {
                            if (refusal)
                              return retry(attempt, "its handshake failed: " + refusal.message());
                            await_welcome(attempt);
                          });
  });
}

void DataConnector::await_welcome(Attempt& attempt) {
  const auto connection = attempt.connection;
  connection->socket().async_wait(
      asio::ip::tcp::socket::wait_read, [this, &attempt, connection](const asio::error_code&) {
        if (!connection->open()) return;
        char byte = 0;
        if (!detail::receive_byte(connection->socket(), byte) || byte != welcome)
          return retry(attempt, "it closed the connection");
        if (!keep(*connection, attempt.peer, attempt.index, false))
          retry(attempt, "the keys could not be derived");
      });
}

void DataConnector::retry(Attempt& attempt, const std::string& fact) {
  attempt.fact = fact;
  attempt.connection->close();
  attempt.timer.after(attempt.pause, [this, &attempt] { start(attempt); });
  attempt.pause = std::min(2 * attempt.pause, std::chrono::milliseconds(160));
}

bool DataConnector::keep(detail::Connection& connection, std::size_t peer, std::size_t index,
                         bool is_server) {
  struct {
    WireKey of_client, of_server;
  } keys;
  static_assert(sizeof keys == 56);
  const struct Wipe {
    void* p;
    std::size_t n;
    ~Wipe() { OPENSSL_cleanse(p, n); }
  } wipe{&keys, sizeof keys};
  if (!detail::PskContext::export_key(connection.tls(), "EXPORTER-lockstep data",
                                      reinterpret_cast<unsigned char*>(&keys), sizeof keys))
    return false;
  FileDescriptor socket(connection.release());
  if (socket.number() < 0) return false;
  // The connection is idle until all are made. With a user timeout, Linux would end it as soon as one
  // keepalive probe is not answered.
  constexpr int none = 0;
  (void)::setsockopt(socket.number(), IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof none);
  // The peer reads it after its last TLS record, and sends nothing before.
  if (is_server) {
    ssize_t sent = 0;
    do sent = ::send(socket.number(), &welcome, 1, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent != 1) return true;
  }
  connections_.insert_or_assign(
      Place{peer, index},
      DataConnection{.rank = peer,
                     .index = index,
                     .socket = std::move(socket),
                     .send_key = is_server ? keys.of_server : keys.of_client,
                     .receive_key = is_server ? keys.of_client : keys.of_server});
  return true;
}

std::vector<DataConnector::Missing> DataConnector::missing(std::chrono::milliseconds waited) const {
  std::vector<Missing> result;
  for (const auto& attempt : attempts_)
    if (!connections_.contains({attempt->peer, attempt->index}))
      result.push_back(
          {attempt->peer,
           format_text("replica {} could not connect to replica {} at {}:{} within {} ms ({})",
                       options_.rank, attempt->peer, attempt->endpoint.address().to_string(),
                       attempt->endpoint.port(), waited.count(), attempt->fact)});
  for (const auto& [name, place] : expected_)
    if (!connections_.contains(place))
      result.push_back(
          {place.first, format_text("replica {} did not connect to replica {} at {} within {} ms",
                                    place.first, options_.rank, place_, waited.count())});
  return result;
}

}  // namespace lockstep
