/// \file
/// A relay between the workers and the chief that splits or delays bytes, resets connections, or
/// goes silent.
#include <fcntl.h>
#include <poll.h>

#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "unit/cluster/rendezvous/support.hpp"

using namespace rendezvous_test;
using namespace std::chrono_literals;

namespace {

/// The reset of the first connection, as an offset in bytes from the end of a frame.
struct Cut {
  bool from_worker = true;
  std::size_t frame = 0;
  int offset = 0;
};

class Relay {
 public:
  struct Faults {
    std::size_t chunk = 4096;  ///< bytes per write
    milliseconds delay{0};     ///< in each direction, until `fast` is set
    std::atomic<bool> fast{false};
    bool records = false;
    std::atomic<bool> silent{false};  ///< keeps the connections open but forwards nothing
    /// The number of bytes from the worker after which the connection is reset.
    std::atomic<std::size_t> reset_after{~std::size_t{0}};
    std::optional<Cut> cut{};
    std::atomic<Clock::rep> cut_at{0};  ///< the time of the reset
  };

  Relay(std::uint16_t port, std::uint16_t chief, Faults& faults)
      : chief_(chief),
        faults_(faults),
        listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = loopback(port);
    const int yes = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    REQUIRE(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_, 16) == 0);
    thread_ = std::thread([this] { run(); });
  }
  /// All bytes of the first connection so far, from the worker and from the chief.
  std::pair<std::string, std::string> recorded() {
    const std::scoped_lock lock(mutex_);
    return recorded_;
  }
  ~Relay() {
    stop_ = true;
    thread_.join();
    for (const Pair& pair : pairs_) close(pair);
    ::close(listener_);
  }

 private:
  struct Pair {
    int worker, chief;
    std::size_t passed = 0;
    bool open = true;
    std::string stream{};  ///< in the direction of the cut
  };

  struct Delayed {
    Clock::time_point at;
    Pair* pair;
    int to;
    std::vector<char> bytes;
  };

  static void close(const Pair& pair) {
    ::close(pair.worker);
    ::close(pair.chief);
  }

  void run() {
    while (!stop_) {
      std::vector<pollfd> ready{{listener_, POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        const short events = faults_.silent || !pair.open ? short{0} : short{POLLIN};
        ready.push_back({pair.open ? pair.worker : -1, events, 0});
        ready.push_back({pair.open ? pair.chief : -1, events, 0});
      }
      ::poll(ready.data(), ready.size(), 20);
      while (!delayed_.empty() && (faults_.fast || delayed_.front().at <= Clock::now())) {
        const Delayed& first = delayed_.front();
        if (!write(first.to, first.bytes)) end(*first.pair, false);
        delayed_.pop_front();
      }
      std::size_t i = 1;
      for (Pair& pair : pairs_) {
        if (pair.open && (ready[i].revents & POLLIN)) pass(pair, pair.worker, pair.chief);
        if (pair.open && (ready[i + 1].revents & POLLIN)) pass(pair, pair.chief, pair.worker);
        i += 2;
      }
      if (ready[0].revents & POLLIN) accept();
    }
  }

  void accept() {
    const int worker = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const int chief = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(chief_);
    const bool up =
        ::connect(chief, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    pairs_.push_back({worker, chief});
    if (!up) return end(pairs_.back(), false);
    if (!first_) first_ = &pairs_.back();
  }

  void pass(Pair& pair, int from, int to) {
    std::vector<char> bytes(faults_.chunk);
    const auto n = ::recv(from, bytes.data(), bytes.size(), 0);
    if (n <= 0) return end(pair, false);
    if (faults_.records && &pair == first_) {
      const std::scoped_lock lock(mutex_);
      (from == pair.worker ? recorded_.first : recorded_.second)
          .append(bytes.data(), static_cast<std::size_t>(n));
    }
    if (from == pair.worker) pair.passed += static_cast<std::size_t>(n);
    if (pair.passed >= faults_.reset_after) return end(pair, true);
    if (faults_.cut && &pair == first_ && faults_.cut->from_worker == (from == pair.worker)) {
      const std::size_t before = pair.stream.size();
      pair.stream.append(bytes.data(), static_cast<std::size_t>(n));
      const auto end_at = place_of(*faults_.cut, pair.stream);
      if (end_at && *end_at <= pair.stream.size()) {
        const std::size_t rest = *end_at - std::min(before, *end_at);
        (void)!::send(to, bytes.data(), rest, MSG_NOSIGNAL);
        faults_.cut_at = Clock::now().time_since_epoch().count();
        return end(pair, true);
      }
    }
    bytes.resize(static_cast<std::size_t>(n));
    if (faults_.delay > 0ms && !faults_.fast)
      return delayed_.push_back({Clock::now() + faults_.delay, &pair, to, std::move(bytes)});
    if (!write(to, bytes)) end(pair, false);
  }

  static bool write(int to, const std::vector<char>& bytes) {
    return ::send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }

  /// Nullopt until the length of the frame has arrived.
  static std::optional<std::size_t> place_of(const Cut& cut, std::string_view stream) {
    std::size_t at = cut.from_worker ? lockstep::detail::greeting.size() : 0;
    for (std::size_t frame = 0; frame <= cut.frame; ++frame) {
      if (stream.size() < at + 4) return std::nullopt;
      std::uint32_t length = 0;
      for (std::size_t i = 4; i-- > 0;)
        length = length << 8 | static_cast<unsigned char>(stream[at + i]);
      at += 4 + length;
    }
    return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(at) + cut.offset);
  }

  void end(Pair& pair, bool reset) {
    const linger now{1, 0};
    for (const int s : {pair.worker, pair.chief}) {
      if (reset) ::setsockopt(s, SOL_SOCKET, SO_LINGER, &now, sizeof now);
      // The descriptors stay open until the end, so that no later connection reuses them.
      const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      ::dup3(nothing, s, O_CLOEXEC);
      ::close(nothing);
    }
    pair.open = false;
  }

  std::uint16_t chief_;
  Faults& faults_;
  int listener_;
  std::atomic<bool> stop_{false};
  std::list<Pair> pairs_;
  std::deque<Delayed> delayed_;
  std::mutex mutex_;
  std::pair<std::string, std::string> recorded_;
  Pair* first_ = nullptr;  ///< the first connection that reached the chief
  std::thread thread_;
};

