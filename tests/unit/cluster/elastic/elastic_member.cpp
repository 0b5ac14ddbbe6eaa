#include "lockstep/cluster/elastic/elastic_member.hpp"

#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "support/child.hpp"
#include "support/mount_namespace.hpp"
#include "unit/cluster/elastic/support.hpp"

using namespace elastic_test;

namespace {

milliseconds since(Clock::time_point began) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - began);
}

/// Forms the generation: each member joins its rendezvous.
void form(const std::vector<Generation>& all) {
  std::vector<std::future<std::size_t>> joined;
  for (const Generation& one : all)
    joined.push_back(std::async(std::launch::async, [&one] {
      lockstep::Rendezvous job({.cluster = one.cluster, .secret = {}, .signature = {}});
      job.barrier("there", seconds(5));
      return job.rank();
    }));
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(joined[i].get() == *all[i].cluster.rank);
}

}  // namespace

TEST_CASE("elastic members form generation 0, and each next one without the lost") {
  Job job(4);
  const auto first = job.begin();
  check_same(first, 0, 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(first[i].cluster.rank == i);
  CHECK(first[0].is_new == std::vector<bool>(4, true));
  form(first);

  job.kill(2);
  const auto began = Clock::now();
  const auto second = job.next_of({0, 1, 3});
  CHECK(since(began) < milliseconds(900));  // 15 ms on a quiet machine
  check_same(second, 1, 3);
  CHECK(second[0].is_new == std::vector<bool>(3, false));
  CHECK(second[0].former == std::vector<std::size_t>{0, 1, 3});
  CHECK(second[0].cluster.job_id != first[0].cluster.job_id);
  form(second);

  // Two at once, also the chief.
  job.kill(0);
  job.kill(3);
  const auto third = job.next_of({1});
  check_same(third, 2, 1);
  CHECK(third[0].former == std::vector<std::size_t>{1});
  CHECK(third[0].cluster.is_chief());
}

TEST_CASE("an elastic job admits a newcomer at the next generation") {
  Job job(3);
  job.begin();
  job.kill(1);
  check_same(job.next_of({0, 2}), 1, 2);
  CHECK_FALSE(job[0].has_newcomers());

  job.start(1);
  auto newcomer = job.join(1);
  REQUIRE(eventually([&] { return job[0].has_newcomers(); }));
  CHECK_FALSE(job[2].has_newcomers());  // which does not propose, and may have passed over others
  auto all = job.next_of({0, 2});
  all.push_back(newcomer.get());
  check_same(all, 2, 3);
  CHECK(all[0].is_new == std::vector<bool>{false, false, true});
  CHECK(all[0].former[1] == 1);
  CHECK(all[2].cluster.rank == 2u);
  form(all);
  CHECK_FALSE(job[0].has_newcomers());

  // The chief is lost while a newcomer waits: one generation does both.
  job.kill(2);
  check_same(job.next_of({0, 1}), 3, 2);
  job.start(2);
  auto second = job.join(2);
  REQUIRE(eventually([&] { return job[0].has_newcomers(); }));
  job.kill(0);
  auto last = job.next_of({1});
  last.push_back(second.get());
  check_same(last, 4, 2);
  CHECK(last[0].cluster.is_chief());
}

TEST_CASE("a newcomer with other settings is refused, and the elastic job goes on") {
  Job job(2);
  job.begin();
  job.kill(1);
  job.next_of({0});
  job.change = [](std::size_t, ElasticSettings& settings) { settings.fields[0].second = "sealed"; };
  job.start(1);
  auto newcomer = job.join(1);
  const std::string error = rendezvous_test::sentence<ClusterError>([&] { newcomer.get(); });
  INFO(error);
  CHECK(error.find("differ in \"wire\": \"plain\" and \"sealed\"") != std::string::npos);
  CHECK_FALSE(job[0].has_newcomers());
  check_same(job.next_of({0}), 2, 1);
}

TEST_CASE("a newcomer with which no generation can be formed is not proposed again") {
  Job job(3);
  job.begin();
  job.kill(2);
  job.next_of({0, 1});
  job.start(2);
  auto newcomer = job.join(2);
  REQUIRE(eventually([&] { return job[0].has_newcomers(); }));
  job.next_of({0, 1});
  newcomer.get();

  job[0].reject_newcomers();  // as do all members, but the proposer also learns it from the others
  job[1].reject_newcomers();
  const auto began = Clock::now();
  const auto without = job.next_of({0, 1});
  CHECK(since(began) < milliseconds(800));  // does not wait for it
  check_same(without, 3, 2);
  const std::string error = rendezvous_test::sentence<PeerLost>([&] { job.next(2).get(); });
  CHECK(error.find("gone on without this process") != std::string::npos);
  CHECK_FALSE(job[0].has_newcomers());

  job.end(2);  // another process at that address is another newcomer
  job.start(2);
  auto again = job.join(2);
  REQUIRE(eventually([&] { return job[0].has_newcomers(); }));
  auto all = job.next_of({0, 1});
  all.push_back(again.get());
  check_same(all, 4, 3);
}

TEST_CASE("across machines only a quorum of an elastic generation goes on") {
  const auto no_quorum = [](Job& job, std::size_t index) {
    return rendezvous_test::sentence<PeerLost>([&] {
             job.next(index).get();
           }).find("cannot reach a quorum") != std::string::npos;
  };
  SECTION("half with the machine of rank 0") {
    Job job(4);
    for (std::size_t i = 1; i < 4; ++i) job.separate(i);
    job.begin();
    job.kill(2);
    job.kill(3);
    check_same(job.next_of({0, 1}), 1, 2);
  }
  SECTION("half without the machine of rank 0") {
    Job job(4);
    for (std::size_t i = 1; i < 4; ++i) job.separate(i);
    job.begin();
    job.kill(0);
    job.kill(1);
    auto other = std::async(std::launch::async, [&] { return no_quorum(job, 3); });
    CHECK(no_quorum(job, 2));
    CHECK(other.get());
  }
  SECTION("a machine votes for its dead processes too") {
    Job job(4);
    job.separate(3);
    job.begin();
    job.kill(0);
    job.kill(1);
    check_same(job.next_of({2, 3}), 1, 2);
  }
  SECTION("but not without a living one") {
    Job job(3);
    job.separate(2);
    job.begin();
    job.kill(0);
    job.kill(1);
    CHECK(no_quorum(job, 2));
  }
}

TEST_CASE("elastic members notify those that have not noticed, and wait for them") {
  Job job(3);
  job.begin();
  std::atomic<int> calls{0};
  job[0].on_reform([&] { ++calls; });
  auto first = job.next(1);
  auto second = job.next(2);
  REQUIRE(eventually([&] { return job[0].must_reform(); }));
  CHECK(eventually([&] { return calls == 1; }));
  std::this_thread::sleep_for(milliseconds(1300));  // longer than the silence timeout
  CHECK(first.wait_for(seconds(0)) == std::future_status::timeout);
  std::vector<Generation> all{job.next(0).get(), first.get(), second.get()};
  check_same(all, 1, 3);
  CHECK_FALSE(job[0].must_reform());
  CHECK(calls == 1);
}

TEST_CASE("elastic members go on without one that is stopped, which ends when it wakes up") {
  Job job(3);
  job.begin();
  ElasticAccess::freeze(job[0], milliseconds(2500));
  auto stopped = job.next(0);
  const auto began = Clock::now();
  const auto rest = job.next_of({1, 2});
  CHECK(since(began) >= milliseconds(900));
  CHECK(since(began) < milliseconds(2300));
  check_same(rest, 1, 2);
  CHECK(rest[0].cluster.is_chief());
  const std::string error = rendezvous_test::sentence<PeerLost>([&] { stopped.get(); });
  CHECK(error.find("gone on without this process") != std::string::npos);
}

TEST_CASE("an elastic job below min_workers waits for restarted workers, then ends") {
  Job job(3, 2);
  job.patience = milliseconds(2000);
  job.begin();
  job.kill(1);
  job.kill(2);
  SECTION("nobody comes") {
    const auto began = Clock::now();
    const std::string error = rendezvous_test::sentence<PeerLost>([&] { job.next(0).get(); });
    CHECK(error.find("min_workers is 2") != std::string::npos);
    CHECK(since(began) < milliseconds(2500));
  }
  SECTION("one comes") {
    auto next = job.next(0);
    job.start(2);
    auto newcomer = job.join(2);
    std::vector<Generation> all{next.get(), newcomer.get()};
    check_same(all, 1, 2);
    CHECK(all[0].is_new == std::vector<bool>{false, true});
  }
}

TEST_CASE("an elastic generation has a number of workers that fits") {
  Job job(4);
  job.fits = [](std::size_t workers) { return workers % 2 == 0; };
  job.begin();
  job.kill(3);
  auto last = job.next(2);
  const auto two = job.next_of({0, 1});
  check_same(two, 1, 2);
  const std::string error = rendezvous_test::sentence<PeerLost>([&] { last.get(); });
  CHECK(error.find("gone on without this process") != std::string::npos);
  job.end(2);

  job.start(2);
  auto one = job.join(2);
  std::this_thread::sleep_for(milliseconds(700));
  CHECK_FALSE(job[0].has_newcomers());  // three workers do not fit
  job.start(3);
  auto other = job.join(3);
  REQUIRE(eventually([&] { return job[0].has_newcomers(); }));
  auto all = job.next_of({0, 1});
  all.push_back(one.get());
  all.push_back(other.get());
  check_same(all, 2, 4);
}

TEST_CASE("elastic members with a secret refuse strangers") {
  Job job(2);
  job.secret = lockstep::Secret("0123456789abcdefghijklmnopqrstuv");
  job.begin();
  const auto port = job.described(0).cluster->address(0).port;
  for (const char* bytes : {"GET / HTTP/1.1\r\n\r\n", "LKS1\x06\0\0\0", "\x16\x03\x01"}) {
    rendezvous_test::Stranger stranger(port);
    REQUIRE(stranger.connected());
    REQUIRE(stranger.send(bytes));
  }
  job.kill(1);
  check_same(job.next_of({0}), 1, 1);
  const auto right =
      std::exchange(job.secret, lockstep::Secret("another secret of thirty-two by."));
  job.patience = milliseconds(600);
  job.start(1);
  auto newcomer = job.join(1);
  const std::string error = rendezvous_test::sentence<ClusterError>([&] { newcomer.get(); });
  CHECK(error.find("do not have the same secret") != std::string::npos);
  CHECK_FALSE(job[0].has_newcomers());
}

TEST_CASE("an elastic job that ends in order leaves nothing on its machine") {
  Job job(2);
  job.begin();
  CHECK_FALSE(job.machine(0).empty());
  job[0].leave();
  job[1].leave();
  job.end(0);
  CHECK_FALSE(job.machine(0).empty());
  job.end(1);
  CHECK(job.machine(0).empty());
}

TEST_CASE("a newcomer ends when the elastic job does") {
  Job job(2);
  job.begin();
  job.kill(1);
  job.next_of({0});
  job.start(1);
  auto newcomer = job.join(1);
  REQUIRE(eventually([&] { return job[0].has_newcomers(); }));
  job[0].leave();
  job.end(0);
  const std::string error = rendezvous_test::sentence<lockstep::PeerLost>([&] { newcomer.get(); });
  CHECK(error.find("has ended the job before this process was admitted") != std::string::npos);
}

TEST_CASE("an elastic job uses the bind address and the range of ports") {
  Job job(2);
  const auto first = rendezvous_test::free_port();
  job.describe = [&](lockstep::ResolvedCluster& cluster) {
    cluster.bind = lockstep::BindAddress{"0.0.0.0", std::nullopt};
    cluster.data_ports = lockstep::PortRange{first, static_cast<std::uint16_t>(first + 40)};
  };
  const auto all = job.begin();
  check_same(all, 0, 2);
  CHECK(all[0].cluster.chief->host == "127.0.0.1");
  CHECK(all[0].cluster.chief->port >= first);
  CHECK(all[0].cluster.chief->port <= first + 40);
  CHECK(all[0].cluster.bind->host == "0.0.0.0");
  form(all);
}

TEST_CASE("elastic members do not wait for one that cannot go on") {
  Job job(3);
  for (std::size_t i = 1; i < 3; ++i) job.separate(i);
  job.begin();
  std::filesystem::remove_all(job.machine(0).path());
  auto failed = job.next(0);
  const auto began = Clock::now();
  const auto rest = job.next_of({1, 2});
  CHECK(since(began) < milliseconds(3000));
  check_same(rest, 1, 2);
  CHECK_THROWS_AS(failed.get(), lockstep::FileError);
  job.end(0);
}

TEST_CASE("the port of an elastic generation is reserved until its chief listens") {
  using asio::ip::tcp;
  Job job(2);
  job.begin();
  asio::io_context io;
  const auto listens = [&](std::uint16_t port) {
    tcp::acceptor acceptor(io, tcp::v4());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    asio::error_code error;
    acceptor.bind({asio::ip::make_address("127.0.0.1"), port}, error);
    if (!error) acceptor.listen(1, error);
    return !error;
  };
  std::uint16_t first = 0, second = 0;
  ElasticAccess::call(job[0], [&](auto& core) {
    first = core.links.reserve_port();
    second = core.links.reserve_port();
    return 0;
  });
  CHECK(first != second);
  CHECK_FALSE(listens(first));  // an earlier proposal may be decided
  CHECK_FALSE(listens(second));
  ElasticAccess::call(job[0], [&](auto& core) {
    core.links.hand_over_port(first);
    return 0;
  });
  CHECK(listens(first));
  CHECK(listens(second));
}

TEST_CASE("an elastic member does not connect again and again to another service") {
  Job job(2);
  const auto address = job.described(1).cluster->address(1);
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io, {asio::ip::make_address("127.0.0.1"), address.port});
  std::atomic<int> connections{0};
  std::thread service([&] {
    asio::error_code error;
    while (!error) {
      asio::ip::tcp::socket socket(io);
      acceptor.accept(socket, error);
      if (!error) ++connections;
    }
  });
  job.patience = milliseconds(700);
  job.start(0);
  auto joined = job.join(0);
  CHECK_THROWS_AS(joined.get(), PeerLost);
  CHECK(connections > 0);
  CHECK(connections < 12);  // one for each poll
  ::shutdown(acceptor.native_handle(), SHUT_RDWR);
  service.join();
}

