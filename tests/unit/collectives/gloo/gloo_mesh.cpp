#include "lockstep/collectives/gloo_mesh.hpp"

#include <fcntl.h>
#include <gloo/transport/tcp/address.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "places.hpp"
#include "support/no_threads.hpp"
#include "support/signals.hpp"
#include "unit/collectives/members.hpp"

namespace {

using contract::Deadline;
using contract::is;
using contract::text_of;
using gloo_test::Clock;
using gloo_test::in_threads;
using gloo_test::MemoryStore;
using lockstep::GlooGroup;
using lockstep::GlooMesh;
using lockstep::GlooMeshError;
using lockstep::GlooStore;
using namespace std::chrono_literals;

using Meshes = std::vector<std::shared_ptr<GlooMesh>>;

/// A store that connects to all addresses of a mesh and sends `words` to each, before any process
/// can read these addresses.
class Stranger : public MemoryStore {
 public:
  Stranger(std::size_t size, std::string words, std::string mesh = "/0/address/")
      : size_(size), words_(std::move(words)), mesh_(std::move(mesh)) {}
  ~Stranger() override {
    for (const int connection : connections_) close(connection);
  }
  void set(const std::string& key, const std::string& bytes) override {
    if (key.find(mesh_) != std::string::npos) {
      const std::scoped_lock lock(mutex_);
      const std::size_t one = bytes.size() / (size_ - 1);
      for (std::size_t at = 0; at < bytes.size(); at += one) visit(bytes.substr(at, one));
    }
    MemoryStore::set(key, bytes);
  }
  std::size_t visits() const { return connections_.size(); }

 private:
  void visit(const std::string& bytes) {
    const gloo::transport::tcp::Address address(std::vector<char>(bytes.begin(), bytes.end()));
    const int connection = socket(AF_INET, SOCK_STREAM, 0);
    const auto* where = reinterpret_cast<const sockaddr*>(&address.getSockaddr());
    if (connect(connection, where, sizeof(sockaddr_in)) != 0) {
      close(connection);
      return;
    }
    connections_.push_back(connection);
    (void)!::send(connection, words_.data(), words_.size(), MSG_NOSIGNAL);
  }

  std::size_t size_;
  std::string words_, mesh_;
  std::mutex mutex_;
  std::vector<int> connections_;
};

/// The descriptors that are open now, and how many of them a child program would inherit.
struct Files {
  std::size_t sockets = 0;
  std::multiset<std::string> inherited;

  Files() {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int file = std::stoi(entry.path().filename().string());
      int type = 0;
      socklen_t length = sizeof type;
      if (getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &length) == 0) ++sockets;
      const int flags = fcntl(file, F_GETFD);
      std::error_code ignored;
      if (flags >= 0 && (flags & FD_CLOEXEC) == 0)
        inherited.insert(std::filesystem::read_symlink(entry.path(), ignored).string());
    }
  }
};

bool has_ipv6() {
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const int s = socket(AF_INET6, SOCK_STREAM, 0);
  const bool is_there =
      s >= 0 && bind(s, reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback) == 0;
  if (s >= 0) close(s);
  return is_there;
}

void check_works(const Meshes& meshes) {
  const auto errors = in_threads(meshes.size(), [&](std::size_t r) {
    GlooGroup group(meshes[r], {});
    float x = static_cast<float>(r);
    group.all_reduce(&x, 1);
    contract::expect(x == static_cast<float>(meshes.size() * (meshes.size() - 1) / 2), "the sum");
    group.barrier();
  });
  CHECK(contract::first_error(errors) == "");
}

}  // namespace

TEST_CASE("a stranger that connects to a forming mesh is detected, and the next attempt succeeds") {
  const std::string request = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n\r\n";
  const std::string random = [] {
    std::string bytes;
    for (std::uint64_t i = 0; i < 1000; ++i) bytes += static_cast<char>(contract::mix(i));
    return bytes;
  }();
  for (const std::string& words : {std::string(), std::string("x"), request + request + request,
                                   random, std::string(5000, '\0')}) {
    constexpr std::size_t size = 3;
    const Deadline deadline("a mesh with strangers", 60s);
    Stranger store(size, words);
    const auto limit = words.empty() ? GlooMesh::Options{}.limit : 1s;
    Meshes meshes(size);
    const auto start = Clock::now();
    const auto errors = in_threads(size, [&](std::size_t r) {
      meshes[r] = form_gloo_mesh({.rank = r, .size = size, .run = "a test", .limit = limit}, store);
    });
    const auto took = Clock::now() - start;
    INFO(words.substr(0, 20) << ": " << contract::first_error(errors));
    CHECK(contract::first_error(errors) == "");
    CHECK(store.visits() == size * (size - 1));
    for (std::size_t r = 0; r < size; ++r)
      CHECK(store.get("gloo/0/formed/" + std::to_string(r), Clock::now()) != "formed");
    CHECK(took < 5 * limit);  // one attempt that fails at the limit, and one that succeeds
    if (contract::first_error(errors) == "") check_works(meshes);
  }
}

