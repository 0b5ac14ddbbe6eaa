#include "lockstep/cluster/network/data_connector.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/core/error.hpp"

namespace {

using namespace std::chrono_literals;
using lockstep::DataConnection;
using lockstep::DataConnector;
using lockstep::DataOptions;
using lockstep::FileDescriptor;
using lockstep::Secret;
using Clock = std::chrono::steady_clock;

const Secret key("0123456789abcdef of the run");

DataOptions options_of(std::size_t rank, std::size_t size, const Secret& secret = key) {
  DataOptions options{.rank = rank, .run = "run 1", .key = secret};
  for (std::size_t r = 0; r < size; ++r)
    if (r != rank) options.peers.push_back(r);
  return options;
}

std::map<std::size_t, std::string> places_below(
    std::size_t rank, const std::vector<std::unique_ptr<DataConnector>>& all) {
  std::map<std::size_t, std::string> places;
  for (std::size_t r = 0; r < rank; ++r) places[r] = all[r]->place();
  return places;
}

struct Result {
  std::vector<DataConnection> connections;
  std::exception_ptr error;
  std::string text() const {
    if (!error) return "";
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      return e.what();
    }
  }
};

std::vector<Result> connect_all(const std::vector<std::unique_ptr<DataConnector>>& all,
                                std::chrono::milliseconds limit = 20s) {
  std::vector<Result> results(all.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < all.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        results[r].connections = all[r]->connect(places_below(r, all), Clock::now() + limit, [] {});
      } catch (...) {
        results[r].error = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  return results;
}

std::vector<std::unique_ptr<DataConnector>> connectors(std::size_t size) {
  std::vector<std::unique_ptr<DataConnector>> all;
  for (std::size_t r = 0; r < size; ++r)
    all.push_back(std::make_unique<DataConnector>(options_of(r, size)));
  return all;
}

sockaddr_in address_of(const std::string& place) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  where.sin_port = htons(static_cast<std::uint16_t>(std::stoi(place.substr(place.rfind(' ') + 1))));
  return where;
}

/// A connection of a stranger, who sends `bytes`.
FileDescriptor stranger(const std::string& place, const std::string& bytes) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in where = address_of(place);
  if (::connect(socket.number(), reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0)
    (void)::send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return socket;
}

/// Forwards the bytes of connections to `port`. Closes the first connection instead of forwarding the
/// welcome byte, which ends TLS.
class Thief {
 public:
  explicit Thief(const std::string& place)
      : target_(address_of(place)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof where;
    REQUIRE(::bind(listener_.number(), reinterpret_cast<sockaddr*>(&where), length) == 0);
    REQUIRE(::listen(listener_.number(), 8) == 0);
    ::getsockname(listener_.number(), reinterpret_cast<sockaddr*>(&where), &length);
    place_ = "127.0.0.1 " + std::to_string(ntohs(where.sin_port));
    thread_ = std::thread([this] { run(); });
  }
  Thief(const Thief&) = delete;
  Thief& operator=(const Thief&) = delete;
  ~Thief() {
    stop_ = true;
    thread_.join();
  }
  const std::string& place() const { return place_; }
  int connections() const { return connections_; }

 private:
  struct Pair {
    FileDescriptor client, server;
    std::string pending{};  // from the server, from the begin of a record
  };

