/// \file
#include "lockstep/devices/cuda/ops/dense.hpp"

#include "unit/devices/cuda/compare.hpp"

#include "unit/devices/dense.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("a dense layer with split sums agrees with the reference") {
  for (const auto& op : {DenseOp{1100, 10, true}, DenseOp{7, 600, true}}) {
    INFO(op.inputs << " -> " << op.units);
    check_against_reference(op, 300, numbers(op, op.in().size(), op.weights(), 300));
  }
}

TEST_CASE("a product is divided into tiles that fit and ranges of limited length") {
  using lockstep::detail::cuda::ProductCut;
  using lockstep::detail::cuda::ProductSizes;
  ProductCut cut;
  cut.choose_tile({128, 10, 64}, true);
  CHECK(cut.tile_columns == 16);
  cut.choose_tile({128, 65, 64}, true);
  CHECK(cut.tile_columns == 16);
  cut.choose_tile({9, 1000, 64}, false);
  CHECK(cut.tile_rows == 16);
  cut.choose_tile({512, 512, 64}, false);
  CHECK(cut.tile_rows == 64);
  cut.choose_parts({512, 512, 1'000'000}, 4);
  CHECK(cut.depth_each % 16 == 0);
  CHECK(std::int64_t{cut.parts} * cut.depth_each >= 1'000'000);
  CHECK(std::int64_t{cut.parts - 1} * cut.depth_each < 1'000'000);
  CHECK(std::int64_t{cut.parts} * 512 * 512 * 4 <= ProductCut::max_scratch);
  cut.choose_parts({64, 64, 16 * 128}, 132);
  CHECK(cut.parts == 16);
}
