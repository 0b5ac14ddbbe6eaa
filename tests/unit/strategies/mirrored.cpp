#include "lockstep/strategies/mirrored.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/devices/reference/device.hpp"

namespace {

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using namespace std::chrono_literals;

/// A device that records where and how it was opened.
struct Watched : ls::Reference<float> {
  struct Context : ls::ReferenceContext<float> {
    std::thread::id opener;
    std::size_t replicas = 0, index = 0;
    int number = 0;
  };
  int number = 0;
  bool fails = false;
  bool operator==(const Watched&) const = default;
  Context open(std::size_t replicas, std::size_t index) const {
    if (fails) throw ls::DeviceError("watched: no such device");
    Context context;
    context.opener = std::this_thread::get_id();
    context.replicas = replicas;
    context.index = index;
    context.number = number;
    return context;
  }
};
Watched watched(int number) {
  Watched device;
  device.number = number;
  return device;
}
using Strategy = ls::Mirrored<Watched>;
using Replica = ls::ReplicaContext<Watched>;
static_assert(ls::Strategy<Strategy> && ls::Strategy<ls::Mirrored<ls::Reference<double>>>);

/// Each replica adds 2^rank in both channels.
void sums_are_right(Strategy::Session& session) {
  const auto all = static_cast<float>((1u << session.replicas()) - 1);
  std::atomic<int> wrong = 0;
  session.each([&](const Replica& r) {
    std::vector<float> layer(5, static_cast<float>(1u << r.rank)), first = layer, last = layer;
    double sums[2] = {1, static_cast<double>(r.rank)};
    r.exchange.post(first.data(), first.size());
    r.group.all_reduce(layer.data(), layer.size());
    r.exchange.finish(last.data(), last.size(), sums, 2);
    const std::vector<float> expected(5, all);
    const auto n = static_cast<double>(session.replicas());
    if (layer != expected || first != expected || last != expected || sums[0] != n ||
        sums[1] != n * (n - 1) / 2)
      ++wrong;
  });
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("Mirrored runs each replica in its own thread, the same in each call") {
  auto session = Strategy{.replicas = 3}.open();
  CHECK(session.replicas() == 3);
  CHECK(session.local_replicas() == 3);
  CHECK(session.first_replica() == 0);
  CHECK(session.is_chief());
  CHECK(session.virtual_shards() == 0);
  std::vector<std::thread::id> first(3);
  for (int call = 0; call < 3; ++call) {
    std::vector<std::thread::id> seen(3);
    std::vector<std::size_t> rank(3), size(3), index(3), replicas(3);
    session.each([&](const Replica& r) {
      seen[r.local] = std::this_thread::get_id();
      rank[r.local] = r.group.rank();
      size[r.local] = r.group.size();
      index[r.local] = r.device.index;
      replicas[r.local] = r.device.replicas;
      if (call == 0) first[r.local] = r.device.opener;
    });
    CHECK(seen == first);
    CHECK(rank == std::vector<std::size_t>{0, 1, 2});
    CHECK(index == std::vector<std::size_t>{0, 1, 2});
    CHECK(size == std::vector<std::size_t>{3, 3, 3});
    CHECK(replicas == std::vector<std::size_t>{3, 3, 3});
  }
  CHECK(first[0] == std::this_thread::get_id());
  CHECK(std::set<std::thread::id>(first.begin(), first.end()).size() == 3);
}

TEST_CASE("Mirrored defaults to one replica, and with a list to one on each device") {
  CHECK(Strategy{}.open().replicas() == 1);
  auto session = Strategy{{watched(7), watched(9)}}.open();
  REQUIRE(session.replicas() == 2);
  std::vector<int> numbers(2);
  session.each([&](const Replica& r) { numbers[r.local] = r.device.number; });
  CHECK(numbers == std::vector<int>{7, 9});
  auto alike = Strategy{.replicas = 2, .on = watched(4)}.open();
  alike.each([&](const Replica& r) { numbers[r.local] = r.device.number; });
  CHECK(numbers == std::vector<int>{4, 4});
}

TEST_CASE("Replicas sum in two channels that do not wait for each other") {
  for (std::size_t n = 1; n <= 8; ++n) {
    CAPTURE(n);
    auto session = Strategy{.replicas = n}.open();
    for (int i = 0; i < 20; ++i) sums_are_right(session);
  }
  // Replica 0 uses the layers' channel first, replica 1 that of the gradients.
  auto session = Strategy{.replicas = 2, .timeout = 20s}.open();
  session.each([&](const Replica& r) {
    float gradient = 1, layer = 1;
    if (r.rank == 1) r.exchange.post(&gradient, 1);
    r.group.all_reduce(&layer, 1);
    if (r.rank == 0) r.exchange.post(&gradient, 1);
    r.exchange.finish(nullptr, 0, nullptr, 0);
    if (gradient != 2 || layer != 2) throw std::logic_error("wrong sums");
  });
}

TEST_CASE("An error in one replica aborts all, is thrown once, and leaves the session usable") {
  struct Mishap {};
  auto session = Strategy{.replicas = 4, .timeout = 60s}.open();
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t guilty = 0; guilty < 4; ++guilty) {
    CAPTURE(guilty);
    std::atomic<int> ended = 0;
    // The others wait in the layers' channel ...
    CHECK_THROWS_AS(session.each([&](const Replica& r) {
      struct Count {
        std::atomic<int>& n;
        ~Count() { ++n; }
      } count{ended};
      float x = 1;
      if (r.rank == guilty) throw Mishap();
      r.group.all_reduce(&x, 1);
    }),
                    Mishap);
    CHECK(ended == 4);
    sums_are_right(session);
    // ... or for gradients ...
    std::vector<std::vector<float>> gradients(4, std::vector<float>(1000, 1));
    CHECK_THROWS_AS(session.each([&](const Replica& r) {
      std::vector<float>& x = gradients[r.local];
      r.exchange.post(x.data(), 10);
      r.exchange.post(x.data() + 10, 900);
      if (r.rank == guilty) throw std::bad_alloc();
      r.exchange.finish(x.data(), 3, nullptr, 0);
    }),
                    std::bad_alloc);
    sums_are_right(session);
  }
  // ... or all fail.
  CHECK_THROWS_AS(session.each([](const Replica&) { throw Mishap(); }), Mishap);
  sums_are_right(session);
  CHECK(std::chrono::steady_clock::now() - begin < 30s);
}

TEST_CASE("An absent replica is named when the timeout is over") {
  auto session = Strategy{.replicas = 3, .timeout = 50ms}.open();
  CHECK_THROWS_AS(session.each([&](const Replica& r) {
    float x = 1;
    if (r.rank == 1) std::this_thread::sleep_for(300ms);
    r.group.all_reduce(&x, 1);
  }),
                  ls::CollectiveTimeout);
  CHECK_THROWS_WITH(session.each([&](const Replica& r) {
    float x = 1;
    if (r.rank == 1) std::this_thread::sleep_for(300ms);
    r.exchange.finish(&x, 1, nullptr, 0);
  }),
                    ContainsSubstring("waited 50 ms for replica 1, which did not arrive"));
}

TEST_CASE("A late replica's error is thrown rather than the timeout, which is logged immediately") {
  std::vector<std::string> logged;
  std::atomic<int> lines = 0;
  const auto before = ls::set_log([&](ls::LogLevel, std::string_view text) {
    logged.emplace_back(text);
    ++lines;
  });
  auto session = Strategy{.replicas = 2, .timeout = 50ms}.open();
  std::atomic<bool> logged_first = false;
  const auto late = [&](const Replica& r) {
    float x = 1;
    if (r.rank == 0) r.group.all_reduce(&x, 1);
    std::this_thread::sleep_for(300ms);
    logged_first = lines == 1;
    throw ls::DeviceError("device 1 is gone");
  };
  CHECK_THROWS_WITH(session.each(late), "device 1 is gone");
  ls::set_log(before);
  CHECK(logged_first);
  REQUIRE(logged.size() == 1);
  CHECK_THAT(logged[0], ContainsSubstring("waited 50 ms for replica 1"));
}

TEST_CASE("open reports a device that cannot be opened") {
  Watched broken;
  broken.fails = true;
  const Strategy strategy{{watched(1), broken}};
  CHECK_THROWS_WITH(strategy.open(), "watched: no such device");
}

TEST_CASE("open refuses invalid numbers") {
  const auto refused = [](const Strategy& s, const char* sentence) {
    CHECK_THROWS_AS(s.open(), ls::UsageError);
    CHECK_THROWS_WITH(s.open(), ContainsSubstring(sentence));
  };
  refused({.replicas = 257}, "mirrored: replicas is 257; it must be between 1 and 256");
  refused({.devices = {watched(1), watched(2)}, .replicas = 3},
          "mirrored: replicas is 3, but 2 devices are listed; set one of the two");
  refused({.devices = {watched(1), watched(2)}, .on = watched(3)},
          ".on is for replicas without a list of devices");
  refused({.replicas = 2, .timeout = 0s}, "timeout must be above 0");
  refused({.replicas = 2, .virtual_shards = 6}, "virtual_shards: 6 slices; use a power of two");
  refused({.replicas = 3, .virtual_shards = 4}, "cannot be shared by 3 replicas");
  refused({.replicas = 4, .virtual_shards = 2}, "cannot be shared by 4 replicas");
}

TEST_CASE("A session keeps its replicas when it is moved, and two sessions coexist") {
  auto session = Strategy{.replicas = 2}.open();
  std::vector<const void*> before(2), after(2);
  session.each([&](const Replica& r) { before[r.local] = &r.device; });
  auto moved = std::move(session);
  auto other = Strategy{.replicas = 3}.open();
  moved.each([&](const Replica& r) { after[r.local] = &r.device; });
  CHECK(before == after);
  sums_are_right(moved);
  sums_are_right(other);
}
