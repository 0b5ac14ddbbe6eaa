/// \file
/// TimeDistributed: the layer alone, over a batch of all steps.
#include "lockstep/layers/recurrent/time_distributed.hpp"

#include <catch2/catch_test_macros.hpp>

#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace {

namespace ls = lockstep;
using Double = ls::Reference<double>;

/// Whether L on each of three steps, of two examples, does what L does on six examples.
template <class L>
bool acts_on_each_step(ls::Shape step) {
  const ls::Shape in{step.rank + 1, {3, step[0], step[1], step[2], 1}};
  const auto op = ls::TimeDistributed<L>::op(in);
  const auto alone = L::op(step);
  const auto x = testing::normal_values(2 * in.size(), 1),
             w = testing::normal_values(ls::detail::weights_of(alone), 2),
             dy = testing::normal_values(2 * op.out().size(), 3);
  // Dropout draws for example first_ordinal * steps + step.
  const auto each = testing::run_layer<Double>(op, 2, x, w, dy, {.first_ordinal = 5});
  const auto all = testing::run_layer<Double>(alone, 6, x, w, dy, {.first_ordinal = 15});
  return each.y == all.y && each.dx == all.dx && each.dw == all.dw;
}

struct Video
    : ls::Sequential<ls::Input<4, 6, 5, 2>, ls::TimeDistributed<ls::Conv2D<3, 3, ls::relu>>,
                     ls::TimeDistributed<ls::GlobalAveragePooling2D>, ls::LSTM<2>> {};

}  // namespace

TEST_CASE("TimeDistributed applies a layer to each step") {
  CHECK(acts_on_each_step<ls::Conv2D<3, 2, ls::same>>(ls::shape(4, 3, 2)));
  CHECK(acts_on_each_step<ls::MaxPooling2D<>>(ls::shape(4, 4, 2)));
  CHECK(acts_on_each_step<ls::Dropout<0.5>>(ls::shape(7)));
  CHECK(acts_on_each_step<ls::Conv1D<3, 2>>(ls::shape(4, 2)));
  STATIC_CHECK(Video::parameter_count == 3 * (9 * 2 + 1) + 4 * 2 * (3 + 2 + 1));
  STATIC_CHECK(Video::graph.node[1].is_activation);
}
