/// \file
/// Winograd kernel gradients: accuracy and equal bits.
#include "lockstep/devices/cpu/winograd/kernel_gradient.hpp"

#include "unit/devices/cpu/conv2d_3x3_ops.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// dw followed by db, as in a kernel's io.dw.
std::vector<float> gradient_of(const Conv2DOp& op, std::size_t count, const Numbers& n, int threads,
                               std::size_t bytes) {
  const lockstep::detail::WinogradKernelGradient<float> gradient(op, threads, bytes);
  HostMemory memory;
  const std::size_t size = gradient.scratch_bytes();
  std::byte* const scratch = memory.allocate(size);
  std::fill_n(scratch, size, std::byte{0xff});  // NaN
  std::vector<float> dw(weights_of(op), 7.0f);
  gradient(count, n.x.data(), n.dy.data(), dw.data(),
           op.bias ? dw.data() + op.kernel_size() : nullptr, scratch);
  memory.release(scratch, size);
  return dw;
}

}  // namespace

TEST_CASE("Winograd kernel gradients of generated shapes agree with the reference") {
  Philox g(23);
  for (int i = 0; i < generated_shapes; ++i) {
    const Conv2DOp op = generated_3x3(g);
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    INFO(describe(op) << ", examples " << count);
    const Numbers n = numbers(op, op.in.size(), weights_of(op), count);
    const auto expected = run<Reference<double>>(op, count, n).dw;
    for (const std::size_t bytes : lengths_of_vectors())
      for (const int threads : {1, 3})
        CHECK(relative_error(gradient_of(op, count, n, threads, bytes), expected) < tolerance);
  }
}

TEST_CASE("Winograd kernel gradients of ResNet-56's shapes agree with the reference closely") {
  for (const auto& op :
       {Conv2D<16, 3, same>::op(shape(32, 32, 16)), Conv2D<32, 3, same>::op(shape(16, 16, 32)),
        Conv2D<64, 3, same>::op(shape(8, 8, 64))}) {
    INFO(describe(op));
    const Numbers n = numbers(op, op.in.size(), weights_of(op), 3);
    const auto expected = run<Reference<double>>(op, 3, n).dw;
    for (const std::size_t bytes : lengths_of_vectors())
      CHECK(relative_error(gradient_of(op, 3, n, 2, bytes), expected) < 1e-6);
  }
}

TEST_CASE(
    "Winograd kernel gradients have equal bits for equal thread counts, even with idle threads") {
  Philox g(24);
  for (int i = 0; i < 10; ++i) {
    const Conv2DOp op = generated_3x3(g);
    INFO(describe(op));
    const Numbers n = numbers(op, op.in.size(), weights_of(op), 3);
    for (const std::size_t bytes : lengths_of_vectors())
      for (const int threads : {1, 2, 16}) {
        const auto first = gradient_of(op, 3, n, threads, bytes);
        for (int again = 0; again < 3; ++again)
          CHECK(gradient_of(op, 3, n, threads, bytes) == first);
      }
  }
}
