/// \file
#include "lockstep/devices/cuda/ops/dense.hpp"

#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("dense layers of generated sizes agree with the reference") {
  Philox g(2);
  for (int i = 0; i < generated_shapes; ++i) {
    const DenseOp op{between(g, 1, 150), between(g, 1, 150), one_of(g, 0, 1) == 0, leading_axes(g)};
    const auto count = static_cast<std::size_t>(between(g, 0, 9));
    INFO(op.inputs << " -> " << op.units << (op.bias ? ", bias, " : ", ") << op.rows() << " rows");
    check_against_reference(op, count, numbers(op, op.in().size(), op.weights(), count));
  }
}

TEST_CASE("a dense layer of many inputs and a large batch, whose sums are cut, agrees") {
  for (const auto& op : {DenseOp{1100, 10, true}, DenseOp{7, 600, true}}) {
    INFO(op.inputs << " -> " << op.units);
    check_against_reference(op, 300, numbers(op, op.in().size(), op.weights(), 300));
  }
}

TEST_CASE("a dense layer without examples gives a weight gradient of zero") {
  TestGpu gpu;
  const auto op = Dense<3>::op(shape(4));
  CHECK(run<Cuda>(op, 0, numbers(op, 4, 15, 0)).dw == std::vector<float>(15, 0.0f));
}

TEST_CASE("a product is cut into tiles that fit and ranges that are not too long") {
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
  CHECK(std::int64_t{cut.parts} * 512 * 512 * 4 <= ProductCut::most_scratch);
  cut.choose_parts({64, 64, 16 * 128}, 132);
  CHECK(cut.parts == 16);
}
