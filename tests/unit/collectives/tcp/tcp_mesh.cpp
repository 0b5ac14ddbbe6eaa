#include "lockstep/collectives/tcp/tcp_mesh.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/collectives/tcp/tcp_group.hpp"
#include "lockstep/collectives/tcp/wire.hpp"
#include "lockstep/core/error.hpp"
#include "unit/collectives/members.hpp"
#include "unit/collectives/tcp_places.hpp"

namespace {

using namespace std::chrono_literals;
using lockstep::DataConnection;
using lockstep::FileDescriptor;
using lockstep::TcpGroup;
using lockstep::TcpMesh;
using lockstep::detail::RecordHead;

enum class Deed { flip, drop, repeat, delay, cut };

/// A man in the middle of the connection between ranks 0 and 1, who knows where records begin. He
/// does a deed to record number `victim` of those from rank 0.
class Middle {
 public:
  Middle(bool sealed, Deed deed, std::size_t victim)
      : trailer_(sealed ? 16 : 4), deed_(deed), victim_(victim) {
    for (auto& pair : pairs_)
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) std::abort();
  }
  ~Middle() {
    stops_ = true;
    if (thread_.joinable()) thread_.join();
    ::close(pairs_[0][1]);
    ::close(pairs_[1][1]);
  }
  int end(std::size_t rank) const { return pairs_[rank][0]; }
  void start() {
    thread_ = std::thread([this] { run(); });
  }
  bool has_struck() const { return struck_; }