TEST_CASE("a process that a running elastic job does not admit logs why it waits") {
  std::mutex mutex;
  std::string lines;
  auto before = lockstep::set_log([&](lockstep::LogLevel, std::string_view line) {
    const std::scoped_lock lock(mutex);
    lines += line;
  });
  {
    Job job(2);
    job.begin();
    job.kill(1);
    job.next_of({0});
    job.start(1);
    ElasticAccess::call(job[1], [](auto& core) {
      core.wait_log_interval = milliseconds(100);
      return 0;
    });
    auto newcomer = job.join(1);
    CHECK(eventually([&] {
      const std::scoped_lock lock(mutex);
      return lines.find("waits until it is admitted") != std::string::npos;
    }));
    // On a busy machine it may count as silent for a moment, and would not be admitted.
    CHECK(eventually([&] { return job[0].has_newcomers(); }));
    job.next_of({0});
    newcomer.get();
  }
  lockstep::set_log(std::move(before));
}

TEST_CASE("an elastic member needs a description with all addresses") {
  Job job(2, 3);
  CHECK_THROWS_AS(job.start(0), lockstep::UsageError);
  auto described = job.described(0);
  described.cluster.reset();
  CHECK_THROWS_AS(ElasticMember(described, {}, {.options = {.min_workers = 1}}),
                  lockstep::UsageError);
  described = job.described(0);
  described.rank.reset();
  CHECK_THROWS_AS(ElasticMember(described, {}, {.options = {.min_workers = 1}}),
                  lockstep::UsageError);
}

