#include "lockstep/cluster/rendezvous/rendezvous.hpp"

#include <sys/resource.h>

#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "lockstep/cluster/network/listener.hpp"
#include "lockstep/cluster/rendezvous/chief.hpp"
#include "lockstep/cluster/rendezvous/signature.hpp"
#include "lockstep/cluster/rendezvous/worker.hpp"
#include "support/no_threads.hpp"
#include "unit/cluster/rendezvous/support.hpp"

using namespace rendezvous_test;
using namespace std::chrono_literals;

// Handlers hold their addresses.
template <class T>
constexpr bool stays = !std::is_copy_constructible_v<T> && !std::is_move_constructible_v<T>;
static_assert(stays<lockstep::detail::Chief> && stays<lockstep::detail::Worker> &&
              stays<lockstep::detail::Listener> && stays<lockstep::Rendezvous>);

TEST_CASE("a job of any size joins, and all ranks have the same view") {
  const Deadline deadline(60s);
  for (const std::size_t size : {1u, 2u, 3u, 8u}) {
    CAPTURE(size);
    Lines lines;
    auto members = join_all(size, lines);
    std::set<std::array<std::uint8_t, 16>> runs;
    std::set<std::array<std::uint8_t, 32>> keys;
    for (std::size_t r = 0; r < size; ++r) {
      CHECK(members[r]->rank() == r);
      CHECK(members[r]->size() == size);
      CHECK(members[r]->local_address() == "127.0.0.1");
      CHECK(members[r]->address_of(size - 1) == members[0]->address_of(size - 1));
      CHECK_FALSE(members[r]->verdict());
      runs.insert(members[r]->run_id());
      keys.insert(members[r]->key());
    }
    CHECK(runs.size() == 1);
    CHECK(keys.size() == 1);
    CHECK(*keys.begin() != std::array<std::uint8_t, 32>{});
    leave_all(members);
    CHECK(lines.text().empty());
  }
}

