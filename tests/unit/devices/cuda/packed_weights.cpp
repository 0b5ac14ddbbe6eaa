/// \file
/// Which pass converts the weights to the library's order and type: the first one of a step that
/// the library runs. The libraries record calls and compute nothing.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <vector>

#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/ops/convolution/conv2d.hpp"
#include "lockstep/devices/cuda/ops/convolution/conv2d_transpose.hpp"
#include "lockstep/devices/cuda/ops/dense.hpp"
#include "support/autotuner_times.hpp"
#include "support/fake_cublaslt.hpp"
#include "support/fake_cudnn.hpp"
#include "support/host_gpu.hpp"
#include "support/kernel_cache.hpp"
#include "support/run_kernel.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;
using testing::DeviceArray, testing::FakeCublasLt, testing::FakeCudnn, testing::HostGpu;

namespace {

/// Times of three algorithms of a library and our product.
void add_times(std::vector<float>& times, bool library) {
  testing::add_tuning_times(times, {0.2f, 0.3f, 0.4f, library ? 0.5f : 0.1f});
}

/// A forward and a backward pass of `op`, with y and dx by the library or by our own product.
/// `calls()` counts the library's products.
template <class Precision, class Op, class Calls>
void check_packs(HostGpu& gpu, const Op& op, std::size_t inputs, std::size_t weights,
                 const Calls& calls) {
  using D = BasicCuda<Precision>;
  using A = typename Precision::activation;
  using K = Kernel<Op, D>;
  CudaContext context = D{}.open(1, 0);
  const auto scope = context.scope();
  testing::GroupOfOne group;
  std::size_t count = 2;
  for (const bool y_by_library : {true, false})
    for (const bool dx_by_library : {true, false}) {
      INFO("y by the library: " << y_by_library << ", dx: " << dx_by_library);
      ++count;  // different work, with nothing cached
      gpu.times.clear();
      for (const bool library : {y_by_library, dx_by_library, true}) add_times(gpu.times, library);
      auto prepared = K::prepare(op, context, count);
      REQUIRE(gpu.times.empty());
      DeviceArray<D, A> x(context, std::vector<A>(count * inputs, A(1.0f))),
          y(context, std::vector<A>(count * op.out().size(), A(1.0f))),
          dy(context, std::vector<A>(count * op.out().size(), A(1.0f))),
          dx(context, count * inputs);
      DeviceArray<D, float> w(context, std::vector<float>(weights, 1.0f)), dw(context, weights);
      DeviceArray<D, std::byte> once(context, K::saved_once(op)),
          scratch(context, prepared.scratch_bytes());
      const StepContext step{whole_batch(count), true, 1, 0, CollectiveRef(group)};
      const A* const input = x.data();
      A* input_gradient = nullptr;
      Io<D> io{step,     context,         7,       &input,      y.data(),
               w.data(), nullptr,         nullptr, once.data(), scratch.data(),
               nullptr,  &input_gradient, nullptr};
      /// Whether `run` packs weights and makes this number of calls.
      const auto packs = [&](std::size_t products, const auto& run) {
        once.poison();
        const std::size_t before = calls();
        run();
        context.synchronize();
        CHECK(calls() - before == products);
        return once.download().front() != std::byte{0xFF};
      };
      CHECK(packs(y_by_library ? 1 : 0, [&] { K::forward(op, io, prepared); }) == y_by_library);
      io.dy = dy.data();
      input_gradient = dx.data();
      io.dw = dw.data();
      CHECK(packs(dx_by_library ? 2 : 1, [&] { K::backward(op, io, prepared); }) ==
            (dx_by_library && !y_by_library));
    }
}

template <class Op>
void check_convolution(const Op& op) {
  const testing::OwnKernelCache cache;
  HostGpu gpu;
  FakeCudnn cudnn;
  check_packs<Float32>(gpu, op, op.in.size(),
                       op.kernel_size() + static_cast<std::size_t>(op.filters),
                       [&] { return cudnn.count("cudnnBackendExecute"); });
}

}  // namespace

TEST_CASE("the first of a convolution's y and dx that runs on cuDNN packs the weights") {
  check_convolution(Conv2D<4, 3>::op(shape(6, 6, 2)));
}

TEST_CASE("the first of a transposed convolution's y and dx that runs on cuDNN packs the weights") {
  check_convolution(Conv2DTranspose<4, 3>::op(shape(6, 6, 2)));
}

TEST_CASE("the first of a dense layer's y and dx that runs on cuBLASLt packs the weights") {
  const testing::OwnKernelCache cache;
  HostGpu gpu;
  FakeCublasLt lt;
  const DenseOp op{5, 8, true};
  check_packs<MixedBFloat16>(gpu, op, 5, op.kernel_size() + 8,
                             [&] { return lt.count("cublasLtMatmul"); });
}
