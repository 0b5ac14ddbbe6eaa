#include <catch2/catch_test_macros.hpp>
#include <string>

#include "lockstep/cluster/description/tf_config.hpp"
#include "unit/cluster/support.hpp"

namespace {

/// The JSON of the second worker, and a part of the message after its path.
struct Row {
  std::string json, fragment;
};

const std::string many(300, 'h');

const Row rows[] = {
    // A common mistake: host names without ports.
    {R"("external_machine_ip1")",
     R"("external_machine_ip1" has no port; write "external_machine_ip1:12345")"},
    {R"("10.0.0.2")", R"("10.0.0.2" has no port; write "10.0.0.2:12345")"},
    {R"("10.0.0.2:")", R"("10.0.0.2:" has no port; write "10.0.0.2:12345")"},
    {R"("12345")", R"("12345" is only a port; write "host:12345")"},
    {R"(":12345")", R"(":12345" has no host; write "host:12345")"},
    {R"(":")", R"(":" has no host)"},
    {R"("")", R"("" is empty; write "host:port")"},
    {R"(" ")", R"(" " is blank; write "host:port")"},
    {R"("\n")", R"("\x0a" is blank)"},
    {R"(" b:1")", R"(contains white space; write "b:1")"},
    {R"("b:1 ")", R"(contains white space; write "b:1")"},
    {R"("b:1\n")", R"("b:1\x0a" contains white space; write "b:1")"},
    {R"("b: 1")", R"(contains white space; write "host:port")"},
    {R"("b :1")", R"(contains white space)"},
    {R"("my host:1")", R"("my host:1" contains white space)"},
    {R"("b:1,c:1")", R"(has more than one colon; write "host:port")"},
    {R"("b,c:1")", R"(has "," in its host name)"},
    {R"("b;c:1")", R"(has ";" in its host name)"},
    {R"("b/c:1")", R"(has "/" in its host name)"},
    {R"("$HOST:1")", R"(has "$" in its host name)"},
    {R"("{host}:1")", R"(has "{" in its host name)"},
    {R"("<host>:1")", R"(has "<" in its host name)"},
    {R"("h\u0000st:1")", R"("h\x00st:1" has "\x00" in its host name)"},
    {R"("h\u001b[2J:1")", R"("h\x1b[2J:1" has "\x1b" in its host name)"},
    {R"("h\u00f6st:1")", R"("h\xc3\xb6st:1" has "\xc3" in its host name)"},
    {R"("\ud83d\ude00:1")", R"(in its host name; a host name has letters, digits)"},
    {R"("*:1")", R"(has "*" in its host name)"},
    {R"("-b:1")", R"(has a host name with a label that begins with '-')"},
    {R"("a.-b:1")", R"(has a host name with a label that begins with '-')"},
    {R"("a..b:1")", R"(has a host name with an empty label)"},
    {R"(".b:1")", R"(has a host name with an empty label)"},
    {"\"" + many + ":1\"", "has a host name of 300 characters; the maximum is 253"},
    {"\"" + many + many + ":1\"", "has 602 characters; write \"host:port\""},
    {"\"" + many.substr(0, 64) + ":1\"", "more than 63 characters"},
    // Ports.
    {R"("b:0")", R"(has the port "0", which is out of range; write a port from 1 to 65535)"},
    {R"("b:65536")", R"(has the port "65536", which is out of range)"},
    {R"("b:99999999999999999999")", R"(which is out of range)"},
    {R"("b:-1")", R"(has the port "-1", which is not a number)"},
    {R"("b:+1")", R"(has the port "+1", which is not a number)"},
    {R"("b:1.0")", R"(has the port "1.0", which is not a number)"},
    {R"("b:1e3")", R"(has the port "1e3", which is not a number)"},
    {R"("b:0x50")", R"(has the port "0x50", which is not a number)"},
    {R"("b:080")", R"(has the port "080" with a leading zero)"},
    {R"("b:http")", R"(has the port "http", which is not a number)"},
    {R"("b:port")", R"(has the port "port", which is not a number; write a port from 1 to 65535)"},
    {R"("b:1/")", R"(has the port "1/", which is not a number)"},
    {R"("b:1?x")", R"(has the port "1?x", which is not a number)"},
    {R"("b:\u0661")", R"(has the port "\xd9\xa1", which is not a number)"},
    {R"("b::1")",
     R"("b::1" has no port, and an IPv6 address needs brackets; write "[b::1]:12345")"},
    {R"("x::1")", R"(has more than one colon)"},
    {R"("b:1:2")", R"(has more than one colon)"},
    // User names and URL schemes.
    {R"("root@10.0.0.2:1")",
     R"(has a user name, which an address does not have; write "10.0.0.2:1")"},
    {R"("a@b@c:1")", R"(has a user name, which an address does not have; write "c:1")"},
    {R"("grpc://10.0.0.2:1")",
     R"(begins with a URL scheme, which an address does not have; write "10.0.0.2:1")"},
    {R"("http://b")", R"(begins with a URL scheme)"},
    {R"("tcp://[::1]:5")",
     R"(begins with a URL scheme, which an address does not have; write "[::1]:5")"},
    // IPv4.
    {R"("256.0.0.1:1")", R"(is not a valid IPv4 address)"},
    {R"("10.0.0:1")", R"(is not a valid IPv4 address; write four numbers)"},
    {R"("10.0.0.0.1:1")", R"(is not a valid IPv4 address)"},
    {R"("010.0.0.1:1")", R"(is not a valid IPv4 address)"},
    {R"("10..0.1:1")", R"(is not a valid IPv4 address)"},
    {R"("1:1")", R"(is not a valid IPv4 address)"},
    {R"("0.0.0.0:1")",
     R"(is a wildcard address; write the address that the other machines reach, and set LOCKSTEP_BIND=0.0.0.0)"},
    // IPv6.
    {R"("[::]:1")", R"(set LOCKSTEP_BIND=::)"},
    {R"("::1")", R"(has no port, and an IPv6 address needs brackets; write "[::1]:12345")"},
    {R"("fd00::1:12345")", R"(is an IPv6 address without brackets; write "[fd00::1]:12345")"},
    {R"("2001:db8:0:0:0:0:0:1:2222")", R"(write "[2001:db8:0:0:0:0:0:1]:2222")"},
    {R"("[::1]")", R"("[::1]" has no port; write "[::1]:12345")"},
    {R"("[::1]:")", R"("[::1]:" has no port; write "[::1]:12345")"},
    {R"("[::1")", R"(has a '[' without ']')"},
    {R"("[::1:80")", R"(has a '[' without ']')"},
    {R"("[::1]80")", R"(has no ':' after its ']')"},
    {R"("[]:80")", R"(write)"},
    {R"("[10.0.0.2]:80")", R"(has brackets, which only IPv6 needs; write "10.0.0.2:80")"},
    {R"("[host]:80")", R"(has brackets, which only IPv6 needs; write "host:80")"},
    {R"("[::g]:80")", R"(is not a valid IPv6 address)"},
    {R"("[1::2::3]:80")", R"(is not a valid IPv6 address)"},
    {R"("[fe80::1%]:80")", R"(is not a valid IPv6 address)"},
    {R"("[fe80::1%a b]:80")", R"(contains white space)"},
    {R"("[fe80::1%/etc]:80")", R"(is not a valid IPv6 address)"},
    {R"("[::1]:80:90")", R"(has the port "80:90", which is not a number)"},
    {R"("::1]:80")", R"(has more than one colon)"},
    // Duplicates.
    {R"("10.0.0.1:12345")", R"("10.0.0.1:12345" is also worker[0]; give each task its own port)"},
    // Values other than a string.
    {"1", R"( is a number; write a string "host:port")"},
    {"12345.5", " is a number"},
    {"null", " is null; write a string"},
    {"true", " is a boolean"},
    {"{}", " is an object"},
    {R"({"host":"b","port":1})", " is an object"},
    {"[]", " is a list"},
    {R"(["b:1"])", R"( is a list; write a string "host:port")"},
};

}  // namespace

TEST_CASE("each invalid host is named by its path, with a correction") {
  STATIC_CHECK(std::size(rows) >= 85);
  for (const Row& row : rows) {
    CAPTURE(row.json);
    const std::string config = R"({"cluster":{"worker":["10.0.0.1:12345",)" + row.json +
                               R"(]},"task":{"type":"worker","index":0}})";
    const std::string message = cluster_test::sentence([&] { lockstep::parse_tf_config(config); });
    CAPTURE(message);
    CHECK(message.starts_with("TF_CONFIG: cluster.worker[1] "));
    CHECK(message.find(row.fragment) != std::string::npos);
    CHECK(message.find("; ") != std::string::npos);
    CHECK(cluster_test::fit_to_print(message));
  }
}
