#include "lockstep/model/plan/sharing.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/model/plan/steps.hpp"

using namespace passes;

namespace {

constexpr Kept in_place{.in_place = true}, over_x{.dx_in_place = true};

}  // namespace

TEST_CASE("a value has its own memory unless its step works in place") {
  Steps s;
  const ValueId x = s.add(ValueId::batch);
  const ValueId y = s.add(x, in_place), z = s.add(y, in_place);
  const ValueId last = s.add(z);
  const Sharing<size> sharing = sharing_of(s.list, s.needs, false);
  CHECK(sharing.memory[x] == x);
  CHECK(sharing.memory[y] == x);
  CHECK(sharing.memory[z] == x);
  CHECK(sharing.memory[last] == last);
}

TEST_CASE("no step overwrites a value that is still needed") {
  const auto is_in_place = [](const Steps& s, ValueId y) {
    return sharing_of(s.list, s.needs, false).memory[y] != y;
  };
  Steps batch;
  CHECK_FALSE(is_in_place(batch, batch.add(ValueId::batch, in_place)));
  Steps producer;
  CHECK_FALSE(is_in_place(producer,
                          producer.add(producer.add(ValueId::batch, {.keeps_y = true}), in_place)));
  Steps kernel;
  CHECK_FALSE(is_in_place(
      kernel, kernel.add(kernel.add(ValueId::batch), {.keeps_x = true, .in_place = true})));
  Steps reader;
  const ValueId x = reader.add(ValueId::batch), y = reader.add(x, in_place);
  reader.add(y, {}, {x});
  CHECK_FALSE(is_in_place(reader, y));
  Steps block;  // recomputed from x
  CHECK_FALSE(is_in_place(block, block.add(block.add(ValueId::batch), in_place, {}, 0)));
}

TEST_CASE("a gradient overwrites a value that is no longer needed") {
  Steps s;
  const ValueId x = s.add(ValueId::batch);
  s.add(x, over_x);
  CHECK(sharing_of(s.list, s.needs, false).gradient_overwrites_value[x]);
  CHECK_FALSE(sharing_of(s.list, s.needs, false).gradient_overwrites_value[ValueId::batch]);
  CHECK_FALSE(sharing_of(s.list, s.needs, true).gradient_overwrites_value[x]);
}

TEST_CASE("a gradient does not overwrite a value that is shared or kept") {
  const auto takes = [](const Steps& s, ValueId x) {
    return sharing_of(s.list, s.needs, false).gradient_overwrites_value[x];
  };
  Steps shared;
  const ValueId x = shared.add(ValueId::batch), y = shared.add(x, in_place);
  shared.add(y, over_x);
  CHECK_FALSE(takes(shared, y));
  Steps kept;
  const ValueId z = kept.add(ValueId::batch, {.keeps_y = true});
  kept.add(z, over_x);
  CHECK_FALSE(takes(kept, z));
  Steps twice;
  const ValueId v = twice.add(ValueId::batch);
  twice.add(twice.add(v, over_x), {}, {v});
  CHECK_FALSE(takes(twice, v));
}