TEST_CASE("the order in which the processes start does not matter") {
  const Deadline deadline(60s);
  std::vector<std::size_t> order{0, 1, 2, 3};
  do {
    Lines lines;
    const auto port = free_port();
    std::vector<std::future<Member>> futures;
    for (const std::size_t r : order) {
      futures.push_back(
          std::async(std::launch::async, [&, r] { return join(options(r, 4, port, lines)); }));
      std::this_thread::sleep_for(20ms);
    }
    std::vector<Member> members;
    for (auto& future : futures) members.push_back(future.get());
    CHECK(members[0]->size() == 4);
    leave_all(members);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("workers without a rank get the free ranks in the order of arrival") {
  const Deadline deadline(60s);
  Lines lines;
  const auto port = free_port();
  const auto start = [&](std::optional<std::size_t> rank) {
    auto o = options(0, 4, port, lines);
    o.cluster.rank = rank;
    auto future = std::async(std::launch::async, [o] { return join(o); });
    std::this_thread::sleep_for(400ms);
    return future;
  };
  auto chief = start(0), first = start(std::nullopt), second = start(std::nullopt),
       fixed = start(1);
  std::vector<Member> members;
  for (auto* future : {&chief, &fixed, &first, &second}) members.push_back(future->get());
  for (std::size_t r = 0; r < 4; ++r) CHECK(members[r]->rank() == r);
  leave_all(members);
}

TEST_CASE("at the deadline all waiting ranks name the missing ones") {
  const Deadline deadline(60s);
  Lines lines;
  const auto port = free_port();
  std::vector<std::future<std::string>> futures;
  const auto began = Clock::now();
  for (const std::size_t r : {0u, 2u})
    futures.push_back(std::async(std::launch::async, [&, r] {
      return sentence<PeerLost>([&] { join(options(r, 4, port, lines, 1000ms)); });
    }));
  for (auto& future : futures) {
    const std::string message = future.get();
    CAPTURE(message);
    CHECK(message.find("rank 1 did not join within 1 s") == 0);
    CHECK(message.find("; missing: rank 1, rank 3; ") != std::string::npos);
    CHECK(message.find("raise LOCKSTEP_RENDEZVOUS_TIMEOUT") != std::string::npos);
  }
  CHECK(Clock::now() - began < 3s);
}

TEST_CASE("a worker that gives up before the chief is not reported as missing") {
  const Deadline deadline(60s);
  struct Limits {
    milliseconds chief, worker;
    bool worker_goes;  // before the chief's verdict, despite the grace period of a second
  };
  const Limits all[] = {{1500ms, 1500ms, false}, {1500ms, 1200ms, false}, {3000ms, 500ms, true}};
  Lines lines;
  std::vector<std::future<std::string>> chiefs, workers;
  for (const Limits& limits : all) {  // at the same time
    const auto port = free_port();
    const auto join_as = [&lines, port](std::size_t rank, milliseconds limit) {
      return std::async(std::launch::async, [&lines, port, rank, limit] {
        return sentence<PeerLost>([&] { join(options(rank, 3, port, lines, limit)); });
      });
    };
    chiefs.push_back(join_as(0, limits.chief));
    workers.push_back(join_as(1, limits.worker));
  }
  for (std::size_t i = 0; i < std::size(all); ++i) {
    CAPTURE(all[i].worker.count());
    const std::string message = chiefs[i].get();
    CAPTURE(message);
    CHECK(message.find("rank 2 did not join within ") == 0);
    CHECK(workers[i].get().find("rank 2 did not join within ") == 0);
    CHECK((message.find("rank 1") != std::string::npos) == all[i].worker_goes);
  }
}

TEST_CASE("a chief without free file descriptors names itself and the limit") {
#ifdef __SANITIZE_ADDRESS__
  SKIP("the sanitizer needs descriptors to check a pointer");
#endif
  const Deadline deadline(60s);
  Lines lines;
  const auto port = free_port();
  auto chief = std::async(std::launch::async, [&] {
    return sentence<PeerLost>([&] { join(options(0, 3, port, lines, 2000ms)); });
  });
  auto worker = std::async(std::launch::async, [&] {
    return sentence<PeerLost>([&] { join(options(1, 3, port, lines, 2000ms)); });
  });
  std::this_thread::sleep_for(700ms);
  const int late = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);  // while descriptors are left
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(before.rlim_cur == before.rlim_max);  // raised by the join
  // Below the number of open files, so that opening another one fails.
  rlimit none = before;
  none.rlim_cur = 3;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const sockaddr_in address = loopback(port);
  const int came = ::connect(late, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const std::string message = chief.get();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CAPTURE(message);
  ::close(late);
  REQUIRE(came == 0);
  CHECK(message.find("cannot accept more connections: the process may open 3 files; "
                     "raise the limit (ulimit -n)") != std::string::npos);
  CHECK(message.find("rank 0 ") == 0);
  CHECK(worker.get() == message);
  CHECK(lines.contain("a connection cannot be accepted (Too many open files)"));
}

TEST_CASE("a worker whose chief never starts reports why") {
  const Deadline deadline(60s);
  Lines lines;
  const auto port = free_port();
  const std::string message = sentence<PeerLost>([&] { join(options(1, 2, port, lines, 800ms)); });
  CHECK(message ==
        fmt::format(
            "rank 0 (127.0.0.1:{}) could not be joined within 0.8 s: connection refused; start it, "
            "or raise LOCKSTEP_RENDEZVOUS_TIMEOUT",
            port));
}

TEST_CASE("every five seconds a line names the missing ranks") {
  const Deadline deadline(60s);
  Lines lines;
  const auto port = free_port();
  sentence<PeerLost>([&] { join(options(0, 2, port, lines, 5600ms)); });
  CHECK(lines.contain("waiting for rank 1: 5"));
}

TEST_CASE("a worker that disconnects before the start can reconnect") {
  const Deadline deadline(60s);
  Lines lines;
  const auto port = free_port();
  auto chief = std::async(std::launch::async, [&] { return join(options(0, 3, port, lines)); });
  CHECK(sentence<PeerLost>([&] { join(options(1, 3, port, lines, 700ms)); }) != "no error");
  auto again = std::async(std::launch::async, [&] { return join(options(1, 3, port, lines)); });
  auto other = std::async(std::launch::async, [&] { return join(options(2, 3, port, lines)); });
  std::vector<Member> members;
  for (auto* future : {&chief, &again, &other}) members.push_back(future->get());
  CHECK(lines.contain("before the start; it may reconnect"));
  leave_all(members);
}

TEST_CASE("the store holds values, counters and barriers") {
  const Deadline deadline(60s);
  Lines lines;
  auto members = join_all(4, lines);
  std::atomic<int> here{0};
  std::atomic<std::uint64_t> most{0};
  in_each(members, [&](Rendezvous& job) {
    const std::string bytes("\0\x01\xFF", 3), mine = "value of " + std::to_string(job.rank());
    if (job.rank() == 2) {
      std::this_thread::sleep_for(50ms);
      job.set("bytes", bytes);
    }
    check_in_thread(job.get("bytes", 5s) == bytes);
    job.set(mine, std::string(60'000, 'x'));
    for (std::size_t r = 0; r < job.size(); ++r)
      check_in_thread(job.get("value of " + std::to_string(r), 5s).size() == 60'000);
    for (int round = 1; round <= 20; ++round) {
      const auto sum = job.add("counter", 2);
      for (auto seen = most.load(); sum > seen && !most.compare_exchange_weak(seen, sum);) {
      }
      ++here;
      job.barrier("round", 5s);
      check_in_thread(here.load() >= 4 * round);
      check_in_thread(most.load() == static_cast<std::uint64_t>(8 * round));
      job.barrier("round", 5s);
    }
  });
  leave_all(members);
  CHECK(lines.text().empty());
}

TEST_CASE("a wait that cannot complete ends at its deadline and names what is missing") {
  const Deadline deadline(60s);
  Lines lines;
  auto members = join_all(3, lines);
  for (const std::size_t r : {0u, 1u}) {
    const auto began = Clock::now();
    const std::string get =
        sentence<lockstep::CollectiveTimeout>([&] { members[r]->get("x", 200ms); });
    CHECK(get == "get \"x\": no rank set it before the deadline");
    const std::string barrier =
        sentence<lockstep::CollectiveTimeout>([&] { members[r]->barrier("b", 200ms); });
    CHECK(barrier.find(
              "barrier \"b\": not all ranks arrived before the deadline; missing: rank ") == 0);
    CHECK(barrier.find(r == 0 ? "rank 1 (" : "rank 0 (") != std::string::npos);
    CHECK(barrier.find("rank 2 (") != std::string::npos);
    CHECK(Clock::now() - began < 3s);
  }
  CHECK(sentence<lockstep::UsageError>([&] { members[1]->set("", "x"); }).find("a name has 0") !=
        std::string::npos);
  CHECK(sentence<lockstep::UsageError>([&] {
          members[1]->set("x", std::string(70'000, 'x'));
        }).find("a value has 70000 bytes") != std::string::npos);
  members[2]->set("text", "seven");
  CHECK(sentence<lockstep::UsageError>([&] {
          members[1]->add("text", 1);
        }).find("is not a number") != std::string::npos);
  leave_all(members);
}

TEST_CASE("ranks that agree continue, and a difference stops all with one message") {
  const Deadline deadline(60s);
  Lines lines;
  auto members = join_all(4, lines);
  std::mutex mutex;
  std::set<std::string> sentences;
  in_each(members, [&](Rendezvous& job) {
    job.agree("model", {{"layers", "Dense(10)"}, {"loss", "mse"}}, 5s);
    const std::string rate = job.rank() == 2 ? "0.01" : "0.001";
    const auto message = sentence<lockstep::UsageError>(
        [&] { job.agree("model", {{"layers", "Dense(10)"}, {"learning rate", rate}}, 5s); });
    job.barrier("all have the error", 5s);  // a difference ends a part; it can be reused now
    job.agree("model", {{"layers", "Dense(10)"}}, 5s);
    const std::scoped_lock lock(mutex);
    sentences.insert(message);
  });
  REQUIRE(sentences.size() == 1);
  const std::string& message = *sentences.begin();
  CAPTURE(message);
  CHECK(message.find("model: rank ") == 0);
  CHECK(message.find("rank 2 (") != std::string::npos);
  CHECK(message.find("\"learning rate\"") != std::string::npos);
  CHECK(message.find("\"0.01\"") != std::string::npos);
  CHECK(message.find("\"0.001\"") != std::string::npos);
  leave_all(members);
}

TEST_CASE("a signature can exceed a frame, and is compared to its last character") {
  const Deadline deadline(60s);
  Lines lines;
  auto members = join_all(2, lines);
  for (const std::size_t size : {20'000u, 70'000u, 200'000u}) {
    CAPTURE(size);
    std::string layers;
    while (layers.size() < size)
      layers += "dense_" + std::to_string(layers.size()) + " (units 64) to (64); ";
    std::mutex mutex;
    std::set<std::string> sentences, shorter;
    in_each(members, [&](Rendezvous& job) {
      job.agree("model", {{"layers", layers}, {"loss", "mse"}}, 5s);
      const std::string rate = job.rank() == 0 ? "0.2" : "0.5";
      const auto message = sentence<lockstep::UsageError>(
          [&] { job.agree("model", {{"layers", layers + "dropout (rate " + rate + ")"}}, 5s); });
      job.barrier("all have the error", 5s);
      const auto ends = sentence<lockstep::UsageError>([&] {
        job.agree("model", {{"layers", job.rank() == 0 ? layers.substr(0, 500) : layers}}, 5s);
      });
      job.barrier("all have the error", 5s);
      job.agree("model", {{"layers", layers}}, 5s);
      const std::scoped_lock lock(mutex);
      sentences.insert(message);
      shorter.insert(ends);
    });
    REQUIRE(sentences.size() == 1);
    CAPTURE(*sentences.begin());
    CHECK(sentences.begin()->find("model: rank 0 (127.0.0.1:") == 0);
    CHECK(sentences.begin()->find(
              "differ in \"layers\": ...\"dropout (rate 0.2)\" and ...\"dropout (rate 0.5)\"") !=
          std::string::npos);
    CHECK(sentences.begin()->size() < 400);
    CHECK(shorter.size() == 1);
  }
  leave_all(members);
}

TEST_CASE("a join signature that does not fit in the first frame is refused before the join") {
  Lines lines;
  std::vector<lockstep::SignatureField> fields;
  for (int i = 0; i < 6; ++i) fields.emplace_back("field", std::string(600, 'x'));
  auto o = options(0, 2, free_port(), lines);
  o.signature = fields;
  CHECK(sentence<lockstep::UsageError>([&] { join(o); }).find("join signature") !=
        std::string::npos);
  // Every accepted signature fits, even with the longest id and description.
  using namespace lockstep::detail;
  Hello hello{std::string(max_name_bytes, 'j'), true, 1, {}};
  hello.fields = {{"protocol", std::string(protocol)},
                  {"lockstep's version", "1000.1000.1000"},
                  {"world size", "4294967295"},
                  {"cluster", std::string(max_join_value_bytes, 'c')}};
  std::vector<lockstep::SignatureField> own;
  for (bool fits = true; fits;) {
    own.emplace_back("n", "");
    try {
      check_join_fields(own);
      hello.fields.push_back(own.back());
    } catch (const lockstep::UsageError&) {
      fits = false;
    }
  }
  CHECK(frame(hello).size() <= max_first_frame_bytes);
}

TEST_CASE("a process with another description ends itself, not the job that forms") {
  const Deadline deadline(60s);
  for (const std::string id : {"", "this one"}) {
    CAPTURE(id);
    Lines lines;
    const auto port = free_port();
    const auto make = [&](std::size_t rank, std::size_t size, const char* build = "float") {
      auto o = options(rank, size, port, lines);
      o.cluster.job_id = id;
      o.signature = {{"build", build}};
      return o;
    };
    const auto refusal = [](const RendezvousOptions& o) {
      return sentence<lockstep::ClusterError>([&] { join(o); });
    };
    auto chief = std::async(std::launch::async, [&] { return join(make(0, 3)); });
    auto one = std::async(std::launch::async, [&] { return join(make(1, 3)); });
    std::this_thread::sleep_for(300ms);
    const std::string size = refusal(make(2, 4)), build = refusal(make(2, 3, "double"));
    CAPTURE(size, build);
    CHECK(size.find("join: rank 0 (127.0.0.1:") == 0);
    CHECK(size.find("rank 2 (127.0.0.1) differ in \"world size\": \"3\" and \"4\"") !=
          std::string::npos);
    CHECK(build.find("differ in \"build\": \"float\" and \"double\"") != std::string::npos);
    CHECK(lines.contain("\"world size\": \"3\" and \"4\""));  // the job logs it too
    std::vector<Member> members;
    members.push_back(join(make(2, 3)));
    members.push_back(chief.get());
    members.push_back(one.get());
    in_each(members, [](Rendezvous& job) { job.barrier("work", 5s); });
    leave_all(members);
  }
}

TEST_CASE("at the deadline all waiting ranks learn why a process was refused") {
  const Deadline deadline(60s);
  struct Row {
    std::optional<std::size_t> rank;  // of the refused process
    std::size_t chiefs_size;
    const char* names;
  };
  // The only missing rank; one of two; a rank that the chief's job does not have; an automatic one.
  const Row rows[] = {
      {2, 3, "rank 2 did not join within 1.5 s: a process from 127.0.0.1 was "},
      {2, 4, "rank 3 did not join within 1.5 s; missing: rank 3, rank 2 (a process "},
      {4, 3, "rank 2 did not join within 1.5 s; a process from 127.0.0.1 was "},
      {{}, 3, "rank 2 did not join within 1.5 s; a process from 127.0.0.1 was "}};
  for (const Row& row : rows) {
    Lines lines;
    const auto port = free_port();
    const auto member = [&](std::size_t rank) {
      return std::async(std::launch::async, [&, rank] {
        return sentence<PeerLost>(
            [&] { join(options(rank, row.chiefs_size, port, lines, 1500ms)); });
      });
    };
    auto chief = member(0), one = member(1);
    auto other = options(0, 5, port, lines);
    other.cluster.rank = row.rank;
    CHECK(sentence<lockstep::ClusterError>([&] { join(other); }) != "no error");
    const std::string message = chief.get();
    CAPTURE(message);
    CHECK(message.find(row.names) == 0);
    CHECK(message.find("refused: join: rank 0 (127.0.0.1:") != std::string::npos);
    CHECK(message.find(fmt::format("\"world size\": \"{}\" and \"5\"", row.chiefs_size)) !=
          std::string::npos);
    CHECK(one.get() == message);
  }
}

TEST_CASE("a rendezvous without a free thread throws a clear message") {
  Lines lines;
  for (const bool logs : {true, false}) {
    auto o = options(0, 2, free_port(), lines, 100ms);
    if (!logs) o.log = {};
    std::string what;
    {
      const testing::NoThreads none;
      what = sentence<lockstep::Error>([&] { join(o); });
    }
    CHECK(what.find("rendezvous: no thread can be started (") == 0);
    CHECK(what.find("ulimit -u") != std::string::npos);
  }
}

TEST_CASE("threads of a rendezvous block signals except for their own faults") {
  Lines lines;
  std::promise<sigset_t> of_log;
  auto o = options(0, 2, free_port(), lines, 300ms);
  o.log = [&, done = false](lockstep::LogLevel, std::string_view) mutable {
    sigset_t mask;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    if (!std::exchange(done, true)) of_log.set_value(mask);
  };
  auto members = join_all(2, lines, [&](RendezvousOptions& each) {
    if (each.cluster.rank == std::size_t{0}) each.log = o.log;
  });
  std::promise<sigset_t> of_control;
  members[0]->on_exchange([&, done = false]() mutable {
    sigset_t mask;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    if (!std::exchange(done, true)) of_control.set_value(mask);
    return lockstep::ExchangeProgress{};
  });
  members[0]->log(lockstep::LogLevel::info, "a line");
  for (auto* thread : {&of_log, &of_control}) {
    const sigset_t mask = thread->get_future().get();
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) CHECK(sigismember(&mask, fault) == 0);
    for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD})
      CHECK(sigismember(&mask, number) == 1);
  }
  members[0]->on_exchange({});
  leave_all(members);
}