TEST_CASE("a stranger in every attempt leads to an error, not to a hang") {
  constexpr std::size_t size = 2;
  const Deadline deadline("strangers in all meshes", 60s);
  Stranger store(size, "", "/address/");
  const auto errors = in_threads(size, [&](std::size_t r) {
    form_gloo_mesh({.rank = r, .size = size, .run = "a test", .limit = 300ms}, store, 3);
  });
  for (const auto& error : errors) CHECK(is<GlooMeshError>(error));
  CHECK(store.get("gloo/2/formed/0", Clock::now()).has_value());
  CHECK(!store.get("gloo/3/formed/0", Clock::now()).has_value());
}

TEST_CASE("a process of another run, or with another secret, is rejected by both sides") {
  struct Case {
    std::string run, key;
  };
  const Case mine{"run 1", "0123456789abcdef"};
  for (const Case& other : {Case{"run 2", "0123456789abcdef"}, Case{"run 1", "0123456789abcdeF"},
                            Case{"run 1", ""}, Case{"run 1", "0123456789abcdef0"}}) {
    const Deadline deadline("two runs");
    MemoryStore store;
    const auto errors = in_threads(2, [&](std::size_t r) {
      const Case& own = r == 0 ? mine : other;
      const GlooMesh mesh({.rank = r, .size = 2, .run = own.run, .key = own.key}, store);
    });
    for (std::size_t r = 0; r < 2; ++r) {
      INFO(text_of(errors[r]));
      CHECK(is<GlooMeshError>(errors[r]));
    }
    CHECK((text_of(errors[0]) + text_of(errors[1])).find("another secret") != std::string::npos);
  }
}

TEST_CASE("an absent process is named at the limit") {
  const Deadline deadline("a process that never comes");
  MemoryStore store;
  Meshes meshes(3);
  const auto start = Clock::now();
  const auto errors = in_threads(2, [&](std::size_t r) {
    meshes[r] = std::make_shared<GlooMesh>(
        GlooMesh::Options{.rank = r, .size = 3, .run = "a test", .limit = 300ms}, store);
  });
  CHECK(Clock::now() - start >= 300ms);
  CHECK(Clock::now() - start < 3s);
  for (const auto& error : errors) {
    REQUIRE(is<GlooMeshError>(error));
    try {
      std::rethrow_exception(error);
    } catch (const GlooMeshError& e) {
      CHECK(e.peer() == 2);
    }
  }
}

