#include "lockstep/collectives/gloo_group.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "places.hpp"
#include "unit/collectives/contract.hpp"

namespace {

using gloo_test::Meshes;
using lockstep::GlooGroup;
using lockstep::SumOrder;
using namespace std::chrono_literals;

using Ranks = gloo_test::Places<SumOrder::ranks>;
using Tree = gloo_test::Places<SumOrder::tree>;

/// A faulty network between ranks 0 and 1: a proxy for their connection that flips one bit of the
/// first run of `value`s that it forwards.
class FaultyWire {
 public:
  explicit FaultyWire(float value) {
    for (int i = 0; i < 16; ++i) run_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  ~FaultyWire() {
    stops_ = true;
    if (thread_.joinable()) thread_.join();
    for (const int file : {listener_, ends_[0].fd, ends_[1].fd})
      if (file >= 0) ::close(file);
  }

  bool has_struck() const { return has_struck_; }

  /// The address of rank 0 as rank 1 sees it. Rank 1 connects to it, since its own is higher.
  std::string instead_of(std::string address) {
    if (thread_.joinable()) return address;  // another attempt
    sockaddr_in place{};
    std::memcpy(&place, address.data(), sizeof place);
    target_ = place;
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    place.sin_port = 0;
    socklen_t length = sizeof place;
    auto* const any = reinterpret_cast<sockaddr*>(&place);
    if (::bind(listener_, any, length) != 0 || ::listen(listener_, 1) != 0 ||
        ::getsockname(listener_, any, &length) != 0)
      throw lockstep::Error("the wire cannot listen");
    thread_ = std::thread([this] { run(); });
    std::memcpy(address.data(), &place, sizeof place);
    return address;
  }

 private:
  void run() {
    pollfd comes{listener_, POLLIN, 0};
    while (::poll(&comes, 1, 20) <= 0)
      if (stops_) return;
    ends_[0] = {::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC), POLLIN, 0};
    ends_[1] = {::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), POLLIN, 0};
    if (::connect(ends_[1].fd, reinterpret_cast<const sockaddr*>(&target_), sizeof target_) != 0)
      return;
    std::string bytes(1 << 20, '\0');
    while (!stops_) {
      if (::poll(ends_, 2, 20) <= 0) continue;
      for (const int from : {0, 1}) {
        if (ends_[from].revents == 0) continue;
        const auto n = ::recv(ends_[from].fd, bytes.data(), bytes.size(), 0);
        if (n <= 0) {
          ::shutdown(ends_[1 - from].fd, SHUT_WR);
          ends_[from].events = 0;
          if (ends_[1 - from].events == 0) return;
          continue;
        }
        const auto got = static_cast<std::size_t>(n);
        strike(bytes, got);
        for (std::size_t sent = 0; sent < got;) {
          const auto m = ::send(ends_[1 - from].fd, bytes.data() + sent, got - sent, MSG_NOSIGNAL);
          if (m <= 0) {  // that end was reset, and the other one has to hear of it
            for (const pollfd& end : ends_) ::shutdown(end.fd, SHUT_RDWR);
            return;
          }
          sent += static_cast<std::size_t>(m);
        }
      }
    }
  }
  void strike(std::string& bytes, std::size_t got) {
    if (has_struck_) return;
    const std::size_t at = std::string_view(bytes.data(), got).find(run_);
    if (at == std::string_view::npos) return;
    bytes[at + run_.size() / 2] = static_cast<char>(bytes[at + run_.size() / 2] ^ 0x10);
    has_struck_ = true;
  }

  std::string run_;
  sockaddr_in target_{};
  int listener_ = -1;
  pollfd ends_[2] = {{-1, 0, 0}, {-1, 0, 0}};
  std::atomic<bool> stops_{false}, has_struck_{false};
  std::thread thread_;
};

/// The store as rank 1 sees it.
class WiredStore : public gloo_test::MemoryStore {
 public:
  WiredStore(gloo_test::MemoryStore& store, FaultyWire& wire) : store_(store), wire_(wire) {}
  void set(const std::string& key, const std::string& bytes) override { store_.set(key, bytes); }
  std::optional<std::string> get(const std::string& key, Deadline deadline) override {
    auto value = store_.get(key, deadline);
    if (!value || key.find("/address/0") == std::string::npos) return value;
    return wire_.instead_of(std::move(*value));
  }