/// A chief and two workers that reach it through a relay.
struct Job {
  Lines lines;
  std::uint16_t port = free_port(), relayed = free_port();
  Relay::Faults faults;
  Relay relay;
  std::vector<Member> members;

  explicit Job(bool secured, std::size_t chunk = 4096, milliseconds delay = 0ms)
      : faults{chunk, delay}, relay(relayed, port, faults) {
    std::vector<std::future<Member>> futures;
    for (std::size_t r = 0; r < 3; ++r) {
      auto o = options(r, 3, r == 0 ? port : relayed, lines);
      o.cluster.job_id = "job";
      // All ranks describe the same cluster, although workers reach the chief through the relay.
      o.cluster.cluster = lockstep::ClusterSpec()
                              .worker(fmt::format("127.0.0.1:{}", port))
                              .worker("127.0.0.2:1")
                              .worker("127.0.0.3:1");
      if (secured) o.secret = lockstep::Secret("0123456789abcdef");
      futures.push_back(std::async(std::launch::async, [o] { return join(o); }));
    }
    for (auto& future : futures) members.push_back(future.get());
  }
  ~Job() { leave_all(members); }
};

}  // namespace

TEST_CASE("bytes that arrive one at a time give the same result") {
  const Deadline deadline(60s);
  for (const bool secured : {false, true}) {
    Job job(secured, 1);
    in_each(job.members, [](Rendezvous& member) {
      const std::string mine = "value of " + std::to_string(member.rank());
      member.set(mine, std::string(500, static_cast<char>('a' + member.rank())));
      member.barrier("set", 20s);
      for (std::size_t r = 0; r < 3; ++r)
        check_in_thread(member.get("value of " + std::to_string(r), 20s) ==
                        std::string(500, static_cast<char>('a' + r)));
    });
    CHECK(job.members[2]->address_of(1) == "127.0.0.2:1");
    for (const Member& member : job.members) CHECK_FALSE(member->verdict());
  }
}