 private:
  void run() {
    std::string from_first;
    bool first_ended = false, second_ended = false;
    while (!stops_ && !(first_ended && second_ended)) {
      pollfd both[2] = {{first_ended ? -1 : pairs_[0][1], POLLIN, 0},
                        {second_ended ? -1 : pairs_[1][1], POLLIN, 0}};
      if (::poll(both, 2, 5) <= 0) continue;
      char bytes[65536];
      if (both[0].revents != 0) {
        const auto n = ::recv(pairs_[0][1], bytes, sizeof bytes, 0);
        if (n <= 0) {
          first_ended = true;
          ::shutdown(pairs_[1][1], SHUT_WR);
        } else {
          from_first.append(bytes, static_cast<std::size_t>(n));
          forward_records(from_first);
        }
      }
      if (both[1].revents != 0) {
        const auto n = ::recv(pairs_[1][1], bytes, sizeof bytes, 0);
        if (n <= 0) {
          second_ended = true;
          ::shutdown(pairs_[0][1], SHUT_WR);
        } else {
          send_all(pairs_[0][1], {bytes, static_cast<std::size_t>(n)});
        }
      }
    }
  }
  void forward_records(std::string& input) {
    RecordHead head;
    while (input.size() >= sizeof head) {
      std::memcpy(&head, input.data(), sizeof head);
      const std::size_t whole = sizeof head + head.bytes + trailer_;
      if (input.size() < whole) return;
      std::string record = input.substr(0, whole);
      input.erase(0, whole);
      if (count_++ == victim_) strike(record);
      send_all(pairs_[1][1], record);
    }
  }
  void strike(std::string& record) {
    struck_ = true;
    switch (deed_) {
      case Deed::flip: {
        char& byte = record[(victim_ * 37) % record.size()];
        byte = static_cast<char>(byte ^ (1 << (victim_ % 8)));
        break;
      }
      case Deed::drop:
        record.clear();
        break;
      case Deed::repeat:
        record += record;
        break;
      case Deed::delay:
        std::this_thread::sleep_for(10ms);
        break;
      case Deed::cut:
        record.resize(victim_ % record.size());
        break;
    }
  }
  static void send_all(int file, std::string_view bytes) {
    while (!bytes.empty()) {
      const auto n = ::send(file, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }

  std::size_t trailer_;
  Deed deed_;
  std::size_t victim_, count_ = 0;
  int pairs_[2][2] = {{-1, -1}, {-1, -1}};  // the member's end, and that of the man
  std::atomic<bool> stops_{false}, struck_{false};
  std::thread thread_;
};

struct Outcome {
  std::size_t right = 0, wrong = 0;
  std::string error;
  bool is_collective = false;
};

/// Operations of all kinds and sizes until an error or the end.
Outcome exchange(TcpGroup& group, std::size_t operations) {
  Outcome outcome;
  try {
    for (std::size_t i = 0; i < operations; ++i) {
      const std::size_t n = i % 7 == 3 ? 200'000 : 1 + 331 * (i % 5);
      std::vector<std::uint32_t> x(n, static_cast<std::uint32_t>(group.rank() + i));
      double sums[2] = {1, static_cast<double>(i)};
      group.all_reduce(x.data(), n, sums, 2);
      const auto sum = static_cast<std::uint32_t>(1 + 2 * i);
      const bool is_sum = std::count(x.begin(), x.end(), sum) == static_cast<std::ptrdiff_t>(n) &&
                          sums[0] == 2 && sums[1] == 2 * static_cast<double>(i);
      ++(is_sum ? outcome.right : outcome.wrong);
    }
  } catch (const lockstep::CollectiveError& e) {
    outcome.error = e.what();
    outcome.is_collective = true;
  } catch (const std::exception& e) {
    outcome.error = e.what();
  }
  return outcome;
}

/// \return whether the deed was done: on a machine under load a wait may end before.
bool is_harmless(bool sealed, Deed deed, std::size_t victim, std::size_t operations) {
  CAPTURE(sealed, static_cast<int>(deed), victim);
  Middle man(sealed, deed, victim);
  std::vector<std::shared_ptr<TcpMesh>> meshes;
  std::vector<TcpGroup> groups;
  for (std::size_t r = 0; r < 2; ++r) {
    std::vector<DataConnection> connections;
    connections.push_back({.rank = 1 - r, .index = 0, .socket = FileDescriptor(man.end(r))});
    if (sealed) {
      const auto [there, back] = tcp_test::keys_of(0, 1, 0);
      connections[0].send_key = r == 0 ? there : back;
      connections[0].receive_key = r == 0 ? back : there;
    }
    meshes.push_back(std::make_shared<TcpMesh>(
        TcpMesh::Options{.rank = r, .size = 2, .channels = 1}, std::move(connections)));
    groups.emplace_back(meshes[r], TcpGroup::Options{.timeout = 200ms});
  }
  man.start();
  std::optional<Outcome> outcomes[2];
  std::thread other([&] { outcomes[1] = exchange(groups[1], operations); });
  outcomes[0] = exchange(groups[0], operations);
  other.join();
  for (const auto& outcome : outcomes) {
    CAPTURE(outcome->error);
    CHECK(outcome->wrong == 0);
    if (!man.has_struck()) continue;
    if (deed == Deed::delay) {
      // A machine under load may add more than the timeout.
      CHECK((outcome->error.empty() ? outcome->right == operations : outcome->is_collective));
    } else if (victim + 20 < operations) {
      CHECK(outcome->is_collective);
      CHECK(outcome->right < operations);
    }
  }
  return man.has_struck();
}

void check_middle(std::size_t first, std::size_t step, std::size_t last) {
  std::size_t tried = 0, struck = 0;
  for (const bool sealed : {false, true})
    for (const Deed deed : {Deed::flip, Deed::drop, Deed::repeat, Deed::delay, Deed::cut})
      for (std::size_t victim = first; victim < last; victim += step)
        ++tried, struck += is_harmless(sealed, deed, victim, last + 40);
  CHECK(2 * struck > tried);
}

}  // namespace

TEST_CASE("who changes, drops, repeats, delays or cuts a record never causes a wrong sum") {
  check_middle(0, 9, 60);
}

TEST_CASE("the same for each of the first 200 records", "[.slow]") { check_middle(0, 1, 200); }

TEST_CASE("a mesh is refused if its connections are not those of its topology") {
  const auto mesh_of = [](std::size_t size, std::vector<DataConnection> connections,
                          std::size_t channels) {
    return TcpMesh({.rank = 0, .size = size, .channels = channels}, std::move(connections)).size();
  };
  auto all = tcp_test::connect_all(3, lockstep::detail::Topology::direct, 2, false);
  CHECK_THROWS_AS(mesh_of(4, std::move(all[0]), 2), lockstep::UsageError);
  CHECK_THROWS_AS(mesh_of(3, std::move(all[1]), 2), lockstep::UsageError);  // of rank 1
  CHECK_THROWS_AS(mesh_of(2, {}, 1), lockstep::UsageError);
  CHECK(mesh_of(1, {}, 2) == 1);
}

TEST_CASE("a peer that ends without a word is named, and so is the cause that a peer had") {
  auto connections = tcp_test::connect_all(3, lockstep::detail::Topology::direct, 1, true);
  std::vector<std::shared_ptr<TcpMesh>> meshes;
  for (std::size_t r = 0; r < 3; ++r)
    meshes.push_back(std::make_shared<TcpMesh>(
        TcpMesh::Options{.rank = r, .size = 3, .channels = 1}, std::move(connections[r])));
  TcpGroup first(meshes[0], {}), second(meshes[1], {});
  meshes[2].reset();
  const auto error_of = [](TcpGroup& group) {
    try {
      float x = 1;
      group.all_reduce(&x, 1);
    } catch (const lockstep::CollectiveError& e) {
      CHECK(e.peer() == std::size_t{2});
      return std::string(e.what());
    }
    return std::string("none");
  };
  CHECK(error_of(first).find("lost its connection to replica 2 (") != std::string::npos);
  // It hears of it from replica 0, or meets the end of replica 2's connection itself.
  CHECK(error_of(second).find("replica") != std::string::npos);
}

TEST_CASE("a member that can only write still hears why its peer has stopped to read") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const FileDescriptor peer(ends[1]);
  std::vector<DataConnection> connections;
  connections.push_back({.rank = 1, .index = 0, .socket = FileDescriptor(ends[0])});
  const auto mesh = std::make_shared<TcpMesh>(TcpMesh::Options{.rank = 0, .size = 2, .channels = 1},
                                              std::move(connections));
  TcpGroup group(mesh, {.timeout = 60s});
  constexpr std::size_t n = 16 << 20;
  lockstep::detail::Wire wire(std::nullopt);
  const auto send = [&](RecordHead::Kind kind, const auto& content) {
    std::byte bytes[256];
    const std::size_t size =
        wire.write(kind, reinterpret_cast<const std::byte*>(&content), sizeof content, bytes);
    return ::send(ends[1], bytes, size, 0) == static_cast<ssize_t>(size);
  };
  lockstep::detail::CollectiveCall call;
  call.operation = lockstep::detail::CollectiveCall::Operation::broadcast;
  call.n = n;
  call.element = 1;
  REQUIRE(send(RecordHead::Kind::call, call));
  bool has_sent = false;
  std::thread peers_end([&] {
    std::this_thread::sleep_for(20ms);  // the root's socket is full by then
    has_sent = send(RecordHead::Kind::notice,
                    lockstep::detail::Shutdown{.cause = TcpMesh::Cause::lost, .rank = 7, .by = 1});
  });
  std::vector<std::byte> data(n);
  const auto began = std::chrono::steady_clock::now();
  CHECK_THROWS_AS(group.broadcast(data.data(), n, 0), lockstep::CollectiveAborted);
  CHECK(std::chrono::steady_clock::now() - began < 30s);  // not the timeout
  peers_end.join();
  CHECK(has_sent);
}

