#include "lockstep/strategies/virtual_shards.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <string>
#include <vector>

namespace {

std::string refusal(std::size_t shards, std::size_t replicas) {
  try {
    lockstep::detail::check_virtual_shards(shards, replicas);
  } catch (const lockstep::UsageError& e) {
    return e.what();
  }
  return "";
}

std::string no_power(const std::string& shards) {
  return "virtual_shards: " + shards +
         " slices; use a power of two up to 4096, or 0 for one slice a replica";
}
std::string not_shared(const std::string& shards, const std::string& replicas) {
  return "virtual_shards: " + shards + " slices cannot be shared by " + replicas +
         " replicas; use 1, 2, 4, ... replicas, at most as many as slices";
}

struct Threaded {
  int other = 7;
  std::size_t threads = 0;
};
struct Plain {
  int other = 7;
};

}  // namespace

TEST_CASE("slices that replicas can share as subtrees of one tree are accepted") {
  for (std::size_t shards = 1; shards <= 4096; shards *= 2)
    for (std::size_t replicas = 1; replicas <= shards; replicas *= 2) {
      INFO(shards << " slices, " << replicas << " replicas");
      CHECK(refusal(shards, replicas) == "");
    }
}

TEST_CASE("0 slices do not restrict the number of replicas") {
  for (const std::size_t replicas : {1u, 2u, 3u, 7u, 100u, 256u}) CHECK(refusal(0, replicas) == "");
}

TEST_CASE("all other numbers are refused, with the numbers and the remedy") {
  struct Case {
    std::size_t shards, replicas;
    std::string sentence;
  };
  const std::vector<Case> table{
      {3, 1, no_power("3")},
      {6, 2, no_power("6")},
      {7, 7, no_power("7")},
      {12, 4, no_power("12")},
      {4095, 1, no_power("4095")},
      {4097, 1, no_power("4097")},
      {8192, 8, no_power("8192")},
      {static_cast<std::size_t>(-1), 1, no_power("18446744073709551615")},
      {std::size_t{1} << 63, 1, no_power("9223372036854775808")},
      {1, 2, not_shared("1", "2")},
      {2, 4, not_shared("2", "4")},
      {4, 8, not_shared("4", "8")},
      {8, 3, not_shared("8", "3")},
      {8, 5, not_shared("8", "5")},
      {8, 6, not_shared("8", "6")},
      {8, 7, not_shared("8", "7")},
      {4, 3, not_shared("4", "3")},
      {128, 256, not_shared("128", "256")},
      {256, 100, not_shared("256", "100")},
      {8, 0, not_shared("8", "0")},
  };
  for (const Case& c : table) {
    INFO(c.shards << " slices, " << c.replicas << " replicas");
    CHECK(refusal(c.shards, c.replicas) == c.sentence);
  }
}

TEST_CASE("a device with threads at 0 or 1 computes a slice with one thread") {
  for (const std::size_t threads : {0u, 1u}) {
    const Threaded device =
        lockstep::detail::of_one_thread(Threaded{.other = 3, .threads = threads});
    CHECK(device.threads == 1);
    CHECK(device.other == 3);
  }
}

TEST_CASE("a device with more threads is refused, with their number") {
  std::string sentence;
  try {
    lockstep::detail::of_one_thread(Threaded{.threads = 4});
  } catch (const lockstep::UsageError& e) {
    sentence = e.what();
  }
  CHECK(sentence ==
        "virtual_shards: a slice is computed by one thread, not by 4; leave the device's threads "
        "at 0, or set 1");
}

TEST_CASE("a device without a number of threads is unchanged") {
  CHECK(lockstep::detail::of_one_thread(Plain{.other = 3}).other == 3);
}
