#include "lockstep/cluster/description/slurm_lists.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "unit/cluster/support.hpp"

namespace {

using lockstep::detail::HostList;
using lockstep::detail::TasksPerNode;

std::vector<std::string> all(const HostList& list) {
  std::vector<std::string> hosts;
  for (std::size_t i = 0; i < list.size(); ++i) hosts.push_back(list[i]);
  return hosts;
}

/// An independent expansion: the first brackets are replaced by each of their numbers, then the
/// rest is expanded. Takes only legal lists.
void expand_item(const std::string& item, std::vector<std::string>& hosts) {
  const auto open = item.find('['), close = item.find(']');
  if (open == std::string::npos) {
    hosts.push_back(item);
    return;
  }
  std::string ranges = item.substr(open + 1, close - open - 1) + ",";
  for (std::size_t comma; (comma = ranges.find(',')) != std::string::npos;
       ranges = ranges.substr(comma + 1)) {
    const std::string range = ranges.substr(0, comma);
    const auto dash = range.find('-');
    const std::string low = range.substr(0, dash);
    const std::string high = dash == std::string::npos ? low : range.substr(dash + 1);
    for (unsigned long long n = std::stoull(low); n <= std::stoull(high); ++n) {
      char number[32];
      std::snprintf(number, sizeof number, "%0*llu", static_cast<int>(low.size()), n);
      expand_item(item.substr(0, open) + number + item.substr(close + 1), hosts);
    }
  }
}
std::vector<std::string> expand(const std::string& list) {
  std::vector<std::string> hosts;
  std::string item;
  int depth = 0;
  for (const char c : list + ",") {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c != ',' || depth > 0) {
      item += c;
      continue;
    }
    expand_item(item, hosts);
    item.clear();
  }
  return hosts;
}

std::string refusal(const std::string& text) {
  return cluster_test::sentence([&] { HostList(text, "NODELIST"); });
}

}  // namespace