TEST_CASE("a lost rank is named by all members, whoever heard of it") {
  tcp_test::Places<lockstep::SumOrder::ranks, lockstep::detail::Topology::direct, false> places(
      3, 60s);
  std::thread control([&] {
    std::this_thread::sleep_for(5ms);
    places.member(0).lose(2);
  });
  const auto errors = contract::run_members(
      places, "a lost rank", [&](TcpGroup& member, std::size_t) { member.barrier(); }, {2});
  control.join();
  for (const std::size_t r : {0u, 1u})
    CHECK(contract::text_of(errors[r]).find("stopped because a replica was lost (2)") !=
          std::string::npos);
}

TEST_CASE("an idle group takes no descriptor and no thread beyond its connections") {
  const auto count = [] {
    std::size_t n = 0;
    for (int file = 0; file < 1024; ++file) n += ::fcntl(file, F_GETFD) >= 0;
    return n;
  };
  const std::size_t before = count();
  for (int i = 0; i < 1000; ++i) {
    auto connections = tcp_test::connect_all(2, lockstep::detail::Topology::direct, 1, i % 2 == 0);
    TcpMesh one({.rank = 0, .size = 2, .channels = 1}, std::move(connections[0])),
        other({.rank = 1, .size = 2, .channels = 1}, std::move(connections[1]));
    if (i == 0) CHECK(count() == before + 4);  // two ends, two events
  }
  CHECK(count() == before);
}