 private:
  gloo_test::MemoryStore& store_;
  FaultyWire& wire_;
};

/// The exceptions of a group whose network flips a bit of a run of `value`s.
std::vector<std::exception_ptr> over_a_faulty_wire(
    std::size_t size, float value, const std::function<void(GlooGroup&, std::size_t)>& exchange) {
  gloo_test::MemoryStore store;
  FaultyWire wire(value);
  WiredStore wired(store, wire);
  std::vector<std::shared_ptr<lockstep::GlooMesh>> meshes(size);
  const auto errors = gloo_test::in_threads(size, [&](std::size_t r) {
    meshes[r] = lockstep::form_gloo_mesh({.rank = r,
                                          .size = size,
                                          .address = "127.0.0." + std::to_string(r + 1),
                                          .run = "a test",
                                          .limit = 10s},
                                         r == 1 ? wired : store);
  });
  REQUIRE(contract::first_error(errors) == "");
  const auto result = gloo_test::in_threads(size, [&](std::size_t r) {
    GlooGroup group(meshes[r], {.channel = 0, .timeout = 30s});
    exchange(group, r);
    group.barrier();
  });
  CHECK(wire.has_struck());
  gloo_test::in_threads(size, [&](std::size_t r) { meshes[r].reset(); });
  return result;
}

}  // namespace