TEST_CASE("a join over a slow network is not given up while its handshake goes on") {
  const Deadline deadline(60s);
  const auto began = Clock::now();
  Job job(true, 4096, 600ms);  // four times until a worker is admitted
  CHECK(Clock::now() - began > 2s);
  CHECK(job.lines.text().find("closed its connection") == std::string::npos);
  for (const Member& member : job.members) CHECK_FALSE(member->verdict());
  job.faults.fast = true;
}

TEST_CASE("a handshake that was recorded admits nobody when it is sent again, to either end") {
  const Deadline deadline(60s);
  Lines lines;
  const std::uint16_t port = free_port(), relayed = free_port();
  Relay::Faults faults{.records = true};
  Relay relay(relayed, port, faults);
  const auto start = [&](std::size_t rank) {
    auto o = options(rank, 3, rank == 1 ? relayed : port, lines);
    o.cluster.job_id = "job";
    o.cluster.cluster = lockstep::ClusterSpec()
                            .worker(fmt::format("127.0.0.1:{}", port))
                            .worker("127.0.0.2:1")
                            .worker("127.0.0.3:1");
    o.secret = lockstep::Secret("0123456789abcdef");
    return std::async(std::launch::async, [o] { return join(o); });
  };
  auto chief = start(0), one = start(1);  // rank 2 is missing
  std::pair<std::string, std::string> bytes;
  for (const auto end = Clock::now() + 10s;
       (bytes = relay.recorded(), bytes.second.size() < 300) && Clock::now() < end;)
    std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(300ms);  // the worker is admitted, and waits
  bytes = relay.recorded();
  REQUIRE(bytes.first.size() > 300);
  for (const std::string& sent : {bytes.first, bytes.second}) {
    Stranger stranger(port);
    CHECK(stranger.send(sent));
    const std::string answer = stranger.read_all();
    CHECK(answer.size() < bytes.second.size());  // not what a member hears
    CHECK(stranger.was_closed());
  }
  auto two = start(2);
  std::vector<Member> members;
  for (auto* future : {&chief, &one, &two}) members.push_back(future->get());
  for (std::size_t r = 0; r < 3; ++r) CHECK(members[r]->rank() == r);
  for (const Member& member : members) CHECK_FALSE(member->verdict());
  leave_all(members);
}

TEST_CASE("a connection reset inside a frame is a loss that all ranks name") {
  const Deadline deadline(60s);
  // The bytes of the worker's messages so far; then one more message, cut at each offset.
  for (std::size_t cut = 1; cut <= 8; ++cut) {
    CAPTURE(cut);
    Job job(false);
    const auto began = Clock::now();
    job.faults.reset_after = 400 + cut;
    std::vector<std::size_t> named(3, 9);
    in_each(job.members, [&](Rendezvous& member) {
      try {
        for (int i = 0; i < 100; ++i) member.set("x", "y", 5s);
        member.barrier("all", 5s);
      } catch (const PeerLost& loss) {
        named[member.rank()] = loss.rank();
        check_in_thread((loss.how() == "closed its connection" ||
                         loss.how() == "closed its connection (reset)"));
      }
    });
    CHECK(Clock::now() - began < 3s);
    // Both workers' connections are reset, so each can only name the chief.
    CHECK((named[0] == 1 || named[0] == 2));
    for (const std::size_t r : {1u, 2u}) CHECK((named[r] == 0 || named[r] == named[0]));
  }
}