TEST_CASE("a Slurm list has the hosts of the examples in Slurm's manual") {
  using Hosts = std::vector<std::string>;
  CHECK(all(HostList("tux", "l")) == Hosts{"tux"});
  CHECK(all(HostList("tux1,tux2", "l")) == Hosts{"tux1", "tux2"});
  CHECK(all(HostList("tux[1-3,5]", "l")) == Hosts{"tux1", "tux2", "tux3", "tux5"});
  CHECK(all(HostList("n[08-11]", "l")) == Hosts{"n08", "n09", "n10", "n11"});
  CHECK(all(HostList("n[8-11]", "l")) == Hosts{"n8", "n9", "n10", "n11"});
  CHECK(all(HostList("n[001,1-2]", "l")) == Hosts{"n001", "n1", "n2"});
  CHECK(all(HostList("r[1-2]n[3,5]", "l")) == Hosts{"r1n3", "r1n5", "r2n3", "r2n5"});
  CHECK(all(HostList("a[1-2]-ib.example.org,login", "l")) ==
        Hosts{"a1-ib.example.org", "a2-ib.example.org", "login"});
  CHECK(all(HostList("[1-2]", "l")) == Hosts{"1", "2"});
  CHECK(all(HostList("x[1][2-3]", "l")) == Hosts{"x12", "x13"});
  CHECK(HostList("n[0-999999]", "l").size() == 1'000'000);
  CHECK(HostList("n[0-999999]", "l")[999'999] == "n999999");
  CHECK(HostList("n[000000000000000001]", "l")[0] == "n000000000000000001");
}

TEST_CASE("2,000 random Slurm lists equal a brute-force expansion") {
  std::mt19937 random(20'240'607);
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  for (int round = 0; round < 2'000; ++round) {
    std::string list;
    for (unsigned items = 1 + below(3); items-- > 0;) {
      if (!list.empty()) list += ',';
      for (unsigned parts = 1 + below(4); parts-- > 0;) {
        if (below(2) == 0) {
          list += std::string("n") + "abc-."[below(4)] + std::to_string(below(3));
          continue;
        }
        list += '[';
        for (unsigned ranges = 1 + below(3); ranges-- > 0;) {
          const unsigned first = below(3) == 0 ? below(2) : below(120);
          std::string low = std::to_string(first);
          low.insert(0, below(3), '0');
          list += low;
          if (below(2) == 0) list += "-" + std::to_string(first + below(12));
          if (ranges > 0) list += ',';
        }
        list += ']';
      }
    }
    CAPTURE(list);
    REQUIRE(all(HostList(list, "list")) == expand(list));
  }
}

TEST_CASE("an invalid Slurm list is refused with the position of the error") {
  struct Row {
    std::string text, fragment;
  };
  const Row rows[] = {
      {"", "NODELIST \"\" is empty"},
      {",", "has an empty entry at character 1"},
      {"a,", "has an empty entry at character 3"},
      {",a", "has an empty entry at character 1"},
      {"a,,b", "has an empty entry at character 3"},
      {"a[", "has no number"},
      {"a[]", "has no number"},
      {"a[1", "lacks a ']' at character 4"},
      {"a[1-", "has no number"},
      {"a[-1]", "has no number"},
      {"a[1-]", "has no number"},
      {"a[1,]", "has no number"},
      {"a[,1]", "has no number"},
      {"a[1-2-3]", "lacks a ']' at character 6"},
      {"a[2-1]", "has a descending range"},
      {"a[1 2]", "lacks a ']'"},
      {"a[x]", "has no number"},
      {"a[0x1]", "lacks a ']'"},
      {"a[1[2]]", "lacks a ']'"},
      {"a]", "has a character that a host name cannot contain at character 2"},
      {"a[1]]", "has a character that a host name cannot contain at character 5"},
      {"a b", "has a character that a host name cannot contain at character 2"},
      {"a;b", "has a character that a host name cannot contain"},
      {"a\n", "NODELIST \"a\\x0a\" has a character that a host name cannot contain"},
      {std::string("a\0b", 3), "has a character that a host name cannot contain at character 2"},
      {"\xc3\xb6", "has a character that a host name cannot contain"},
      {"(null)", "has a character that a host name cannot contain at character 1"},
      {"a[1000000000000000000]", "of more than 18 digits"},
      {"a[0-999999999999999999]", "has more than 1,000,000 hosts"},
      {"a[0-1000000]", "has more than 1,000,000 hosts"},
      {"a[0-999999],b", "has more than 1,000,000 hosts"},
      {"a[0-999][0-1000]", "has more than 1,000,000 hosts"},
      {"a[0-99][0-99][0-99][0-99]", "has more than 1,000,000 hosts"},
      {"a[0-600000,0-600000]", "has more than 1,000,000 hosts"},
      // 2^64 hosts.
      {"a[0-65535][0-65535][0-65535][0-65535]", "has more than 1,000,000 hosts"},
      {std::string(254, 'a'), "has a host name of more than 253 characters"},
      {std::string(250, 'a') + "[1-1000]", "has a host name of more than 253 characters"},
      {std::string(1'048'577, 'a'), "is longer than 1 MiB"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text.substr(0, 100));
    const std::string message = refusal(row.text);
    CAPTURE(message);
    CHECK(message.starts_with("NODELIST "));
    CHECK(message.find(row.fragment) != std::string::npos);
    CHECK(cluster_test::fit_to_print(message));
  }
}

TEST_CASE("tasks per node equal the examples in Slurm's manual") {
  const TasksPerNode tasks("2(x3),1", "T");
  CHECK(tasks.nodes() == 4);
  CHECK(tasks.tasks() == 7);
  CHECK(tasks[0] == 2);
  CHECK(tasks[2] == 2);
  CHECK(tasks[3] == 1);
  CHECK(TasksPerNode("4", "T").tasks() == 4);
  CHECK(TasksPerNode("1,2,3(x2)", "T").tasks() == 9);
  CHECK(TasksPerNode("0,2", "T").nodes() == 2);
  CHECK(TasksPerNode("1000(x1000000)", "T").tasks() == 1'000'000'000);
}

TEST_CASE("invalid tasks per node are refused") {
  struct Row {
    const char *text, *fragment;
  };
  const Row rows[] = {
      {"", "is empty"},
      {",", "has no number"},
      {"1,", "has no number"},
      {"a", "has no number"},
      {"-1", "has no number"},
      {"1 ", "has an unexpected character at character 2"},
      {"1(", "lacks a 'x'"},
      {"1(2)", "lacks a 'x'"},
      {"1(x", "has no number"},
      {"1(x)", "has no number"},
      {"1(x2", "lacks a ')'"},
      {"1(x0)", "has a repeat count of 0"},
      {"1(x1000001)", "has more than 1,000,000 nodes"},
      {"1(x999999),1(x2)", "has more than 1,000,000 nodes"},
      {"1001(x1000000)", "has more than 10^9 tasks"},
      {"999999999999999999(x999999)", "has more than 10^9 tasks"},
      {"1(x2)(x2)", "has an unexpected character"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    const std::string message = cluster_test::sentence([&] { TasksPerNode(row.text, "T"); });
    CAPTURE(message);
    CHECK(message.find(row.fragment) != std::string::npos);
  }
}