TEST_CASE("a bit flip between two processes ends the exchange and names both") {
  static constexpr float sent = 12.25f;
  const auto reduce = [](std::size_t first,
                         std::size_t n) {  // zeros, then the values that are corrupted
    return [=](GlooGroup& group, std::size_t) {
      std::vector<float> x(n, 0.0f);
      std::fill(x.begin() + static_cast<std::ptrdiff_t>(first), x.end(), sent);
      group.all_reduce(x.data(), n);
    };
  };
  struct Row {
    const char* what;
    std::size_t size;
    float struck;
    std::function<void(GlooGroup&, std::size_t)> exchange;
  };
  const Row rows[] = {
      {"a frame", 3, sent, reduce(0, 1000)},
      {"a frame of two", 2, sent, reduce(0, 1000)},
      {"a part that both add", 2, sent, reduce(0, 100'000)},
      {"a part", 3, sent, reduce(0, 300'000)},
      {"a sum", 3, 3 * sent, reduce(0, 300'000)},
      {"a sum of two", 2, 2 * sent, reduce(0, 300'000)},
      {"a part of the second round", 3, sent, reduce(2'200'000, 2'500'000)},
      {"a sum of the second round", 2, 2 * sent, reduce(2'200'000, 2'500'000)},
      {"a small broadcast", 3, sent,
       [](GlooGroup& group, std::size_t) {
         std::vector<float> x(1000, group.rank() == 0 ? sent : 0.0f);
         group.broadcast(x.data(), x.size(), 0);
       }},
      {"a broadcast", 3, sent,
       [](GlooGroup& group, std::size_t) {
         std::vector<float> x(2'500'000, group.rank() == 1 ? sent : 0.0f);
         group.broadcast(x.data(), x.size(), 1);
       }},
      {"the second round of a broadcast", 3, sent,
       [](GlooGroup& group, std::size_t) {
         std::vector<float> x(2'500'000, 0.0f);
         if (group.rank() == 0) std::fill(x.begin() + 2'200'000, x.end(), sent);
         group.broadcast(x.data(), x.size(), 0);
       }},
      {"what is gathered", 3, sent,
       [](GlooGroup& group, std::size_t) {
         const std::vector<float> x(100'000, sent);
         std::vector<float> all(3 * x.size());
         group.all_gather(x.data(), x.size(), all.data());
       }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const contract::Deadline deadline(row.what, 60s);
    for (const auto& error : over_a_faulty_wire(row.size, row.struck, row.exchange)) {
      CAPTURE(contract::text_of(error));
      REQUIRE(contract::is<lockstep::LinkFailed>(error));
      try {
        std::rethrow_exception(error);
      } catch (const lockstep::LinkFailed& e) {
        CHECK(e.peer().value() + e.other() == 1);
        const std::string what = e.what();
        CHECK(what.find("the connection between replicas 0 and 1 failed: data arrived corrupted") !=
              std::string::npos);
      }
    }
  }
}

TEST_CASE("GlooGroup keeps the contract of a collective") {
  contract::check_collective<gloo_test::Places<SumOrder::ranks, 4>>();
}
TEST_CASE("GlooGroup of up to eight keeps the contract of a collective", "[.slow]") {
  contract::check_collective<Ranks>();
}
TEST_CASE("GlooGroup that adds in a tree keeps the contract of a collective", "[.slow]") {
  contract::check_collective<Tree>();
}

TEST_CASE("more values than one chunk are reduced, broadcast and gathered") {
  // Odd sizes around several rounds of 8 MB, with more sums than fit into one message.
  for (const std::size_t size : {2u, 3u}) {
    Ranks places(size, contract::no_timeout);
    CHECK(contract::first_error(
              contract::run_members(places, "many numbers", [&](auto& member, std::size_t) {
                contract::check_sum_with_sums<float>(member, SumOrder::ranks, 1, 4'500'001, 9'001);
                contract::check_sum_with_sums<std::uint8_t>(member, SumOrder::ranks, 2, 0, 9'001);
                contract::check_broadcast<float>(member, 3, 2'100'001, size - 1);
                contract::check_gather<double>(member, 4, 1'100'001);
              })) == "");
  }
}

TEST_CASE("groups on one mesh exchange concurrently, in a different order in each process") {
  constexpr std::size_t size = 3;
  Meshes all(size);
  std::vector<GlooGroup> gradients, layers;
  for (std::size_t r = 0; r < size; ++r) {
    gradients.emplace_back(all.meshes[r], GlooGroup::Options{.channel = 0});
    layers.emplace_back(all.meshes[r], GlooGroup::Options{.channel = 1, .order = SumOrder::tree});
  }
  const contract::Deadline deadline("two channels");
  const auto errors = gloo_test::in_threads(size, [&](std::size_t r) {
    std::thread background([&] {
      for (std::uint64_t i = 0; i < 50; ++i)
        contract::check_sum<float>(gradients[r], SumOrder::ranks, i, 30'000);
    });
    if (r == 1) std::this_thread::sleep_for(20ms);
    for (std::uint64_t i = 0; i < 50; ++i)
      contract::check_sum<float>(layers[r], SumOrder::tree, 1000 + i, 7 + 3000 * (i % 3));
    background.join();
  });
  CHECK(contract::first_error(errors) == "");
}

TEST_CASE("an abort of one group ends the waits of all groups of its mesh, in all processes") {
  constexpr std::size_t size = 3;
  Meshes all(size);
  std::vector<GlooGroup> first, second;
  for (std::size_t r = 0; r < size; ++r) {
    first.emplace_back(all.meshes[r], GlooGroup::Options{.channel = 0});
    second.emplace_back(all.meshes[r], GlooGroup::Options{.channel = 1});
  }
  const contract::Deadline deadline("abort of another group");
  std::thread aborting([&] {
    std::this_thread::sleep_for(20ms);
    first[2].abort();  // its process is not in an operation
  });
  const auto errors = gloo_test::in_threads(size - 1, [&](std::size_t r) { second[r].barrier(); });
  aborting.join();
  for (const auto& error : errors) CHECK(contract::is<lockstep::CollectiveAborted>(error));
}

TEST_CASE("two groups of a mesh on one channel are refused") {
  Meshes all(2);
  const GlooGroup group(all.meshes[0], {.channel = 3});
  CHECK_THROWS_AS(GlooGroup(all.meshes[0], {.channel = 3}), lockstep::UsageError);
  CHECK_THROWS_AS(GlooGroup(all.meshes[0], {.channel = 255}), lockstep::UsageError);
  CHECK_NOTHROW(GlooGroup(all.meshes[0], {.channel = 4}));
}

TEST_CASE("a timeout counts from the last progress, not from the start of the operation") {
  constexpr std::size_t size = 4;
  Ranks places(size, 800ms);
  const auto errors =
      contract::run_members(places, "late members", [&](auto& member, std::size_t rank) {
        std::this_thread::sleep_for(rank * 400ms);  // the last one arrives after 1,200 ms
        member.barrier();
      });
  CHECK(contract::first_error(errors) == "");
}
