/// \file
/// Every layer on the Cpu, in both precisions, for shapes that primitives of oneDNN get wrong.
#include "compare.hpp"
#include "support/layer_shapes.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// float: sums of up to 5 x 1024 terms. bfloat16: up to two roundings of a stored value; dx of some
/// layers is summed from rounded parts, or computed from a rounded y. A transposed convolution adds
/// its bias to a rounded sum.
constexpr ShapeBounds in_float{2e-6, 1e-5, 4e-6}, in_bfloat16{1.2e-2, 1e-2, 4e-6};

void check_layers(std::uint64_t seed, int draws) {
  for (const int threads : {1, 2}) {
    INFO("threads " << threads);
    LayerShapes(seed, draws).check(Cpu{.threads = threads}, in_float);
  }
}

void check_layers_in_bfloat16(std::uint64_t seed, int draws) {
  need_bfloat16();
  LayerShapes(seed, draws).check(CpuBFloat16{.threads = 2}, in_bfloat16);
}

}  // namespace

TEST_CASE("every layer agrees with the reference on small, odd and prime shapes") {
  check_layers(1, 12);
}
TEST_CASE("every layer in bfloat16 agrees with the reference on small, odd and prime shapes") {
  check_layers_in_bfloat16(2, 25);
}
TEST_CASE("every layer agrees with the reference on thousands of shapes", "[.slow]") {
  for (std::uint64_t seed = 10; seed < 14; ++seed) check_layers(seed, 100);
}
TEST_CASE("every layer in bfloat16 agrees with the reference on thousands of shapes", "[.slow]") {
  for (std::uint64_t seed = 20; seed < 28; ++seed) check_layers_in_bfloat16(seed, 100);
}

TEST_CASE("weight gradients in bfloat16 do not depend on what was in the scratch memory") {
  need_bfloat16();  // run_layer fills it with NaN
  for (const Conv2DOp& op : {Conv2DOp{shape(8, 30, 33), 3, {2, 2}, {1, 1}, {2, 1}, valid, false},
                             Conv2DOp{shape(11, 63, 17), 21, {1, 2}, {1, 1}, {1, 1}, valid, false},
                             Conv2DOp{shape(2, 30, 33), 2, {1, 1}, {1, 1}, {1, 1}, same, false}}) {
    INFO(describe(op));
    check_in_bfloat16(op, 3, numbers(op, op.in.size(), weights_of(op), 3), op.kernel_size());
    const DepthwiseConv2DOp deep = depthwise(op, 1);
    check_in_bfloat16(deep, 3, numbers(deep, deep.in.size(), weights_of(deep), 3),
                      deep.kernel_size());
  }
}

TEST_CASE("dilated depthwise convolutions in bfloat16 agree for any number of channels") {
  need_bfloat16();
  for (const int channels : {8, 16, 17, 32, 48})
    for (const int kernel : {1, 2, 3})
      for (const Dilation dilation : {Dilation{2, 1}, Dilation{1, 2}, Dilation{3, 2}}) {
        const DepthwiseConv2DOp op{
            shape(12, 30, channels),    1,   {kernel, kernel}, {1, 1}, dilation,
            kernel == 2 ? valid : same, true};
        INFO(channels << " channels, kernel " << kernel << ", dilation " << dilation.height << "x"
                      << dilation.width);
        check_in_bfloat16(op, 2, numbers(op, op.in.size(), op.kernel_size() + op.filters(), 2),
                          op.kernel_size());
      }
}

TEST_CASE("1x1 convolutions in bfloat16 agree for any number of pixels and filters") {
  need_bfloat16();
  Philox g(5);
  for (const int pixels : {1, 30, 59, 60, 89, 90, 118, 120, 150, 180, 240, 300, 360, 900})
    for (const int filters : {1, 2, 3, 7, 21}) {
      const Conv2DOp op{
          shape(1, pixels, one_of(g, 1, 4, 13, 64)), filters, {1, 1}, {1, 1}, {1, 1}, valid, true};
      INFO(describe(op));
      check_in_bfloat16(op, 3, numbers(op, op.in.size(), weights_of(op), 3), op.kernel_size());
    }
}
