#include "lockstep/cluster/description/host_port.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "lockstep/core/quote.hpp"
#include "unit/cluster/support.hpp"

using lockstep::HostPort;
using lockstep::parse_host_port;

TEST_CASE("an address is parsed into canonical spelling and printed back") {
  struct Row {
    const char *entry, *host;
    unsigned port;
    const char* spelling;
  };
  const Row rows[] = {
      {"10.0.0.1:12345", "10.0.0.1", 12345, "10.0.0.1:12345"},
      {"localhost:1", "localhost", 1, "localhost:1"},
      {"Node-01.Example.ORG:65535", "node-01.example.org", 65535, "node-01.example.org:65535"},
      {"job_worker_0:2222", "job_worker_0", 2222, "job_worker_0:2222"},
      {"[::1]:80", "::1", 80, "[::1]:80"},
      {"[FD00:0:0:0:0:0:0:1]:80", "fd00::1", 80, "[fd00::1]:80"},
      {"[::ffff:10.0.0.1]:80", "::ffff:10.0.0.1", 80, "[::ffff:10.0.0.1]:80"},
      {"[fe80::1%eth0]:80", "fe80::1%eth0", 80, "[fe80::1%eth0]:80"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.entry);
    const HostPort address = parse_host_port(row.entry, "worker[0]");
    CHECK(address.host == row.host);
    CHECK(address.port == row.port);
    CHECK(to_string(address) == row.spelling);
    CHECK(parse_host_port(to_string(address), "again") == address);
  }
}

TEST_CASE("an address without a port is refused with the address to write") {
  CHECK(cluster_test::sentence([] { parse_host_port("external_machine_ip1", "worker[0]"); }) ==
        "worker[0] \"external_machine_ip1\" has no port; write \"external_machine_ip1:12345\"");
}

TEST_CASE("the longest DNS name is accepted, a longer one is not") {
  const std::string label(63, 'a');
  const std::string longest = label + "." + label + "." + label + "." + std::string(61, 'b');
  REQUIRE(longest.size() == 253);
  CHECK(parse_host_port(longest + ":1", "w").host == longest);
  CHECK(cluster_test::sentence([&] {
          parse_host_port(longest + "b:1", "w");
        }).find("the maximum is 253") != std::string::npos);
  CHECK(cluster_test::sentence([&] {
          parse_host_port(label + "a:1", "w");
        }).find("more than 63 characters") != std::string::npos);
}

TEST_CASE("only addresses of this machine are loopback") {
  for (const char* host : {"localhost", "a.localhost", "127.0.0.1", "127.8.9.10", "::1"}) {
    CAPTURE(host);
    CHECK(lockstep::is_loopback(host));
  }
  for (const char* host : {"10.0.0.1", "128.0.0.1", "127.example.org", "127.a.b.c", "::2", "host",
                           "localhost.example.org", "notlocalhost"}) {
    CAPTURE(host);
    CHECK_FALSE(lockstep::is_loopback(host));
  }
}

TEST_CASE("untrusted text is escaped and shortened in messages") {
  CHECK(lockstep::detail::quote("a\nb\x1b\x7f\xc3") == "\"a\\x0ab\\x1b\\x7f\\xc3\"");
  CHECK(lockstep::detail::quote(std::string(81, 'x')) == "\"" + std::string(80, 'x') + "...\"");
  CHECK(lockstep::detail::quote(std::string(21, '\0')).size() == 2 + 20 * 4 + 3);
  CHECK(lockstep::detail::quote(std::string(80, 'x')) == "\"" + std::string(80, 'x') + "\"");
}
