#include "lockstep/model/index.hpp"

#include <catch2/catch_test_macros.hpp>

namespace {

using namespace lockstep::detail;

template <class T, class Id>
concept OpenedBy = requires(T& table, Id id) { table[id]; };

using Times = Table<StepId, int, 3>;
static_assert(OpenedBy<Times, StepId>);
static_assert(!OpenedBy<Times, ValueId> && !OpenedBy<Times, int> && !OpenedBy<Times, std::size_t>);

}  // namespace

TEST_CASE("a table has one item per index, in order") {
  constexpr Times times = [] {
    Times t;
    for (StepId i{}; i < StepId{3}; ++i) t[i] = 10 * static_cast<int>(i);
    return t;
  }();
  int expected = 0;
  for (const int time : times) {
    CHECK(time == expected);
    expected += 10;
  }
  CHECK(expected == 30);
}

TEST_CASE("steps can be iterated in reverse") {
  int seen = 0;
  for (StepId i = before(StepId{3}); exists(i); --i) seen = 10 * seen + static_cast<int>(i);
  CHECK(seen == 210);
  CHECK_FALSE(exists(before(StepId{})));
}

TEST_CASE("the batch is not computed") {
  CHECK_FALSE(is_computed(ValueId::batch));
  CHECK(is_computed(ValueId{1}));
}
