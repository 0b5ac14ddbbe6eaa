/// \file
/// Where the chief listens, and how the workers find it.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "unit/cluster/rendezvous/support.hpp"

using namespace rendezvous_test;
using namespace std::chrono_literals;

namespace {

/// Can this machine listen at ::1?
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

std::string refusal(const std::string& chief, Lines& lines) {
  auto o = options(0, 2, free_port(), lines);
  o.cluster.chief->host = chief;
  return sentence<lockstep::ClusterError>([&] { join(o); });
}

}  // namespace

TEST_CASE("the chief may be named by a host, by IPv4 and by IPv6") {
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

TEST_CASE("a chief behind another address listens where it is told to") {
  const Deadline deadline(60s);
  Lines lines;
  auto members = join_at("127.0.0.7", "0.0.0.0", lines);
  CHECK(members[0]->local_address() == "127.0.0.7");
  leave_all(members);
}

TEST_CASE("an address at which the chief cannot listen is refused with the way out") {
  const Deadline deadline(60s);
  Lines lines;
  const auto far = refusal("192.0.2.1", lines);
  CHECK(far.find("the chief's address: 192.0.2.1 port ") == 0);
  CHECK(far.find("LOCKSTEP_BIND") != std::string::npos);
  const auto unknown = refusal("no-such-host.invalid", lines);
  CHECK(unknown.find("the host cannot be looked up") != std::string::npos);
}

TEST_CASE("a worker that cannot look up the chief's host tries until the deadline and says so") {
  const Deadline deadline(60s);
  Lines lines;
  auto o = options(1, 2, free_port(), lines, 900ms);
  o.cluster.chief->host = "no-such-host.invalid";
  const auto began = Clock::now();
  const auto said = sentence<PeerLost>([&] { join(o); });
  CHECK(said.find("rank 0 (no-such-host.invalid:") == 0);
  CHECK(said.find("could not be joined within 0.9 s: ") != std::string::npos);
  CHECK(said.find("looked up") != std::string::npos);
  CHECK(Clock::now() - began < 3s);
}

TEST_CASE("a chief that comes after its workers, at a port that was just used, is found") {
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

TEST_CASE("64 members join, meet and hear of a loss") {
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
