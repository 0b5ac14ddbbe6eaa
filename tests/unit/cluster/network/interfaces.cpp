#include "lockstep/cluster/network/interfaces.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "lockstep/cluster/network/data_address.hpp"
#include "unit/cluster/rendezvous/support.hpp"

using namespace rendezvous_test;
using namespace std::chrono_literals;
using lockstep::detail::interface_addresses;
using lockstep::detail::InterfaceAddress;
using lockstep::detail::list_interfaces;

namespace {

std::vector<InterfaceAddress> machine() {
  using asio::ip::make_address;
  return {{"lo", make_address("127.0.0.1")},     {"eth0", make_address("192.168.1.7")},
          {"eth0", make_address("2001:db8::7")}, {"eth1", make_address("10.1.2.3")},
          {"eth1", make_address("10.9.2.3")},    {"lo", make_address("::1")},
          {"ib0", make_address("fd00:0:0:5::3")}};
}

std::string selected(const std::string& selector, bool prefers_ipv6 = false) {
  const auto address = lockstep::detail::select_address(selector, machine(), prefers_ipv6);
  return address ? address->to_string() : "none";
}

}  // namespace

TEST_CASE("an interface is selected by its name or by a network") {
  CHECK(selected("eth1") == "10.1.2.3");
  CHECK(selected("eth0") == "192.168.1.7");
  CHECK(selected("eth0", true) == "2001:db8::7");
  CHECK(selected("eth1", true) == "10.1.2.3");  // it has no IPv6 address
  CHECK(selected("ib0") == "fd00:0:0:5::3");
  CHECK(selected("10.0.0.0/8") == "10.1.2.3");
  CHECK(selected("10.9.0.0/16") == "10.9.2.3");
  CHECK(selected("10.9.2.3/32") == "10.9.2.3");
  CHECK(selected("10.1.99.99/16") == "10.1.2.3");  // bits after the prefix do not count
  CHECK(selected("0.0.0.0/0") == "127.0.0.1");
  CHECK(selected("fd00::/8") == "fd00:0:0:5::3");
  CHECK(selected("2000::/3") == "2001:db8::7");
  for (const char* other : {"eth", "eth2", "ETH0", "11.0.0.0/8", "10.9.2.4/32", "fe80::/10"})
    CHECK(selected(other) == "none");
}

TEST_CASE("the interfaces of a machine are listed in one line") {
  CHECK(list_interfaces(machine()) ==
        "lo (127.0.0.1, ::1), eth0 (192.168.1.7, 2001:db8::7), eth1 (10.1.2.3, 10.9.2.3), "
        "ib0 (fd00:0:0:5::3)");
  CHECK(list_interfaces({}) == "none");
  const auto here = interface_addresses();
  CHECK(std::any_of(here.begin(), here.end(), [](const InterfaceAddress& at) {
    return at.interface == "lo" && at.address.to_string() == "127.0.0.1";
  }));
}

TEST_CASE("LOCKSTEP_INTERFACE sets the data address, and one that does not exist is refused") {
  const Deadline deadline(60s);
  Lines lines;
  for (const char* selector : {"lo", "127.0.0.0/8"}) {
    auto members =
        join_all(2, lines, [&](RendezvousOptions& o) { o.cluster.data_interface = selector; });
    for (const Member& member : members) CHECK(member->local_address() == "127.0.0.1");
    leave_all(members);
  }
  lockstep::ResolvedCluster several;
  several.data_interface = "lo";
  CHECK(lockstep::detail::more_data_addresses(several).empty());
  several.more_interfaces = {"127.0.0.0/8"};
  CHECK(sentence<lockstep::ClusterError>([&] { lockstep::detail::more_data_addresses(several); }) ==
        "LOCKSTEP_INTERFACE: 127.0.0.0/8 selects 127.0.0.1, as an entry before it does; write each "
        "interface once");
  for (const char* selector : {"none0", "203.0.113.0/24"}) {
    auto o = options(1, 2, free_port(), lines);
    o.cluster.data_interface = selector;
    const auto message = sentence<lockstep::ClusterError>([&] { join(o); });
    CAPTURE(message);
    CHECK(message.find(std::string("LOCKSTEP_INTERFACE=") + selector +
                       " matches no address of this machine; it has ") == 0);
    CHECK(message.find("lo (127.0.0.1") != std::string::npos);
  }
}
