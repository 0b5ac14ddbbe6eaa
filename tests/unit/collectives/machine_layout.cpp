#include "lockstep/collectives/machine_layout.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "members.hpp"

namespace {

using lockstep::MachineLayout;
using lockstep::SumOrder;
using Counts = std::vector<std::size_t>;
using Names = std::vector<std::string>;

/// The sum over all ranks by sums within machines, as text, so that the order of additions shows.
std::string sum(const MachineLayout& layout) {
  struct Term {
    std::string text;
    Term operator+(const Term& o) const { return {"(" + text + "+" + o.text + ")"}; }
  };
  const auto machine = [&](std::size_t m) {
    return contract::sum_of<Term>(SumOrder::tree, layout.first(m),
                                  layout.first(m) + layout.counts[m],
                                  [](std::size_t r) { return Term{std::to_string(r)}; });
  };
  return contract::sum_of<Term>(SumOrder::tree, 0, layout.machines(), machine).text;
}

}  // namespace

TEST_CASE("a layout has the machines in the order of ranks, whose processes must be neighbors") {
  CHECK(MachineLayout::of(Names{"a", "a", "b"}) == MachineLayout{{2, 1}});
  CHECK(MachineLayout::of(Names{"a"}) == MachineLayout{{1}});
  CHECK(MachineLayout::of(Names{"a", "b", "c", "c"}) == MachineLayout{{1, 1, 2}});
  CHECK_FALSE(MachineLayout::of(Names{"a", "b", "a", "b"}));
  CHECK_FALSE(MachineLayout::of(Names{"a", "a", "b", "a"}));
}

TEST_CASE("a layout numbers ranks machine by machine, and its lanes have one on each") {
  const MachineLayout layout{{3, 2, 2}};
  CHECK((layout.size() == 7 && layout.machines() == 3 && layout.most() == 3));
  CHECK(layout.lanes() == 2);
  CHECK(layout.first(2) == 5);
  CHECK((layout.machine_of(2) == 0 && layout.machine_of(3) == 1 && layout.machine_of(6) == 2));
  CHECK(layout.members(1) == Counts{3, 4});
  CHECK(layout.lane(0) == Counts{0, 3, 5});
  CHECK(layout.lane(1) == Counts{1, 4, 6});
}

TEST_CASE("the order of a tree is kept if each machine is a subtree, that of ranks always") {
  std::size_t kept = 0, all = 0;
  const auto check = [&](const Counts& counts) {
    const MachineLayout layout{counts};
    const MachineLayout flat{Counts(layout.size(), 1)};
    CHECK(layout.keeps(SumOrder::ranks));
    CHECK(layout.keeps(SumOrder::tree) == (sum(layout) == sum(flat)));
    ++all, kept += layout.keeps(SumOrder::tree);
  };
  for (std::size_t a = 1; a <= 4; ++a)
    for (std::size_t b = 1; b <= 4; ++b) {
      check({a, b});
      for (std::size_t c = 1; c <= 4; ++c) check({a, b, c}), check({a, b, c, 2});
    }
  check({4}), check({2, 2, 2, 2}), check({4, 4, 4, 4}), check({8, 8}), check({2, 2, 2, 2, 2, 2});
  CHECK((kept > 15 && kept < all));
}
