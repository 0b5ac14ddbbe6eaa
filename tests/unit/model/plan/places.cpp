#include "lockstep/model/plan/places.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>

#include "unit/model/plan/steps.hpp"

using namespace passes;

namespace {

constexpr Bytes bytes{0, 64, 128, 256, 512};

struct Placed {
  Table<StepId, PlacedStep, size> step;
  std::array<PlacedOperand, operands> operand;
  ArenaSize arena;

  const PlacedOperand& x(StepId i, std::size_t which = 0) const {
    return operand[operand_of(step[i], which)];
  }
};

Placed place(const Steps& s) {
  Placed result;
  for (StepId i{}; i < s.list.end; ++i) static_cast<PlanStep&>(result.step[i]) = s.list.step[i];
  const auto times = timetable_of(s.list, s.needs);
  const auto sharing = sharing_of(s.list, s.needs, true);
  auto lifetimes = lifetimes_of<true>(s.list, s.needs, times, sharing, bytes);
  result.arena = place_all(result.step, result.operand, lifetimes);
  return result;
}

}  // namespace

TEST_CASE("a step reads where the previous one wrote") {
  Steps s;
  s.add(s.add(s.add(ValueId::batch), {.keeps_x = true}));
  const Placed p = place(s);
  CHECK(p.x(a).is_batch);
  CHECK_FALSE(p.x(b).is_batch);
  CHECK(p.x(b).keeps);
  CHECK(p.x(b).forward == p.step[a].forward.y);
  CHECK(p.x(b).backward == p.x(b).forward);
  CHECK(p.x(c).forward == p.step[b].forward.y);
  CHECK(p.step[b].dy == p.x(c).dx);
  CHECK(p.step[a].dy == p.x(b).dx);
  CHECK(p.x(b).dx == p.x(b).dx_sum);
  CHECK(p.arena.arena < p.arena.arena_unshared);
  CHECK(p.arena.arena_unshared == 2 * (64 + 128 + 256));
}

TEST_CASE("no step computes a gradient that its input does not have") {
  Steps s;
  const ValueId x = s.add(ValueId::batch), y = s.add(x);
  s.add(y, {}, {x});
  s.needs.has_gradient[x] = false;
  for (std::size_t k = 0; k < operands; ++k)
    if (s.list.operand[k] == x) s.needs.operand[k].wants_dx = false;
  const Placed p = place(s);
  CHECK_FALSE(p.step[a].wants_dx);
  CHECK_FALSE(p.step[b].wants_dx);
  CHECK_FALSE(p.x(b).adds_dx);
  CHECK(p.step[c].wants_dx);
  CHECK(p.x(c).wants_dx);
  CHECK_FALSE(p.x(c, 1).wants_dx);
}

TEST_CASE("a gradient to be added is first written to a temporary") {
  Steps s;
  const ValueId x = s.add(ValueId::batch), y = s.add(x);
  s.add(y, {}, {x});
  const Placed p = place(s);
  CHECK(p.x(b).adds_dx);
  CHECK(p.x(b).dx != p.x(b).dx_sum);
  CHECK(p.x(b).dx_sum == p.x(c, 1).dx);
  CHECK_FALSE(p.x(c, 1).adds_dx);
  CHECK(p.x(c, 1).dx == p.x(c, 1).dx_sum);
  CHECK(p.x(c, 1).forward == p.step[a].forward.y);
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
  s.add(s.add(s.add(ValueId::batch, {.saved = 64}, {}, 0), {.keeps_x = true}, {}, 0));
  const Placed p = place(s);
  CHECK(p.step[a].is_recomputed);
  CHECK(p.step[a].saves);
  CHECK(p.step[b].segment_begin == a);
  CHECK(p.x(b).backward == p.step[a].backward.y);
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