  void run() {
    std::vector<Pair> pairs;
    while (!stop_) {
      std::vector<pollfd> ready{{listener_.number(), POLLIN, 0}};
      for (const Pair& pair : pairs)
        for (const int file : {pair.client.number(), pair.server.number()})
          ready.push_back({file, POLLIN, 0});
      ::poll(ready.data(), ready.size(), 10);
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        if (ready[1 + 2 * i].revents != 0) from_client(pairs[i]);
        if (ready[2 + 2 * i].revents != 0) from_server(pairs[i], i == 0);
      }
      if (ready[0].revents == 0) continue;
      FileDescriptor client(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
      FileDescriptor server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(server.number(), reinterpret_cast<sockaddr*>(&target_), sizeof target_) != 0)
        continue;  // closes the client's
      ++connections_;
      pairs.push_back({std::move(client), std::move(server)});
    }
  }
  static std::string read(FileDescriptor& file) {
    char bytes[4096];
    const auto n = ::recv(file.number(), bytes, sizeof bytes, 0);
    return {bytes, static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
  }
  static void close(Pair& pair) {
    pair.client = FileDescriptor();
    pair.server = FileDescriptor();
  }
  static void from_client(Pair& pair) {
    const std::string bytes = read(pair.client);
    if (bytes.empty()) return close(pair);
    (void)::send(pair.server.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  static void from_server(Pair& pair, bool steals) {
    const std::string bytes = read(pair.server);
    if (bytes.empty()) return close(pair);
    pair.pending += bytes;
    while (!pair.pending.empty()) {
      constexpr std::size_t header = 5;
      const bool is_record = pair.pending[0] != 'w';
      if (!is_record && steals) return close(pair);
      if (is_record && pair.pending.size() < header) return;
      const auto byte = [&](std::size_t at) {
        return static_cast<std::size_t>(static_cast<unsigned char>(pair.pending[at]));
      };
      const std::size_t size = is_record ? header + byte(3) * 256 + byte(4) : 1;
      if (pair.pending.size() < size) return;
      (void)::send(pair.client.number(), pair.pending.data(), size, MSG_NOSIGNAL);
      pair.pending.erase(0, size);
    }
  }

  sockaddr_in target_;
  FileDescriptor listener_;
  std::string place_;
  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

}  // namespace

TEST_CASE("a connection that is lost after the handshake is made again") {
  DataOptions options = options_of(0, 2);
  options.per_peer = 1;
  DataConnector first(options);
  options = options_of(1, 2);
  options.per_peer = 1;
  DataConnector second(options);
  Thief thief(first.place());

  std::atomic<int> connected{0};
  const auto wait_for_all = [&] {
    ++connected;
    const auto deadline = Clock::now() + 10s;
    while (connected < 2) {
      if (Clock::now() > deadline) throw lockstep::Error("the peer did not connect");
      std::this_thread::sleep_for(1ms);
    }
  };
  std::vector<DataConnection> server;
  std::thread thread([&] { server = first.connect({}, Clock::now() + 20s, wait_for_all); });
  const auto client = second.connect({{0, thief.place()}}, Clock::now() + 20s, wait_for_all);
  thread.join();
  CHECK(thief.connections() == 2);
  REQUIRE(server.size() == 1);
  REQUIRE(client.size() == 1);
  CHECK(server[0].send_key.value().key == client[0].receive_key.value().key);
  REQUIRE(::send(server[0].socket.number(), "w", 1, MSG_NOSIGNAL) == 1);
  pollfd readable{client[0].socket.number(), POLLIN, 0};
  REQUIRE(::poll(&readable, 1, 5000) == 1);
  char byte = 0;
  CHECK(::recv(client[0].socket.number(), &byte, 1, 0) == 1);
  CHECK(byte == 'w');
}

TEST_CASE("connections in a row take the interfaces of both ends in turn") {
  std::vector<std::unique_ptr<DataConnector>> all;
  for (std::size_t r = 0; r < 2; ++r) {
    DataOptions options = options_of(r, 2);
    options.per_peer = 6;
    options.stripes = 3;
    options.more_addresses = {"127.0.0.2"};
    all.push_back(std::make_unique<DataConnector>(options));
  }
  const auto results = connect_all(all);
  for (const Result& result : results) {
    CHECK(result.text() == "");
    CHECK(result.connections.size() == 6);
    for (const DataConnection& connection : result.connections) {
      sockaddr_in own{}, peer{};
      socklen_t length = sizeof own;
      const int file = connection.socket.number();
      REQUIRE(::getsockname(file, reinterpret_cast<sockaddr*>(&own), &length) == 0);
      REQUIRE(::getpeername(file, reinterpret_cast<sockaddr*>(&peer), &length) == 0);
      const std::uint32_t expected = INADDR_LOOPBACK + connection.index % 3 % 2;
      CAPTURE(connection.index);
      CHECK(ntohl(own.sin_addr.s_addr) == expected);
      CHECK(ntohl(peer.sin_addr.s_addr) == expected);
    }
  }
}

TEST_CASE("a peer with another number of interfaces is refused") {
  std::vector<std::unique_ptr<DataConnector>> all = connectors(1);
  DataOptions options = options_of(1, 2);
  options.more_addresses = {"127.0.0.2"};
  DataConnector other(options);
  CHECK_THROWS_AS(other.connect({{0, "127.0.0.1 5000"}}, Clock::now() + 1s, [] {}),
                  lockstep::CollectiveError);
}

TEST_CASE("workers are connected, both ends of a connection have its keys, and nobody else") {
  constexpr std::size_t size = 4;
  const auto all = connectors(size);
  auto results = connect_all(all);
  std::map<std::set<std::size_t>, std::map<std::size_t, std::vector<const DataConnection*>>> pairs;
  std::set<std::string> keys;
  for (std::size_t r = 0; r < size; ++r) {
    REQUIRE(results[r].text() == "");
    REQUIRE(results[r].connections.size() == 2 * (size - 1));
    for (const DataConnection& connection : results[r].connections) {
      pairs[{r, connection.rank}][connection.index].push_back(&connection);
      keys.insert(std::string(connection.send_key->key.begin(), connection.send_key->key.end()));
      CHECK((::fcntl(connection.socket.number(), F_GETFD) & FD_CLOEXEC) != 0);
    }
  }
  CHECK(keys.size() == 4 * size * (size - 1) / 2);  // one per direction
  for (const auto& [ranks, by_index] : pairs)
    for (const auto& [index, ends] : by_index) {
      REQUIRE(ends.size() == 2);
      CHECK(ends[0]->send_key->key == ends[1]->receive_key->key);
      CHECK(ends[0]->send_key->nonce == ends[1]->receive_key->nonce);
      CHECK(ends[0]->receive_key->key == ends[1]->send_key->key);
      // no byte of the handshake is left in the connection
      CHECK(::send(ends[0]->socket.number(), "hello", 5, 0) == 5);
      char bytes[6] = {};
      pollfd comes{ends[1]->socket.number(), POLLIN, 0};
      REQUIRE(::poll(&comes, 1, 5000) == 1);
      CHECK(::recv(ends[1]->socket.number(), bytes, 5, 0) == 5);
      CHECK(std::string(bytes) == "hello");
    }
}

TEST_CASE("strangers at a data port are closed and keep no worker out") {
  auto all = connectors(3);
  std::vector<FileDescriptor> strangers;
  const std::string hello("\x16\x03\x01\x00\xff\x01", 6), ones(24, '\x01');
  for (const std::size_t r : {0u, 1u})
    for (int i = 0; i < 30; ++i)
      for (const std::string& bytes :
           {std::string("GET / HTTP/1.1\r\n\r\n"), hello, ones, std::string(), std::string("LKS1")})
        strangers.push_back(stranger(all[r]->place(), bytes));
  std::atomic<bool> stops{false};
  std::thread flood([&] {
    while (!stops) {
      (void)stranger(all[0]->place(), "noise");
      std::this_thread::sleep_for(200us);  // leaves the workers a core
    }
  });
  const auto results = connect_all(all);
  stops = true;
  flood.join();
  for (const Result& result : results) CHECK(result.text() == "");
}

TEST_CASE("a worker with another key, or of another run, gets no connection") {
  const auto limit = 400ms;
  for (const bool other_run : {false, true}) {
    std::vector<std::unique_ptr<DataConnector>> all;
    std::string lines;
    std::mutex mutex;
    DataOptions first = options_of(0, 2);
    first.log = [&](std::string_view line) {
      const std::scoped_lock lock(mutex);
      lines += line;
    };
    all.push_back(std::make_unique<DataConnector>(first));
    DataOptions second = options_of(1, 2, other_run ? key : Secret("fedcba9876543210 of another"));
    if (other_run) second.run = "run 2";
    all.push_back(std::make_unique<DataConnector>(second));
    const auto results = connect_all(all, limit);
    CHECK(results[0].text().find("replica 1 did not connect to replica 0") != std::string::npos);
    CHECK(results[1].text().find("replica 1 could not connect to replica 0") != std::string::npos);
    INFO(lines);
    CHECK(lines.find(other_run
                         ? "asked for a data connection that this run does not have"
                         : "did not prove that it has the job's secret") != std::string::npos);
  }
}

TEST_CASE("a worker that does not connect in time is named, and a wait can be cancelled") {
  const auto all = connectors(2);
  const auto began = Clock::now();
  try {
    (void)all[0]->connect({}, began + 100ms, [] {});
    FAIL("nobody was there");
  } catch (const lockstep::CollectiveError& e) {
    CHECK(e.peer() == std::size_t{1});
  }
  CHECK(Clock::now() - began >= 100ms);
  DataConnector waiting(options_of(0, 2));
  std::thread cancelling([&] {
    std::this_thread::sleep_for(20ms);
    waiting.cancel();
  });
  CHECK_THROWS_AS(waiting.connect({}, Clock::now() + 60s, [] {}), lockstep::CollectiveAborted);
  cancelling.join();
}

TEST_CASE("a peer that does not connect leaves the connections to the others") {
  const auto all = connectors(3);
  std::vector<std::vector<DataConnector::Missing>> missing(2);
  std::vector<std::size_t> connected(2);
  std::vector<std::thread> threads;
  for (const std::size_t r : {0u, 1u})
    threads.emplace_back([&, r] {
      // Enough for the two that are there, on a busy machine too.
      connected[r] =
          all[r]->connect(places_below(r, all), Clock::now() + 1500ms, missing[r]).size();
    });
  for (auto& thread : threads) thread.join();
  for (const std::size_t r : {0u, 1u}) {
    CHECK(connected[r] == 2);
    REQUIRE(missing[r].size() == 2);
    for (const auto& connection : missing[r]) {
      CHECK(connection.peer == 2);
      CHECK(connection.fact.starts_with("replica 2 did not connect to replica " +
                                        std::to_string(r) + " at 127.0.0.1 "));
    }
  }
}

TEST_CASE("a data port is taken from the range, and a range without a free one is refused") {
  DataOptions options = options_of(0, 2);
  DataConnector any(options);
  const int port = ntohs(address_of(any.place()).sin_port);
  const auto taken = static_cast<std::uint16_t>(port);
  options.ports = lockstep::PortRange{taken, taken};
  try {
    DataConnector second(options);
    FAIL("the port was free");
  } catch (const lockstep::ClusterError& e) {
    CHECK(std::string(e.what()).find("LOCKSTEP_DATA_PORTS") != std::string::npos);
  }
  options.ports = lockstep::PortRange{taken, static_cast<std::uint16_t>(taken + 20)};
  DataConnector third(options);
  const int next = ntohs(address_of(third.place()).sin_port);
  CHECK((next > port && next <= port + 20));
  // the highest rank connects to all others and listens at no port
  CHECK(DataConnector(options_of(1, 2)).place() == "");
}
