/// \file
/// Kernels of the Cpu do not allocate after their first run.
#include "support/allocation_counter.hpp"

#include <array>
#include <memory>
#include <vector>

#include "compare.hpp"
#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/layers/layers.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// Number of allocations in three forward and backward passes after the first.
template <class O>
std::size_t allocations_of(const O& op, std::size_t in, std::size_t weights, int threads) {
  using K = Kernel<O, Cpu>;
  constexpr std::size_t count = 8;
  auto context = Cpu{.threads = threads}.open(1, 0);
  const auto scope = context.scope();
  Numbers n = numbers(op, in, weights, count);
  std::vector<float> x = n.x, y(n.dy.size()), dx(n.x.size()), dx2(n.x.size()), dw(n.w.size());
  std::vector<std::byte> saved(count * K::saved(op)), once(K::saved_once(op));
  GroupOfOne group;
  const StepContext step{whole_batch(count), true, 1, 0, CollectiveRef(group)};
  const std::array<const float*, 2> inputs{x.data(), x.data()};
  const std::array<float*, 2> gradients{dx.data(), dx2.data()};
  Io<Cpu> io{step,     context,      1,           inputs.data(), y.data(),    n.w.data(),
             nullptr,  saved.data(), once.data(), nullptr,       n.dy.data(), gradients.data(),
             dw.data()};
  const std::array<std::size_t, 2> sizes{in, op.out().size() - in};  // of a Concatenate
  io.x_size = sizes.data();
  using Calls = lockstep::detail::KernelCalls<O, Cpu>;
  const auto prepared = Calls::prepare(&op, context, count);
  std::vector<std::byte> scratch(prepared.scratch_bytes + 64);
  void* p = scratch.data();
  std::size_t room = scratch.size();
  io.scratch = static_cast<std::byte*>(std::align(64, prepared.scratch_bytes, p, room));
  const auto run = [&] {
    Calls::forward(&op, io, prepared.state.get());
    Calls::backward(&op, io, prepared.state.get());
  };
  run();
  const AllocationCounter counter;
  for (int i = 0; i < 3; ++i) run();
  return counter.count();
}

}  // namespace

TEST_CASE("the counter counts an allocation") {
  const AllocationCounter counter;
  ::operator delete(::operator new(8));
  CHECK(counter.count() == 1);
}

TEST_CASE("kernels allocate nothing after their first run") {
  for (const int threads : {1, 2}) {
    for (const int channels : {1, 8}) {
      const auto conv = Conv2D<8, 3, same>::op(shape(9, 9, channels));
      CHECK(allocations_of(conv, conv.in.size(), conv.kernel_size() + 8, threads) == 0);
      const ConvReLUOp fused{conv, ReLU::op(conv.out())};
      CHECK(allocations_of(fused, conv.in.size(), conv.kernel_size() + 8, threads) == 0);
    }
    const auto dense = Dense<9>::op(shape(30));
    CHECK(allocations_of(dense, 30, dense.kernel_size() + 9, threads) == 0);
    CHECK(allocations_of(DenseReLUOp{dense, ReLU::op(shape(9))}, 30, dense.kernel_size() + 9,
                         threads) == 0);
    const Shape image = shape(16, 16, 12);
    CHECK(allocations_of(MaxPooling2D<>::op(image), image.size(), 0, threads) == 0);
    CHECK(allocations_of(AveragePooling2D<>::op(image), image.size(), 0, threads) == 0);
    CHECK(allocations_of(GlobalAveragePooling2D::op(image), image.size(), 0, threads) == 0);
    CHECK(allocations_of(ReLU::op(image), image.size(), 0, threads) == 0);
    CHECK(allocations_of(GELU::op(image), image.size(), 0, threads) == 0);
    CHECK(allocations_of(Softmax::op(shape(10)), 10, 0, threads) == 0);
    CHECK(allocations_of(LogSoftmax::op(shape(10)), 10, 0, threads) == 0);
    CHECK(allocations_of(AddOp{image}, image.size(), 0, threads) == 0);
    CHECK(allocations_of(ConcatenateOp{image, 12}, image.size(), 0, threads) == 0);
    for (const int multiplier : {1, 2}) {
      const DepthwiseConv2DOp depthwise{image, multiplier, {3, 3}, {1, 1}, {1, 1}, same, false};
      const std::size_t weights = depthwise.kernel_size();
      CHECK(allocations_of(depthwise, image.size(), weights, threads) == 0);
      CHECK(allocations_of(SeparableConv2DOp{depthwise, 8, true}, image.size(),
                           weights + static_cast<std::size_t>(depthwise.filters()) * 8 + 8,
                           threads) == 0);
    }
    const auto transposed = Conv2DTranspose<8, 3, same, strides(2)>::op(image);
    CHECK(allocations_of(transposed, image.size(), transposed.kernel_size() + 8, threads) == 0);
    CHECK(allocations_of(UpSampling2D<>::op(image), image.size(), 0, threads) == 0);
    CHECK(allocations_of(UpSampling2D<2, bilinear>::op(image), image.size(), 0, threads) == 0);
    CHECK(allocations_of(SpatialDropout2D<rate(0.5f)>::op(image), image.size(), 0, threads) == 0);
    CHECK(allocations_of(GaussianNoise<stddev(0.5f)>::op(image), image.size(), 0, threads) == 0);
  }
}
