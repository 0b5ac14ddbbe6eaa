/// \file
/// Winograd convolutions: accuracy, equal bits, NaN, and the shapes that they support.
#include "lockstep/devices/cpu/winograd/convolution.hpp"

#include <algorithm>
#include <limits>

#include "unit/devices/cpu/conv2d_3x3_ops.hpp"

using namespace lockstep;
using namespace testing;
using lockstep::detail::WinogradConvolution;
using lockstep::detail::WinogradPass;

namespace {

/// Output of a pass over `in`, which is x in forward and dy in the input gradient.
std::vector<float> result_of(const Conv2DOp& op, WinogradPass pass, std::size_t count,
                             const std::vector<float>& in, const std::vector<float>& w, int threads,
                             std::size_t bytes, bool relu = false) {
  const WinogradConvolution<float> convolution(op, pass, threads, bytes);
  HostMemory memory;
  const std::size_t size = convolution.scratch_bytes();
  std::byte* const scratch = memory.allocate(size);
  std::fill_n(scratch, size, std::byte{0xff});  // NaN
  const bool forward = pass == WinogradPass::forward;
  std::vector<float> out(count * (forward ? op.out() : op.in).size());
  convolution(count, in.data(), w.data(),
              forward && op.bias ? w.data() + op.kernel_size() : nullptr, relu, out.data(),
              scratch);
  memory.release(scratch, size);
  return out;
}

}  // namespace

TEST_CASE("Winograd convolutions of generated shapes agree with the reference") {
  Philox g(21);
  for (int i = 0; i < generated_shapes; ++i) {
    const Conv2DOp op = generated_3x3(g);
    const auto count = static_cast<std::size_t>(between(g, 1, 5));
    INFO(describe(op) << ", examples " << count);
    const Numbers n = numbers(op, op.in.size(), weights_of(op), count);
    const auto expected = run<Reference<double>>(op, count, n);
    for (const std::size_t bytes : lengths_of_vectors())
      for (const int threads : {1, 3}) {
        const auto result = [&](WinogradPass pass, const std::vector<float>& in) {
          return result_of(op, pass, count, in, n.w, threads, bytes);
        };
        CHECK(relative_error(result(WinogradPass::forward, n.x), expected.y) < tolerance);
        CHECK(relative_error(result(WinogradPass::input_gradient, n.dy), expected.dx) < tolerance);
      }
  }
}

TEST_CASE("Winograd convolutions of ResNet-56's shapes agree with the reference closely") {
  for (const auto& op :
       {Conv2D<16, 3, same>::op(shape(32, 32, 16)), Conv2D<32, 3, same>::op(shape(16, 16, 32)),
        Conv2D<64, 3, same>::op(shape(8, 8, 64))}) {
    INFO(describe(op));
    const Numbers n = numbers(op, op.in.size(), weights_of(op), 3);
    const auto expected = run<Reference<double>>(op, 3, n);
    for (const std::size_t bytes : lengths_of_vectors()) {
      CHECK(relative_error(result_of(op, WinogradPass::forward, 3, n.x, n.w, 2, bytes),
                           expected.y) < 1e-6);
      CHECK(relative_error(result_of(op, WinogradPass::input_gradient, 3, n.dy, n.w, 2, bytes),
                           expected.dx) < 1e-6);
    }
  }
}

TEST_CASE("the bits of Winograd convolutions depend neither on threads nor on the batch") {
  Philox g(22);
  for (int i = 0; i < 10; ++i) {
    const Conv2DOp op = generated_3x3(g);
    constexpr std::size_t count = 6;
    INFO(describe(op));
    const Numbers n = numbers(op, op.in.size(), weights_of(op), count);
    for (const std::size_t bytes : lengths_of_vectors())
      for (const WinogradPass pass : {WinogradPass::forward, WinogradPass::input_gradient}) {
        const auto& in = pass == WinogradPass::forward ? n.x : n.dy;
        const auto all = result_of(op, pass, count, in, n.w, 1, bytes);
        for (const int threads : {2, 3, 5})
          CHECK(result_of(op, pass, count, in, n.w, threads, bytes) == all);
        const auto half = static_cast<std::ptrdiff_t>(in.size() / 2);
        const auto second =
            result_of(op, pass, count / 2, {in.begin() + half, in.end()}, n.w, 2, bytes);
        CHECK(second == std::vector<float>(
                            all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end()));
      }
  }
}

TEST_CASE("the ReLU of a Winograd convolution propagates NaN") {
  const auto op = Conv2D<32, 3, same>::op(shape(9, 8, 16));
  Numbers n = numbers(op, op.in.size(), weights_of(op), 2);
  n.x[0] = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t bytes : lengths_of_vectors()) {
    auto expected = result_of(op, WinogradPass::forward, 2, n.x, n.w, 1, bytes);
    CHECK(std::isnan(expected[0]));
    for (float& y : expected) y = y < 0 ? 0 : y;
    const auto result = result_of(op, WinogradPass::forward, 2, n.x, n.w, 1, bytes, true);
    CHECK(std::ranges::equal(result, expected, [](float a, float b) {
      return a == b || (std::isnan(a) && std::isnan(b));
    }));
  }
}

TEST_CASE("infinities and NaN affect only the tiles that read them") {
  const auto op = Conv2D<16, 3, same>::op(shape(8, 8, 16));
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const std::size_t bytes : lengths_of_vectors()) {
      Numbers n = numbers(op, op.in.size(), weights_of(op), 2);
      n.x[0] = bad;
      const auto y = result_of(op, WinogradPass::forward, 2, n.x, n.w, 1, bytes);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const std::size_t row = i / 128, column = i / 16 % 8;
        INFO(row << ", " << column);
        CHECK(std::isfinite(y[i]) == (row >= 2 || column >= 2));
      }
    }
}

TEST_CASE("Winograd convolutions need stride 1, whole vectors and more than a few pixels") {
  const auto fits = [](const Conv2DOp& op) { return WinogradConvolution<float>::fits(op); };
  const Conv2DOp good{shape(8, 8, 16), 32, {3, 3}, {1, 1}, {1, 1}, same, true};
  CHECK(fits(good) == lockstep::detail::has_vectors());
  const auto but = [&](const auto& change) {
    Conv2DOp op = good;
    change(op);
    return fits(op);
  };
  CHECK_FALSE(but([](Conv2DOp& op) { op.kernel = {3, 1}; }));
  CHECK_FALSE(but([](Conv2DOp& op) { op.kernel = {5, 5}; }));
  CHECK_FALSE(but([](Conv2DOp& op) { op.strides = {1, 2}; }));
  CHECK_FALSE(but([](Conv2DOp& op) { op.dilation = {2, 1}; }));
  CHECK_FALSE(but([](Conv2DOp& op) { op.filters = 24; }));
  CHECK_FALSE(but([](Conv2DOp& op) { op.in = shape(8, 8, 8); }));
  CHECK_FALSE(but([](Conv2DOp& op) { op.in = shape(3, 8, 16); }));
  CHECK_FALSE(but([](Conv2DOp& op) { op.in = shape(5, 5, 16); }));
  CHECK(but([](Conv2DOp& op) { op.in = shape(7, 7, 16); }) == fits(good));
  CHECK_FALSE(but([](Conv2DOp& op) { op.in = shape(4, 4, 256), op.filters = 256; }));
}
