/// \file
/// The address of the chief, and how the workers find it.
#include <ifaddrs.h>

#include <fmt/format.h>
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/network/data_address.hpp"
#include "lockstep/cluster/network/data_connector.hpp"
#include "lockstep/cluster/network/interfaces.hpp"
#include "lockstep/cluster/network/lookup.hpp"
#include "lockstep/cluster/rendezvous/chief_address.hpp"
#include "unit/cluster/rendezvous/hosts.hpp"
#include "unit/cluster/rendezvous/support.hpp"

using namespace rendezvous_test;
using namespace std::chrono_literals;

namespace {

/// True if this machine can listen at ::1.
bool has_ipv6() {
  const int s = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = IN6ADDR_LOOPBACK_INIT;
  const bool can = ::bind(s, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(s);
  return can;
}

std::vector<Member> join_at(const std::string& chief, const std::string& bind, Lines& lines) {
  return join_all(2, lines, [&](RendezvousOptions& o) {
    o.cluster.chief->host = chief;
    if (!bind.empty()) o.cluster.bind = lockstep::BindAddress{bind, std::nullopt};
  });
}

std::string refusal(const std::string& chief, Lines& lines,
                    milliseconds deadline = milliseconds(20'000)) {
  auto o = options(0, 2, free_port(), lines, deadline);
  o.cluster.chief->host = chief;
  return sentence<lockstep::ClusterError>([&] { join(o); });
}

/// A non-loopback IPv4 address of this machine; empty if it has none.
std::string far_address() {
  ifaddrs* list = nullptr;
  std::string result;
  if (::getifaddrs(&list) != 0) return result;
  for (const ifaddrs* i = list; i && result.empty(); i = i->ifa_next) {
    if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = {};
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, text,
                sizeof text);
    if (!lockstep::is_loopback(text)) result = text;
  }
  ::freeifaddrs(list);
  return result;
}

/// Options for a chief at `host`.
RendezvousOptions at(const std::string& host, std::size_t rank, std::size_t size,
                     std::uint16_t port, Lines& lines, milliseconds deadline = 20s) {
  auto o = options(rank, size, port, lines, deadline);
  o.cluster.chief->host = host;
  return o;
}

const char* const both_families = "127.0.0.1 localhost twin.invalid\n::1 localhost twin.invalid\n";

}  // namespace

TEST_CASE("a host with IPv4 and IPv6 gives all ranks one address family") {
  if (!Guest::possible() || !has_ipv6()) SKIP("this needs root and IPv6");
  const Hosts hosts(both_families);
  Guest job(hosts, [] {
    std::string families;
    for (int round = 0; round < 6; ++round) {
      Lines lines;
      const auto port = free_port();
      std::vector<std::future<Member>> futures;
      for (const std::size_t r : {3u, 2u, 1u, 0u}) {  // the chief comes last
        futures.push_back(std::async(std::launch::async, [&lines, port, r] {
          return join(at("localhost", r, 4, port, lines));
        }));
        std::this_thread::sleep_for(milliseconds(13 + round));
      }
      std::vector<Member> members;
      for (auto& future : futures) members.push_back(future.get());
      for (const Member& member : members) families += member->local_address() + " ";
      leave_all(members);
    }
    return families;
  });
  std::string expected;
  for (int i = 0; i < 24; ++i) expected += "127.0.0.1 ";
  CHECK(job.result() == expected);
}

TEST_CASE("a worker that has only the other address family is refused by name") {
  if (!Guest::possible() || !has_ipv6()) SKIP("this needs root and IPv6");
  const Hosts both(both_families), only_ipv6("::1 localhost twin.invalid\n");
  const auto port = free_port();
  Guest chief(both, [port] {
    Lines lines;
    return sentence<PeerLost>([&] { join(at("twin.invalid", 0, 2, port, lines, 2000ms)); });
  });
  Guest worker(only_ipv6, [port] {
    Lines lines;
    return sentence<lockstep::ClusterError>([&] { join(at("twin.invalid", 1, 2, port, lines)); });
  });
  const auto message = worker.result();
  CAPTURE(message);
  CHECK(
      message.find("the chief's host twin.invalid has only the IPv6 address ::1 here, but the job "
                   "uses IPv4") == 0);
  CHECK(message.find("LOCKSTEP_BIND") != std::string::npos);
  const auto missed = chief.result();
  CAPTURE(missed);
  CHECK(missed.find(
            "rank 1 did not join within 2 s: from ::1 it connected over IPv6, but this job uses "
            "IPv4") == 0);
}

TEST_CASE("a chief whose name DNS does not know yet resolves it again") {
  if (!Guest::possible()) SKIP("this needs root");
  Hosts hosts("127.0.0.1 localhost\n");
  const auto port = free_port();
  const auto run = [port](std::size_t rank) {
    return [port, rank] {
      Lines lines;
      const Member member = join(at("chief.invalid", rank, 2, port, lines));
      return member->address_of(0) +
             (lines.contain("retrying until the join deadline") ? " warned" : "");
    };
  };
  Guest chief(hosts, run(0)), worker(hosts, run(1));
  std::this_thread::sleep_for(800ms);
  hosts.append("127.0.0.1 chief.invalid\n");
  CHECK(chief.result() == fmt::format("chief.invalid:{} warned", port));
  CHECK(worker.result() == fmt::format("chief.invalid:{}", port));
}

TEST_CASE("a chief whose host name is a loopback address publishes a reachable one") {
  const std::string far = far_address();
  if (!Guest::possible() || far.empty()) SKIP("this needs root and a network");
  const Hosts near_hosts("127.0.0.1 localhost\n127.0.1.1 node.invalid\n");
  const Hosts far_hosts("127.0.0.1 localhost\n" + far + " node.invalid\n");
  const auto port = free_port();
  const auto run = [port](std::size_t rank) {
    return [port, rank] {
      Lines lines;
      auto o = at("node.invalid", rank, 3, port, lines);
      o.cluster.bind = lockstep::BindAddress{"0.0.0.0", std::nullopt};
      return join(o)->local_address();
    };
  };
  Guest chief(near_hosts, run(0)), near(near_hosts, run(1)), other(far_hosts, run(2));
  CHECK(chief.result() == far);
  CHECK(near.result() == far);
  CHECK(other.result() == far);
}

TEST_CASE("data addresses are published so that all ranks can reach them") {
  using asio::ip::make_address;
  using lockstep::detail::data_addresses;
  using lockstep::detail::DataPlace;
  using lockstep::detail::find_unreachable;
  const auto place = [](const char* given, const char* chief_end, const char* member_end) {
    return DataPlace{given, make_address(chief_end), make_address(member_end)};
  };
  const DataPlace near = place("", "127.0.1.1", "127.0.0.1"),
                  far = place("", "10.0.0.1", "10.0.0.2");
  using Addresses = std::vector<std::string>;
  CHECK(data_addresses({{}}) == Addresses{"127.0.0.1"});
  CHECK(data_addresses({{}, near, near}) == Addresses{"127.0.1.1", "", ""});
  CHECK(data_addresses({{}, near, far}) == Addresses{"10.0.0.1", "10.0.0.1", ""});
  CHECK(data_addresses({{}, far, near}) == Addresses{"10.0.0.1", "", "10.0.0.1"});
  CHECK(data_addresses({{.given = "10.9.0.1"}, near, far}) ==
        Addresses{"10.9.0.1", "10.9.0.1", ""});
  const DataPlace fast = place("10.9.0.2", "10.0.0.1", "10.0.0.2"),
                  wrong = place("127.0.0.1", "10.0.0.1", "10.0.0.2");
  CHECK(data_addresses({{}, fast}) == Addresses{"10.0.0.1", "10.9.0.2"});
  for (const auto& fine : {std::vector<DataPlace>{{}, near, near}, {{}, near, far}, {{}, fast}})
    CHECK_FALSE(find_unreachable(fine, data_addresses(fine)));
  const std::vector<DataPlace> bad{{}, far, wrong};
  const auto found = find_unreachable(bad, data_addresses(bad));
  REQUIRE(found);
  CHECK(found->near == 2);
  CHECK(found->far == 0);

  // Sidecars accept the workers' connections and make others, from 127.0.0.6 to the chief's address or
  // from 127.0.0.1 to 127.0.0.1: only the workers know their places.
  const std::vector<DataPlace> meshed{{}, place("10.0.0.2", "10.0.0.1", "127.0.0.6")};
  CHECK(data_addresses(meshed) == Addresses{"10.0.0.1", "10.0.0.2"});
  CHECK_FALSE(find_unreachable(meshed, data_addresses(meshed)));
  const std::vector<DataPlace> hidden{{.given = "10.0.0.1"},
                                      place("10.0.0.2", "127.0.0.1", "127.0.0.1")};
  CHECK(data_addresses(hidden) == Addresses{"10.0.0.1", "10.0.0.2"});
  const auto interfaces = lockstep::detail::interface_addresses();
  const auto own = std::find_if(interfaces.begin(), interfaces.end(), [](const auto& one) {
    return one.address.is_v4() && !one.address.is_loopback();
  });
  if (own != interfaces.end()) {  // the chief's own address is the one of its route to the worker
    const std::string here = own->address.to_string();
    CHECK(data_addresses({{}, place(here.c_str(), "127.0.0.1", "127.0.0.1"), near}) ==
          Addresses{here, here, here});
  }
}

TEST_CASE("workers in NAT that would use one data address are named") {
  using asio::ip::make_address;
  using lockstep::detail::DataPlace;
  using lockstep::detail::find_shared_address;
  const auto place = [](const char* given, const char* member_end) {
    return DataPlace{given, make_address("172.17.0.2"), make_address(member_end)};
  };
  const auto found =
      find_shared_address({{}, place("172.17.0.2", "10.0.0.2")}, {"172.17.0.2", "172.17.0.2"});
  REQUIRE(found);
  CHECK(found->first == 0);
  CHECK(found->second == 1);
  // On the chief's machine; with other addresses.
  CHECK_FALSE(find_shared_address({{}, place("172.17.0.2", "172.17.0.2"), place("", "127.0.0.1")},
                                  {"172.17.0.2", "172.17.0.2", "172.17.0.2"}));
  CHECK_FALSE(find_shared_address({{}, place("10.0.0.9", "10.0.0.2")}, {"172.17.0.2", "10.0.0.9"}));
}

TEST_CASE("a chief whose own name is a loopback address here listens where others reach it") {
  using lockstep::ClusterSpec;
  using lockstep::detail::listening_endpoints;
  using lockstep::detail::tcp;
  const auto endpoint = [](const char* address) {
    return tcp::endpoint(asio::ip::make_address(address), 12345);
  };
  const lockstep::detail::LookupResult debian{{endpoint("127.0.1.1")}, "", false};
  lockstep::ResolvedCluster cluster;
  cluster.world_size = 2;
  cluster.cluster = ClusterSpec().worker("n1:12345").worker("n2:12345");
  std::string line;
  const auto result = [&](const char* host, bool is_secured, const auto& found) {
    line.clear();
    return listening_endpoints(found, cluster, host, "the chief's host", is_secured,
                               [&](lockstep::LogLevel, std::string_view text) { line = text; });
  };
  using Endpoints = std::vector<tcp::endpoint>;
  CHECK(result("n1", true, debian) == Endpoints{endpoint("0.0.0.0")});
  CHECK(line.find("the chief's host n1 is a loopback address on this machine (127.0.1.1), so it "
                  "listens at all addresses") == 0);
  const lockstep::detail::LookupResult both{
      {endpoint("::1"), endpoint("127.0.1.1"), endpoint("127.0.0.2")}, "", false};
  CHECK(result("n1", true, both) == Endpoints{endpoint("::"), endpoint("0.0.0.0")});
  CHECK(result("n1", false, debian) == debian.endpoints);  // no secret: not reachable for strangers
  CHECK(line.find("set LOCKSTEP_BIND=0.0.0.0") != std::string::npos);
  CHECK(result("127.0.1.1", true, debian) == debian.endpoints);
  CHECK(line.empty());
  lockstep::detail::LookupResult right = debian;
  right.endpoints.push_back(endpoint("10.0.0.1"));
  CHECK(result("n1", true, right) == right.endpoints);
  cluster.cluster = ClusterSpec().worker("n1:12345").worker("n1:12346");  // one machine
  CHECK(result("n1", true, debian) == debian.endpoints);
  cluster.cluster.reset();  // LOCKSTEP_COORDINATOR: the others may be anywhere
  CHECK(result("n1", true, debian) == Endpoints{endpoint("0.0.0.0")});
  cluster.local_size = 2;
  CHECK(result("n1", true, debian) == debian.endpoints);
  CHECK(line.empty());
}

TEST_CASE("LOCKSTEP_DATA_ADDRESS sets the data address, and an invalid one is refused") {
  const Deadline deadline(60s);
  Lines lines;
  auto members = join_all(3, lines, [](RendezvousOptions& o) {
    if (o.cluster.rank != 1u)
      o.cluster.data_address = fmt::format("127.0.0.{}", *o.cluster.rank + 2);
  });
  CHECK(members[0]->local_address() == "127.0.0.2");
  CHECK(members[1]->local_address() == "127.0.0.1");
  CHECK(members[2]->local_address() == "127.0.0.4");
  leave_all(members);

  auto foreign = options(1, 2, free_port(), lines);
  foreign.cluster.data_address = "192.0.2.99";
  CHECK(sentence<lockstep::ClusterError>([&] {
          join(foreign);
        }).find("LOCKSTEP_DATA_ADDRESS=192.0.2.99 cannot be bound (") == 0);
  // It may be the address of a host that passes connections on to all addresses of this one.
  const std::string run_key = "0123456789abcdef of the run";
  foreign.cluster.bind = lockstep::BindAddress{"0.0.0.0", std::nullopt};
  CHECK_NOTHROW(lockstep::detail::choose_data_address(foreign.cluster));
  const lockstep::DataConnector connector(
      {.peers = {1}, .address = "192.0.2.99", .run = "run", .key = lockstep::Secret(run_key)});
  CHECK(connector.place().find("192.0.2.99 ") == 0);

  if (!has_ipv6()) return;
  const auto port = free_port();
  auto chief = std::async(std::launch::async, [&] {
    return sentence<PeerLost>([&] { join(options(0, 2, port, lines, 1500ms)); });
  });
  auto other = options(1, 2, port, lines);
  other.cluster.data_address = "::1";
  const auto message = sentence<lockstep::ClusterError>([&] { join(other); });
  CAPTURE(message);
  CHECK(
      message.find(
          "rank 1 (127.0.0.1) would exchange data at ::1 (IPv6), but the chief exchanges data over "
          "IPv4") == 0);
  CHECK(chief.get().find("rank 1 did not join within 1.5 s: a process from 127.0.0.1 was "
                         "refused") == 0);
}

TEST_CASE("a name is resolved again, less and less often") {
  using lockstep::detail::RepeatedLookup;
  const std::string no_name(64, 'x');  // too long for DNS: the result needs no network
  RepeatedLookup unknown({no_name, 1}), address({"127.0.0.1", 1});
  auto now = Clock::now();
  for (int i = 0; i < 600; ++i) {  // a minute
    while (!unknown.poll(now)) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(1ms);
    REQUIRE(address.poll(now));
    now += 100ms;
  }
  CHECK(unknown.poll(now)->endpoints.empty());
  CHECK(unknown.queries() > 4);  // 16 if all results are immediate
  CHECK(unknown.queries() < 20);
  CHECK(address.queries() == 1);
}

TEST_CASE("the chief can be named by host, by IPv4 and by IPv6") {
  const Deadline deadline(60s);
  for (const char* host : {"localhost", "127.0.0.9", "::1"}) {
    if (std::string(host) == "::1" && !has_ipv6()) continue;
    CAPTURE(host);
    Lines lines;
    auto members = join_at(host, "", lines);
    members[0]->set("x", "y");
    CHECK(members[1]->get("x", 5s) == "y");
    if (std::string(host) != "localhost") CHECK(members[1]->local_address() != "0.0.0.0");
    leave_all(members);
    CHECK(lines.text().empty());
  }
}

TEST_CASE("a chief with LOCKSTEP_BIND listens there") {
  const Deadline deadline(60s);
  Lines lines;
  auto members = join_at("127.0.0.7", "0.0.0.0", lines);
  CHECK(members[0]->local_address() == "127.0.0.7");
  leave_all(members);
}

TEST_CASE("an address on which the chief cannot listen is refused with the remedy") {
  const Deadline deadline(60s);
  Lines lines;
  const auto far = refusal("192.0.2.1", lines);
  CHECK(far.find("the chief's address: cannot listen at 192.0.2.1 port ") == 0);
  CHECK(far.find("LOCKSTEP_BIND") != std::string::npos);
  // DNS may publish the name later: the chief retries until the deadline.
  const auto began = Clock::now();
  const auto unknown = refusal("no-such-host.invalid", lines, 1200ms);
  CHECK(Clock::now() - began >= 1200ms);
  CHECK(unknown.find("the chief's address: the host name cannot be resolved") == 0);
  CHECK(unknown.find("(retried for 1.2 s)") != std::string::npos);
}

TEST_CASE("a worker that cannot resolve the chief's host retries, then reports it") {
  const Deadline deadline(60s);
  Lines lines;
  auto o = options(1, 2, free_port(), lines, 900ms);
  o.cluster.chief->host = "no-such-host.invalid";
  const auto began = Clock::now();
  const auto message = sentence<PeerLost>([&] { join(o); });
  CHECK(message.find("rank 0 (no-such-host.invalid:") == 0);
  CHECK(message.find("could not be joined within 0.9 s: ") != std::string::npos);
  CHECK(message.find("resolved") != std::string::npos);
  CHECK(Clock::now() - began < 3s);
}

TEST_CASE("a chief that starts after its workers, on a recently used port, is found") {
  const Deadline deadline(60s);
  Lines lines;
  const auto port = free_port();
  for (int run = 0; run < 4; ++run) {
    std::vector<std::future<Member>> futures;
    for (const std::size_t r : {2u, 1u, 0u}) {
      futures.push_back(
          std::async(std::launch::async, [&, r] { return join(options(r, 3, port, lines)); }));
      std::this_thread::sleep_for(30ms);
    }
    std::vector<Member> members;
    for (auto& future : futures) members.push_back(future.get());
    if (run % 2) Access::kill(*members[2]);
    leave_all(members);
  }
}

TEST_CASE("64 members join, synchronize, and learn of a loss") {
  const Deadline deadline(100s);
  Lines lines;
  const auto began = Clock::now();
  auto members = join_all(64, lines);
  in_each(members, [](Rendezvous& job) { job.barrier("all", 20s); });
  CHECK(Clock::now() - began < 20s);
  Access::kill(*members[63]);
  for (std::size_t r = 0; r < 63; ++r) CHECK(members[r]->verdict(6s)->rank() == 63);
  leave_all(members);
}
