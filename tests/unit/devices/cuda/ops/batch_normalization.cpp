/// \file
#include "lockstep/layers/normalization/batch_normalization.hpp"

#include "unit/devices/cuda/compare.hpp"

#include "unit/devices/batch_normalization.hpp"

TEST_CASE("a recomputed forward pass gives the same result and leaves the state unchanged") {
  TestGpu gpu;
  using K = Kernel<BatchNormalizationOp, Cuda>;
  constexpr auto op = BatchNormalization<>::op(shape(9, 5));
  const auto n = numbers(op, 45, 10, 4);
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  DeviceArray<Cuda, float> x(context, n.x), w(context, n.w), y(context, n.x.size()),
      state(context, std::vector<float>(10, 0.5f));
  DeviceArray<Cuda, std::byte> once(context, K::saved_once(op));
  auto prepared = K::prepare(op, context, 4);
  DeviceArray<Cuda, std::byte> scratch(context, prepared.scratch_bytes());
  GroupOfOne group;
  StepContext step{whole_batch(4), true, 0, 0, CollectiveRef(group)};
  const float* const input = x.data();
  float* const no_gradient = nullptr;
  const Io<Cuda> io{step,     context,      7,       &input,      y.data(),
                    w.data(), state.data(), nullptr, once.data(), scratch.data(),
                    nullptr,  &no_gradient, nullptr};
  K::forward(op, io, prepared);
  const auto first = y.download(), moved = state.download();
  CHECK(moved != std::vector<float>(10, 0.5f));
  y.poison();
  step.is_recompute = true;
  K::forward(op, io, prepared);
  CHECK(y.download() == first);
  CHECK(state.download() == moved);
}