TEST_CASE("a reset within a byte of the end of any frame is a loss that both sides name") {
  const Deadline deadline(120s);
  std::size_t losses = 0;
  milliseconds slowest{0};
  for (const bool from_worker : {true, false})
    for (std::size_t frame = 0; frame < 12; ++frame)
      for (const int offset : {-1, 0, 1}) {
        CAPTURE(from_worker, frame, offset);
        Lines lines;
        const std::uint16_t port = free_port(), relayed = free_port();
        Relay::Faults faults;
        faults.cut = Cut{from_worker, frame, offset};
        Relay relay(relayed, port, faults);
        std::vector<std::optional<std::size_t>> named(2);
        std::vector<Clock::time_point> ended(2);
        std::array<std::atomic<bool>, 2> has_begun{};
        std::vector<std::thread> ranks;
        for (std::size_t rank = 0; rank < 2; ++rank)
          ranks.emplace_back([&, rank] {
            auto o = options(rank, 2, rank == 0 ? port : relayed, lines, 2s);
            o.cluster.job_id = "job";
            o.cluster.cluster = lockstep::ClusterSpec()
                                    .worker(fmt::format("127.0.0.1:{}", port))
                                    .worker("127.0.0.2:1");
            try {
              const Member member = join(o);
              has_begun[rank] = true;
              for (int i = 0; i < 30; ++i) member->barrier("work " + std::to_string(i), 5s);
            } catch (const PeerLost& loss) {
              named[rank] = loss.rank();
              ended[rank] = Clock::now();
            }
          });
        for (std::thread& rank : ranks) rank.join();
        // Before the start, the worker reconnects.
        const bool is_lost = named[0] || named[1];
        CHECK((is_lost || frame < 4));
        if (!is_lost) continue;
        CHECK(named[0] == 1u);
        CHECK(named[1] == 0u);
        const Clock::time_point cut{Clock::duration(faults.cut_at.load())};
        // A worker that has not received Start tries to reach the chief until its
        // deadline.
        for (std::size_t rank = 0; rank < 2; ++rank)
          if (has_begun[rank])
            slowest =
                std::max(slowest, std::chrono::duration_cast<milliseconds>(ended[rank] - cut));
        losses += has_begun[1];
      }
  CHECK(slowest < 3s);  // three times the guaranteed limit
  CHECK(losses >= 48);
  std::printf("reset at the end of a frame: %zu losses, at most %lld ms\n", losses,
              static_cast<long long>(slowest.count()));
}

TEST_CASE("a network that silently drops everything is noticed on both sides") {
  const Deadline deadline(60s);
  Job job(true);
  const auto began = Clock::now();
  job.faults.silent = true;
  for (std::size_t r = 0; r < 3; ++r) {
    const auto loss = job.members[r]->verdict(9s);
    REQUIRE(loss);
    CHECK(loss->how() == "was silent for 2 s");
    CHECK((r == 0 ? loss->rank() != 0 : loss->rank() == 0));
  }
  CHECK(Clock::now() - began > 1700ms);
}

TEST_CASE("silence that ends within a second does no harm") {
  const Deadline deadline(60s);
  for (int attempt = 0; attempt < 5; ++attempt) {
    Job job(true);
    Clock::duration longest{};
    for (int round = 0; round < 3; ++round) {
      const auto began = Clock::now();
      job.faults.silent = true;
      std::this_thread::sleep_for(1s);
      job.faults.silent = false;
      longest = std::max(longest, Clock::now() - began);
      std::this_thread::sleep_for(400ms);
    }
    if (longest > 1300ms) continue;  // this test itself woke up late
    in_each(job.members, [](Rendezvous& member) { member.barrier("after", 5s); });
    for (const Member& member : job.members) CHECK_FALSE(member->verdict());
    return;
  }
  SKIP("the machine is too busy to end a silence after a second");
}

TEST_CASE("many computing threads do not make a rank appear silent") {
  const Deadline deadline(60s);
  Lines lines;
  auto members = join_all(4, lines);
  std::atomic<bool> stop{false};
  std::vector<std::thread> load;
  for (int i = 0; i < 32; ++i)
    load.emplace_back([&stop] {
      volatile double x = 1;
      while (!stop) x = x * 1.0000001;
    });
  std::this_thread::sleep_for(6s);
  for (const Member& member : members) CHECK_FALSE(member->verdict());
  stop = true;
  for (std::thread& thread : load) thread.join();
  leave_all(members);
}
