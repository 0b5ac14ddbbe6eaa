#include <array>
#include <catch2/catch_test_macros.hpp>

#include "golden/optimizers.hpp"
#include "lockstep/cuda.hpp"
#include "support/test_gpu.hpp"

/// A user-defined loss.
template <>
struct lockstep::CudaText<golden::PredictionOp> {
  static constexpr char functions[] = R"cuda(
__device__ float row(const float* p, const Target*, float* g, float scale, int lane) {
  if (g && lane == 0) g[0] = scale;
  return p[0];
}
)cuda";
  static std::array<CudaDefine, 0> defines(const golden::PredictionOp&) { return {}; }
};

TEST_CASE("Cuda's optimizers move the weights as Keras' do", "[golden]") {
  const testing::TestGpu gpu;
  golden::meets_optimizers<lockstep::Cuda>({{1, 0, 1}, {2, 4, 2}});
}
