#include "lockstep/model/plan/output_blocks.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/model/plan/steps.hpp"

using namespace passes;

TEST_CASE("a block has the most rows that fill its bytes, in steps of 16") {
  CHECK(rows_of_block(50'257, 4) == 160);  // 166 fit into 32 MiB
  CHECK(rows_of_block(50'257, 2) == 320);
  CHECK(rows_of_block(8192, 4) == 1024);
  CHECK(rows_of_block(10'000'000, 4) == 16);  // they need more
}

TEST_CASE("blocks and their gradients follow each other in the memory of the step") {
  const OutputBlocks same = output_blocks(lockstep::shape(3, 5, 7), 4, 128, 4, 4, {});
  CHECK(same.rows == 4);
  CHECK(same.width == 7);
  CHECK(same.rows_per_example == 15);
  CHECK(same.logits == 128);
  CHECK(same.slopes == 256);  // 112 bytes in lines of 64
  CHECK(same.output == same.logits);
  CHECK(same.gradient == same.slopes);
  CHECK(same.block_bytes == 256);
  CHECK(!same.unsafe);
  const OutputBlocks converted = output_blocks(lockstep::shape(7), 4, 0, 2, 4, {});
  CHECK(converted.slopes == 64);
  CHECK(converted.output == 128);
  CHECK(converted.gradient == 256);
  CHECK(converted.block_bytes == 384);
  CHECK(!OutputBlocks{}.any());
}

TEST_CASE("the last block has the rows that are left") {
  const OutputBlocks b = output_blocks(lockstep::shape(3, 7), 4, 0, 4, 4, {});
  CHECK(b.first(5) == 4);
  CHECK(b.rest(5) == 3);
  CHECK(b.first(4) == 4);
  CHECK(b.rest(4) == 0);
  CHECK(b.first(1) == 3);
  CHECK(b.rest(1) == 0);
  CHECK(b.first(0) == 0);
  CHECK(b.rest(0) == 0);
}

TEST_CASE("a kernel with data of its own cannot run in blocks") {
  CHECK(output_blocks(lockstep::shape(7), 4, 0, 4, 4, {.saved = 64}).unsafe);
  CHECK(output_blocks(lockstep::shape(7), 4, 0, 4, 4, {.once = 64}).unsafe);
  CHECK(output_blocks(lockstep::shape(7), 4, 0, 4, 4, {.in_place = true}).unsafe);
  CHECK(output_blocks(lockstep::shape(7), 4, 0, 4, 4, {.exchanges = true}).unsafe);
  CHECK(output_blocks(lockstep::shape(7), 4, 0, 4, 4, {.updates_state = true}).unsafe);
}

TEST_CASE("the operand of the last step, and its gradient, live from its forward to its backward") {
  Steps s;
  const ValueId x = s.add(ValueId::batch);
  const ValueId y = s.add(x);
  s.add(y);
  const Timetable<size> times = timetable_of(s.list, s.needs);
  const Sharing<size> sharing = sharing_of(s.list, s.needs, false);
  const Bytes bytes{0, 100, 200, 0};
  auto l = lifetimes_of<false>(s.list, s.needs, times, sharing, bytes);
  hold_for_blocks(l, bytes);
  // Times: a, b, c, loss, back c, back b, back a.
  CHECK(l.activation(y).from == 1);
  CHECK(l.activation(y).to == 4);
  CHECK(l.gradient(y).from == 2);
  CHECK(l.gradient(y).to == 5);
  CHECK(l.activation(x).to == 1);
}
