#include "lockstep/model/plan/timetable.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/model/plan/steps.hpp"

using namespace passes;

TEST_CASE("backward follows the loss in reverse") {
  Steps s;
  s.add(s.add(s.add(ValueId::batch)));
  const Timetable<size> t = timetable_of(s.list, s.needs);
  CHECK(t.back[c] == 4);
  CHECK(t.back[b] == 5);
  CHECK(t.back[a] == 6);
  CHECK(t.end == 7);
  for (const StepId i : {a, b, c}) {
    CHECK_FALSE(t.is_recomputed[i]);
    CHECK_FALSE(exists(t.segment_begin[i]));
  }
}

TEST_CASE("a model without steps has the loss only") {
  const Steps none;
  CHECK(timetable_of(none.list, none.needs).end == 1);
}

TEST_CASE("the steps that a block's backward reads are recomputed just before it") {
  Steps s;
  const ValueId first = s.add(ValueId::batch, {}, {}, 0);
  s.add(s.add(first, {.keeps_x = true}, {}, 0));
  const Timetable<size> t = timetable_of(s.list, s.needs);
  CHECK(t.back[c] == 4);
  CHECK(t.is_recomputed[a]);
  CHECK(t.recompute_time[a] == 5);
  CHECK_FALSE(t.is_recomputed[b]);
  CHECK(t.back[b] == 6);
  CHECK(t.back[a] == 7);
  CHECK(t.end == 8);
  CHECK(t.segment_begin[b] == a);
  CHECK_FALSE(exists(t.segment_begin[a]));
}

TEST_CASE("a step whose output only the block's forward reads is not recomputed") {
  Steps s;
  s.add(s.add(s.add(ValueId::batch, {}, {}, 0), {}, {}, 0));
  const Timetable<size> t = timetable_of(s.list, s.needs);
  CHECK_FALSE(t.is_recomputed[a]);
  CHECK_FALSE(t.is_recomputed[b]);
}

TEST_CASE("a step that saves data is recomputed, with the steps before it in its block") {
  Steps s;
  const ValueId outside = s.add(ValueId::batch);
  const ValueId first = s.add(outside, {}, {}, 0);
  s.add(s.add(first, {.saved = 4}, {}, 0));
  const Timetable<size> t = timetable_of(s.list, s.needs);
  CHECK(t.is_recomputed[c]);
  CHECK(t.is_recomputed[b]);
  CHECK_FALSE(t.is_recomputed[a]);
  CHECK(t.recompute_time[b] == 6);
  CHECK(t.recompute_time[c] == 7);
  CHECK(t.segment_begin[c] == b);
}

TEST_CASE("a block's output that is kept and read by others is not recomputed") {
  Steps s;
  s.add(s.add(ValueId::batch, {.keeps_y = true}, {}, 0));
  CHECK_FALSE(timetable_of(s.list, s.needs).is_recomputed[a]);
  Steps inner;
  inner.add(inner.add(ValueId::batch, {.keeps_y = true}, {}, 0), {}, {}, 0);
  CHECK(timetable_of(inner.list, inner.needs).is_recomputed[a]);
}
