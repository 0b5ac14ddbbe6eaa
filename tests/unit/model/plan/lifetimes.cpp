#include "lockstep/model/plan/lifetimes.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/model/plan/steps.hpp"

using namespace passes;

namespace {

constexpr Bytes bytes{0, 100, 200, 300, 400};

/// The preceding passes.
template <bool Recomputes>
struct Passes {
  Steps steps;
  Timetable<size> times = timetable_of(steps.list, steps.needs);
  Sharing<size> sharing = sharing_of(steps.list, steps.needs, Recomputes);
  /// The result refers to the members above.
  Lifetimes<size, operands, Recomputes> lifetimes() const {
    return lifetimes_of<Recomputes>(steps.list, steps.needs, times, sharing, bytes);
  }
};

bool lives(const ArenaBuffer& buffer, int from, int to) {
  return buffer.used() && buffer.from == from && buffer.to == to;
}

}  // namespace

TEST_CASE("a value lives until its last reader, in forward or backward") {
  Steps s;
  const ValueId x = s.add(ValueId::batch);
  const ValueId y = s.add(x, {.keeps_x = true});
  const ValueId z = s.add(y, {.keeps_y = true});
  const Passes<false> p{s};
  auto l = p.lifetimes();
  // Times: a, b, c, loss, back c, back b, back a.
  CHECK(lives(l.activation(x), 0, 5));
  CHECK(lives(l.activation(y), 1, 2));
  CHECK(lives(l.activation(z), 2, 4));
  CHECK(l.activation(x).size == 128);
  CHECK(lives(l.gradient(z), 3, 4));
  CHECK(lives(l.gradient(y), 4, 5));
  CHECK(lives(l.gradient(x), 5, 6));
  for (const StepId i : {a, b, c}) {
    CHECK_FALSE(l.saved(i).used());
    CHECK_FALSE(l.temporary(operand_of(s.list.step[i])).used());
    CHECK_FALSE(l.adds_dx[operand_of(s.list.step[i])]);
  }
  CHECK_FALSE(l.gradient(ValueId::batch).used());
}

TEST_CASE("saved data lives from forward to backward") {
  Steps s;
  s.add(s.add(ValueId::batch, {.saved = 70}));
  const Passes<false> p{s};
  auto l = p.lifetimes();
  CHECK(lives(l.saved(a), 0, 4));
  CHECK(l.saved(a).size == 128);
  CHECK_FALSE(l.saved(b).used());
}

TEST_CASE("the second gradient of a value is written to a temporary buffer") {
  Steps s;
  const ValueId x = s.add(ValueId::batch), y = s.add(x);
  s.add(y, {}, {x});
  const Passes<false> p{s};
  auto l = p.lifetimes();
  // Times: a, b, c, loss, back c, back b, back a. c writes the gradient of x first, b adds its own.
  const std::size_t of_b = operand_of(s.list.step[b]), of_c = operand_of(s.list.step[c]);
  CHECK_FALSE(l.adds_dx[of_c]);
  CHECK_FALSE(l.adds_dx[of_c + 1]);
  CHECK(l.adds_dx[of_b]);
  CHECK(lives(l.temporary(of_b), 5, 5));
  CHECK_FALSE(l.temporary(of_c + 1).used());
  CHECK(lives(l.gradient(x), 4, 6));
}

TEST_CASE("a value, its in-place result and a gradient written over it are one buffer") {
  Steps s;
  const ValueId x = s.add(ValueId::batch);
  s.add(x, {.dx_in_place = true});
  const Passes<false> p{s};
  auto l = p.lifetimes();
  CHECK(&l.gradient(x) == &l.activation(x));
  CHECK(lives(l.activation(x), 0, 4));
}

TEST_CASE("a recomputed value has two lifetimes and a buffer for each") {
  Steps s;
  const ValueId x = s.add(ValueId::batch, {}, {}, 0);
  const ValueId y = s.add(x, {.keeps_x = true, .saved = 8}, {}, 0);
  s.add(y);
  const Passes<true> p{s};
  auto l = p.lifetimes();
  // Times: a, b, c, loss, back c, recompute a, recompute b, back b, back a.
  CHECK(lives(l.activation(x), 0, 1));
  CHECK(&l.recomputed(x, b) != &l.activation(x));
  CHECK(lives(l.recomputed(x, b), 5, 7));
  CHECK(lives(l.saved_forward(b), 1, 1));
  CHECK(lives(l.saved(b), 6, 7));
  // Steps of other blocks read the value of the first forward.
  CHECK(&l.recomputed(y, c) == &l.activation(y));
}
