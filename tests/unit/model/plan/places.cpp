#include "lockstep/model/plan/places.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/model/plan/steps.hpp"

using namespace passes;

namespace {

constexpr Bytes bytes{0, 64, 128, 256, 512};

struct Placed {
  Table<StepId, PlacedStep, size> step;
  ArenaSize arena;
};

Placed place(const Steps& s) {
  Placed result;
  for (StepId i{}; i < s.list.end; ++i) static_cast<PlanStep&>(result.step[i]) = s.list.step[i];
  const auto times = timetable_of(s.list, s.needs);
  const auto sharing = sharing_of(s.list, s.needs, true);
  auto lifetimes = lifetimes_of<true>(s.list, s.needs, times, sharing, bytes);
  result.arena = place_all(result.step, lifetimes);
  return result;
}

}  // namespace

TEST_CASE("a step reads where the previous one wrote") {
  Steps s;
  s.add(s.add(s.add(ValueId::batch), {.keeps_x = true}));
  const Placed p = place(s);
  CHECK(p.step[a].reads_input);
  CHECK_FALSE(p.step[b].reads_input);
  CHECK_FALSE(p.step[a].reads_input2);
  CHECK(p.step[b].keeps_x);
  CHECK(p.step[b].forward.x == p.step[a].forward.y);
  CHECK(p.step[b].backward.x == p.step[b].forward.x);
  CHECK(p.step[c].forward.x == p.step[b].forward.y);
  CHECK(p.step[b].dy == p.step[c].dx);
  CHECK(p.step[a].dy == p.step[b].dx);
  CHECK(p.step[b].dx == p.step[b].dx_sum);
  CHECK(p.arena.arena < p.arena.arena_unshared);
  CHECK(p.arena.arena_unshared == 2 * (64 + 128 + 256));
}

TEST_CASE("no step computes a gradient that its input does not have") {
  Steps s;
  const ValueId x = s.add(ValueId::batch), y = s.add(x);
  s.add(y, {}, x);
  s.needs.has_gradient[x] = false;
  const Placed p = place(s);
  CHECK_FALSE(p.step[a].wants_dx);
  CHECK_FALSE(p.step[b].wants_dx);
  CHECK_FALSE(p.step[b].adds_dx);
  CHECK(p.step[c].wants_dx);
  CHECK_FALSE(p.step[c].wants_dx2);
}

TEST_CASE("a gradient to be added is first written to a temporary") {
  Steps s;
  const ValueId x = s.add(ValueId::batch), y = s.add(x);
  s.add(y, {}, x);
  const Placed p = place(s);
  CHECK(p.step[b].adds_dx);
  CHECK(p.step[b].dx != p.step[b].dx_sum);
  CHECK(p.step[b].dx_sum == p.step[c].dx2);
  CHECK_FALSE(p.step[c].adds_dx2);
  CHECK(p.step[c].dx2 == p.step[c].dx2_sum);
  CHECK(p.step[c].forward.x2 == p.step[a].forward.y);
}

TEST_CASE("per-step data is contiguous and aligned to cache lines") {
  Steps s;
  s.add(s.add(s.add(ValueId::batch, {.once = 100}), {}), {.once = 1});
  const Placed p = place(s);
  CHECK(p.step[c].once == 0);
  CHECK(p.step[c].saves_once);
  CHECK_FALSE(p.step[b].saves_once);
  CHECK(p.step[a].once == 64);
  CHECK(p.arena.once == 64 + 128);
}

TEST_CASE("a recomputed step saves to a different address than forward") {
  Steps s;
  s.add(s.add(s.add(ValueId::batch, {.saved = 64}, ValueId::none, 0), {.keeps_x = true},
              ValueId::none, 0));
  const Placed p = place(s);
  CHECK(p.step[a].is_recomputed);
  CHECK(p.step[a].saves);
  CHECK(p.step[b].segment_begin == a);
  CHECK(p.step[b].backward.x == p.step[a].backward.y);
}

TEST_CASE("random draws of a layer depend on its name and number") {
  Steps s;
  s.add(s.add(ValueId::batch));
  s.list.step[a].name = s.list.step[b].name = "dropout";
  s.list.step[b].ordinal = 1;
  const Placed p = place(s);
  CHECK(p.step[a].key != p.step[b].key);
  CHECK(p.step[a].key == lockstep::mix(lockstep::hash_name("dropout"), 0));
}