TEST_CASE("the loss of a process ends the forming of a mesh, wherever it waits") {
  // Rank 1 publishes an address, but never connects: rank 0 listens for it until the limit, or
  // connects to it and waits for its proof.
  struct Store : MemoryStore {
    void on_loss(std::function<void()> lost) override {
      const std::scoped_lock lock(mutex);
      callback = std::move(lost);
    }
    void lose() {
      const std::scoped_lock lock(mutex);
      if (callback) callback();
    }
    std::mutex mutex;
    std::function<void()> callback;
  };
  for (const bool listens : {false, true}) {
    CAPTURE(listens);
    const Deadline deadline("a mesh whose peer is lost", 60s);
    Store store;
    const int peer = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(listens ? INADDR_LOOPBACK : INADDR_LOOPBACK + 1);
    REQUIRE(bind(peer, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0);
    REQUIRE(listen(peer, 4) == 0);
    const auto bytes = gloo::transport::tcp::Address::fromSockName(peer).bytes();
    store.set("gloo/0/address/1", std::string(bytes.begin(), bytes.end()));
    std::thread killer([&] {
      std::this_thread::sleep_for(400ms);
      store.lose();
    });
    const auto start = Clock::now();
    // Gloo connects from the higher address to the lower one.
    const auto errors = in_threads(1, [&](std::size_t) {
      GlooMesh({.rank = 0,
                .size = 2,
                .address = listens ? "127.0.0.9" : "127.0.0.1",
                .run = "a test",
                .limit = 20s},
               store);
    });
    const auto took = Clock::now() - start;
    killer.join();
    close(peer);
    INFO(text_of(errors[0]));
    CHECK(is<GlooMeshError>(errors[0]));
    CHECK(took >= 400ms);
    CHECK(took < 5s);
  }
}

TEST_CASE("a mesh listens on the ports that it is given") {
  constexpr std::size_t size = 4;
  const Deadline deadline("a mesh of ports", 60s);
  std::mt19937 random{std::random_device{}()};
  const auto first = std::uniform_int_distribution<std::uint16_t>(13'000, 30'000)(random);
  const auto last = static_cast<std::uint16_t>(first + 40);
  for (const char* const address : {"127.0.0.1", "::1"}) {
    if (std::string_view(address) == "::1" && !has_ipv6()) continue;
    CAPTURE(address);
    MemoryStore store;
    Meshes meshes(size);
    const auto errors = in_threads(size, [&](std::size_t r) {
      meshes[r] = form_gloo_mesh(
          {.rank = r, .size = size, .address = address, .ports = {first, last}, .limit = 10s},
          store);
    });
    REQUIRE(contract::first_error(errors) == "");
    for (std::size_t r = 0; r < size; ++r) {
      std::set<int> ports;  // one per peer; a late rank may get one that others have released
      const std::string all = *store.get("gloo/0/address/" + std::to_string(r), Clock::now());
      const std::size_t one = all.size() / (size - 1);
      for (std::size_t at = 0; at < all.size(); at += one) {
        const gloo::transport::tcp::Address published(
            std::vector<char>(all.begin() + static_cast<std::ptrdiff_t>(at),
                              all.begin() + static_cast<std::ptrdiff_t>(at + one)));
        // At the same offset in both address families.
        ports.insert(ntohs(reinterpret_cast<const sockaddr_in&>(published.getSockaddr()).sin_port));
      }
      CHECK(ports.size() == size - 1);
      CHECK(*ports.begin() >= first);
      CHECK(*ports.rbegin() <= last);
    }
    check_works(meshes);
  }
  // One port suffices for two machines, even for a second mesh while the first one is connected.
  MemoryStore pair;
  Meshes two(2), two_more(2);
  const auto errors = in_threads(2, [&](std::size_t r) {
    const std::string own = r == 0 ? "127.0.0.1" : "127.0.0.2";
    for (Meshes* const meshes : {&two, &two_more})
      (*meshes)[r] = form_gloo_mesh({.rank = r,
                                     .size = 2,
                                     .address = own,
                                     .name = meshes == &two ? "first" : "second",
                                     .ports = {last, last},
                                     .limit = 10s},
                                    pair);
  });
  REQUIRE(contract::first_error(errors) == "");
  check_works(two);
  check_works(two_more);

  const auto refused = [&](std::uint16_t from, std::uint16_t to) {
    MemoryStore store;
    const auto error = in_threads(1, [&](std::size_t) {
      GlooMesh(
          {
              .rank = 0,
              .size = 3,
              .ports = {from, to},
          },
          store);
    });
    CHECK(is<lockstep::UsageError>(error[0]));
    return text_of(error[0]);
  };
  CHECK(refused(first, first)
            .find("are too few for 3 workers, each of which listens on 2; give "
                  "LOCKSTEP_DATA_PORTS a wider range") != std::string::npos);
  const int holder = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  place.sin_port = htons(first);
  REQUIRE(bind(holder, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0);
  REQUIRE(listen(holder, 1) == 0);
  CHECK(refused(first, static_cast<std::uint16_t>(first + 1)).find("too few of the ports ") !=
        std::string::npos);
  close(holder);
}

TEST_CASE(
    "an invalid rank, a limit that is too short and an address of another machine are refused") {
  MemoryStore store;
  CHECK_THROWS_AS(GlooMesh({.rank = 2, .size = 2}, store), lockstep::UsageError);
  CHECK_THROWS_AS(GlooMesh({.rank = 0, .size = 0}, store), lockstep::UsageError);
  CHECK_THROWS_AS(GlooMesh({.rank = 0, .size = 2, .limit = 0ms}, store), lockstep::UsageError);
  for (const char* const address : {"192.0.2.1", "2001:db8::1", "localhost", "", "1.2.3"})
    CHECK_THROWS_AS(GlooMesh({.rank = 0, .size = 2, .address = address}, store),
                    lockstep::UsageError);
}

TEST_CASE("a mesh of one process does not use the store") {
  MemoryStore store;
  GlooGroup group(form_gloo_mesh({}, store), {});
  float x = 3;
  group.all_reduce(&x, 1);
  group.barrier();
  CHECK(x == 3.0f);
}

TEST_CASE("two meshes of one job coexist") {
  constexpr std::size_t size = 2;
  MemoryStore store;
  Meshes first(size), second(size);
  const auto errors = in_threads(size, [&](std::size_t r) {
    first[r] = form_gloo_mesh({.rank = r, .size = size, .name = "first", .limit = 10s}, store);
    second[r] = form_gloo_mesh({.rank = r, .size = size, .name = "second", .limit = 10s}, store);
  });
  REQUIRE(contract::first_error(errors) == "");
  first[0]->abort();
  check_works(second);
}

TEST_CASE("the kernel does not give up a connection before the configured silence") {
  for (const std::chrono::seconds silence : {2s, 200s, std::chrono::seconds(24h)}) {
    CAPTURE(silence.count());
    MemoryStore store;
    Meshes meshes(2);
    const auto errors = in_threads(2, [&](std::size_t r) {
      meshes[r] = form_gloo_mesh({.rank = r, .size = 2, .limit = 10s, .silence = silence}, store);
    });
    REQUIRE(contract::first_error(errors) == "");
    int connections = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int file = std::stoi(entry.path().filename().string());
      const auto option = [file](int level, int name) {
        int value = 0;
        socklen_t length = sizeof value;
        return getsockopt(file, level, name, &value, &length) == 0 ? value : 0;
      };
      if (option(SOL_SOCKET, SO_KEEPALIVE) == 0) continue;
      ++connections;
      CHECK(option(IPPROTO_TCP, TCP_KEEPINTVL) * option(IPPROTO_TCP, TCP_KEEPCNT) >=
            silence.count());
    }
    CHECK(connections == 2);
  }
}

TEST_CASE("a program started by a worker inherits no descriptor of a mesh, but the caller's") {
  const int mine = socket(AF_INET, SOCK_STREAM, 0), my_epoll = epoll_create(1);  // not Gloo's
  for (const char* const address : {"127.0.0.1", "::1"}) {
    if (std::string_view(address) == "::1" && !has_ipv6()) continue;
    CAPTURE(address);
    const Files before;
    MemoryStore store;
    Meshes meshes(3);
    const auto errors = in_threads(meshes.size(), [&](std::size_t r) {
      meshes[r] = form_gloo_mesh({.rank = r, .size = 3, .address = address, .limit = 10s}, store);
    });
    REQUIRE(contract::first_error(errors) == "");
    const Files after;
    CHECK(after.sockets >= before.sockets + 6);  // two ends of three connections
    CHECK(after.inherited == before.inherited);
    CHECK((fcntl(mine, F_GETFD) & FD_CLOEXEC) == 0);
    CHECK((fcntl(my_epoll, F_GETFD) & FD_CLOEXEC) == 0);
    check_works(meshes);
  }
  close(mine);
  close(my_epoll);
}

TEST_CASE("the threads of a mesh and Gloo's block all signals, also while a mesh ends") {
  const auto takers = testing::threads_that_take(SIGINT);
  gloo_test::Meshes all(2);
  CHECK(testing::threads_that_take(SIGINT) == takers);
  all.meshes[0]->abort();
  CHECK(testing::threads_that_take(SIGINT) == takers);
}

TEST_CASE("a mesh for which no thread can be started is refused with a message") {
  const auto form = [](GlooStore& store) {
    const auto errors = in_threads(2, [&](std::size_t r) {
      GlooMesh({.rank = r, .size = 2, .run = "a test", .limit = 2s}, store);
    });
    return text_of(errors[0]);
  };
  struct Store : MemoryStore {  // once both have published an address, both have Gloo's threads
    std::optional<std::string> get(const std::string& key, Deadline deadline) override {
      auto address = MemoryStore::get(key, deadline);
      const std::scoped_lock lock(mutex);
      if (!none) none.emplace();
      return address;
    }
    std::mutex mutex;
    std::optional<testing::NoThreads> none;
  };
  {
    Store store;
    CHECK(form(store).find("gloo mesh: no thread can be started (") == 0);
  }
  // Gloo's own thread.
  std::exception_ptr error;
  {
    MemoryStore store;
    const testing::NoThreads none;
    try {
      GlooMesh({.rank = 0, .size = 2, .limit = 100ms}, store);
    } catch (...) {
      error = std::current_exception();
    }
  }
  CHECK(text_of(error).find("gloo mesh: no thread can be started (") == 0);
}
