/// \file
/// CudaBFloat16's kernels of layers without matrix products, compared with Reference<double>.
#include "compare.hpp"

#include "unit/devices/bfloat16.hpp"
#include "unit/devices/synchronized.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("rescaling in bfloat16 agrees with the reference even far from zero") {
  activates_in_bfloat16<Tested, Rescaling<factor(0.1)>>();
}

TEST_CASE("normalization of the batch itself reads values that bfloat16 cannot represent") {
  TestGpu gpu;
  const auto op = Normalization::op(shape(3));
  const std::vector<float> x{1000.5f, 1001.5f, 999, 1002, 1000, 998.5f}, dy{1, 2, 3, 4, 5, 6},
      state{1000, 1000, 1000, 1, 4, 0.25f};
  const auto expected = run_layer<Reference<double>>(op, 2, as<double>(x), {}, as<double>(dy),
                                                     {.state = as<double>(state)});
  const auto result = run_layer<CudaBFloat16>(op, 2, x, {}, dy, {.is_batch = true, .state = state});
  CHECK(relative_error(result.y, expected.y) < half_tolerance);
  CHECK(relative_error(result.dx, expected.dx) < half_tolerance);
}

TEST_CASE(
    "synchronized normalization in bfloat16 over parts of a batch equals that of the whole batch") {
  TestGpu gpu;
  shares_are_one_batch<CudaBFloat16>(1e-2);
}
