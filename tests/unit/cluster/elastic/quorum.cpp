#include "lockstep/cluster/elastic/quorum.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <vector>

using lockstep::detail::MachineId;
using lockstep::detail::Quorum;

namespace {

Quorum on(const std::vector<std::size_t>& layout) {
  std::vector<MachineId> ids;
  for (const std::size_t machine : layout) ids.push_back({static_cast<std::uint8_t>(machine + 1)});
  return Quorum(ids);
}

std::vector<bool> bits(std::size_t set, std::size_t n) {
  std::vector<bool> result(n);
  for (std::size_t i = 0; i < n; ++i) result[i] = (set >> i & 1) != 0;
  return result;
}

}  // namespace

TEST_CASE("a quorum is more than half of the members, or half with the machine of rank 0") {
  const Quorum four = on({7, 7, 3, 3});
  CHECK(four.size() == 2);
  CHECK(four.machine_of(0) == 0);
  CHECK(four.machine_of(3) == 1);
  CHECK(four.reached({true, false}));
  CHECK_FALSE(four.reached({false, true}));
  const Quorum three = on({0, 1, 1});
  CHECK_FALSE(three.reached({true, false}));
  CHECK(three.reached({false, true}));
  CHECK_FALSE(three.reached({false, false}));
}

TEST_CASE("any two quorums of a generation have a machine in common") {
  for (std::size_t members = 1; members <= 6; ++members) {
    std::size_t layouts = 1;
    for (std::size_t i = 0; i < members; ++i) layouts *= members;
    for (std::size_t number = 0; number < layouts; ++number) {
      std::vector<std::size_t> layout;
      for (std::size_t rest = number; layout.size() < members; rest /= members)
        layout.push_back(rest % members);
      const Quorum quorum = on(layout);
      const std::size_t sets = std::size_t{1} << quorum.size();
      // A disjoint set that is also one is in the complement, so the complement would be one.
      for (std::size_t set = 0; set < sets; ++set)
        if (quorum.reached(bits(set, quorum.size())) &&
            quorum.reached(bits(sets - 1 - set, quorum.size())))
          FAIL("two disjoint quorums of " << members << " members, layout " << number);
      if (!quorum.reached(bits(sets - 1, quorum.size())))
        FAIL("all machines together must be a quorum");
    }
  }
}