TEST_CASE("an elastic member waits for its own name as for the others, until the deadline") {
  Job job(2);
  job.patience = milliseconds(400);
  job.describe = [](lockstep::ResolvedCluster& cluster) {
    cluster.cluster =
        lockstep::ClusterSpec().worker("no-such-host.invalid:2222").worker("127.0.0.1:2223");
  };
  const auto began = Clock::now();
  job.start(0);
  auto zero = job.join(0);
  const std::string error = rendezvous_test::sentence<ClusterError>([&] { zero.get(); });
  CHECK(error.find("rank 0 cannot listen at its address no-such-host.invalid:2222") !=
        std::string::npos);
  CHECK(Clock::now() - began >= job.patience);
}

TEST_CASE("an elastic member waits while its own name has the address of another machine") {
  // As after the start of a pod: the name has its earlier address for a while.
  const Folder folder;
  constexpr int no_namespace = 77;
  const int status = testing::in_child([&] {
    const std::string hosts = folder.path() + "/hosts";
    std::ofstream(hosts) << "192.0.2.99 lockstep-own-name\n";
    if (!testing::enter_mount_namespace() ||
        ::mount(hosts.c_str(), "/etc/hosts", "", MS_BIND, nullptr) != 0)
      return no_namespace;
    Job job(1);
    job.patience = milliseconds(30'000);
    job.describe = [](lockstep::ResolvedCluster& cluster) {
      const auto port = std::to_string(cluster.cluster->address(0).port);
      cluster.cluster = lockstep::ClusterSpec().worker("lockstep-own-name:" + port);
    };
    job.start(0);
    auto zero = job.join(0);
    std::ofstream(hosts) << "127.0.0.1 lockstep-own-name\n";  // in place: the file is mounted
    return zero.get().number == 0 ? 0 : 2;
  });
  if (status == no_namespace) SKIP("this user cannot make a mount namespace");
  CHECK(status == 0);
}

TEST_CASE("elastic members that wait for the first generation log who is missing and why") {
  std::mutex mutex;
  std::string lines;
  auto before = lockstep::set_log([&](lockstep::LogLevel, std::string_view line) {
    const std::scoped_lock lock(mutex);
    lines += line;
  });
  const auto contain = [&](const std::string& part) {
    return eventually([&] {
      const std::scoped_lock lock(mutex);
      return lines.find(part) != std::string::npos;
    });
  };
  {
    Job job(3);
    std::vector<std::future<Generation>> all;
    const auto start = [&](std::size_t index) {
      job.start(index);
      ElasticAccess::call(job[index], [](auto& core) {
        core.missing_log_interval = milliseconds(50);
        return 0;
      });
      all.push_back(job.join(index));
    };
    start(1);
    CHECK(contain("elastic: waiting for rank 0 (worker:0, "));
    CHECK(contain(") (connection refused): "));
    start(0);
    CHECK(contain("elastic: waiting for rank 2 (worker:2, "));
    start(2);
    check_same(Job::get(all), 0, 3);
  }
  lockstep::set_log(std::move(before));
}

TEST_CASE("an elastic job that does not become complete names the missing worker") {
  Job job(3);
  job.patience = milliseconds(600);
  job.start(0);
  job.start(1);
  auto zero = job.join(0), one = job.join(1);
  for (auto* const joined : {&zero, &one}) {
    const std::string error = rendezvous_test::sentence<PeerLost>([&] { joined->get(); });
    CHECK(error.find("rank 2 (") != std::string::npos);
    CHECK(error.find("did not join within 0.6 s") != std::string::npos);
  }
}
