/// \file
/// NaN is never hidden by a layer or a loss on the CPU, whichever way computes it.
#include <catch2/catch_test_macros.hpp>

#include "lockstep/cpu.hpp"
#include "support/bfloat16.hpp"
#include "unit/devices/nan.hpp"

using namespace lockstep;
using namespace testing;

namespace {

constexpr auto image = shape(6, 5, 3), row = shape(9), steps = shape(8, 3);

template <class... Layers>
void check_all(Shape in) {
  (check_nan_in_layer<Layers>(Cpu{.threads = 1}, in), ...);
}
template <class... Layers>
void check_in_bfloat16(Shape in) {
  if (!bfloat16_fault().empty()) return;
  (check_nan_in_layer<Layers>(CpuBFloat16{.threads = 1}, in), ...);
}
/// Layers with loops of their own for bfloat16, and the reference itself.
template <class... Layers>
void check_on_all_devices(Shape in) {
  (check_nan_in_layer<Layers>(Cpu{.threads = 2}, in), ...);
  check_in_bfloat16<Layers...>(in);
  (check_nan_in_layer<Layers>(Reference<float>{}, in), ...);
}

/// `L` followed by a ReLU, fused.
template <class Fused, class L, class D>
void check_relu(const D& device, Shape in, std::size_t count = 2, std::size_t most = 6) {
  const auto op = L::op(in);
  const ReLUOp relu{op.out()};
  INFO("ReLU after " << L::name << " of " << to_string(in) << ", " << device.threads << " threads");
  check_nan_in(device, Fused{op, relu}, inputs_of<L>(in, count), most, op, relu);
}

}  // namespace

TEST_CASE("layers without matrix products propagate NaN on the CPU") {
  check_on_all_devices<ReLU, ReLU6, MaxPooling2D<>, MaxPooling2D<3, same, strides(2, 1)>>(image);
  check_on_all_devices<ReLU, ReLU6, MaxPooling2D<>>(shape(4, 4, 20));  // whole vectors and a rest
  check_on_all_devices<MaxPooling1D<3, strides(2)>>(steps);
  check_all<MaxPooling2D<17>>(shape(17, 17, 1));  // winners of four bytes
  check_all<LeakyReLU<>, ELU, GELU, SiLU, Sigmoid, Tanh, Softplus, Softmax, LogSoftmax>(row);
  check_all<AveragePooling2D<>, GlobalAveragePooling2D, GlobalMaxPooling2D, BatchNormalization<>,
            ZeroPadding2D<edges(1, 0, 2, 3)>, Cropping2D<1>, SliceAxis<2, 1, 4>, Permute<3, 1, 2>,
            DepthToSpace<1>, UpSampling2D<size(2, 3)>, UpSampling2D<size(3, 2), bilinear>,
            Rescaling<factor(0.25), offset(-1)>, Dropout<rate(0.4f)>, SpatialDropout2D<rate(0.4f)>,
            GaussianNoise<stddev(0.5f)>, Resizing<4, 7>, Resizing<9, 2, nearest>, CenterCrop<3, 4>,
            RandomZoom<factor(0.5)>, RandomContrast<factor(0.5), value_range(-9000, 9000)>,
            RandomBrightness<factor(0.01), value_range(-9000, 9000)>, RandomFlip<>,
            RandomCrop<3, 4>, RandomCutout<3>, RandomTranslation<factor(0.4), factor(0.5)>,
            RandomRotation<factor(0.5)>>(image);
  check_all<DepthToSpace<2>, SpaceToDepth<2>>(shape(4, 4, 4));
  check_all<RepeatVector<3>>(row);
  check_all<Cropping1D<>, ZeroPadding1D<>, UpSampling1D<>, LayerNormalization<>, RMSNormalization<>,
            GroupNormalization<-1>, AveragePooling1D<3, same>, GlobalMaxPooling1D,
            GlobalAveragePooling1D, Normalization>(steps);
}

TEST_CASE("layers with weights propagate NaN on the CPU") {
  check_on_all_devices<Dense<5>, Conv2D<4, 3, same, strides(2)>, Conv2D<3, 1>>(image);
  check_all<Conv2D<2, kernel(3, 2), dilation(2, 1), no_bias>, Conv2D<6, 3, groups(3)>, PReLU<>,
            PReLU<shared_axes(1, 2)>, DepthwiseConv2D<3>,
            SeparableConv2D<4, 3, depth_multiplier(2)>, Conv2DTranspose<4, 3, strides(2)>>(image);
  check_all<Conv2D<16, 3>>(shape(6, 6, 16));  // Winograd
  check_all<Conv1D<4, 3, same>, Conv1DTranspose<4, 3, strides(2)>,
            MultiHeadAttention<2, 4, causal>>(steps);
  const auto table = Embedding<4, 3>::op(shape(2));
  NaNInputs words = inputs_of<Embedding<4, 3>>(shape(2), 1);
  words.numbers.x = {1, 3};
  words.want_dx = false;
  const auto with_indices = [&](const auto& device) {
    return [&](NaNInputs in) {
      if (std::isnan(in.numbers.x[0] + in.numbers.x[1])) return run_op(table, words, device);
      in.numbers.x = words.numbers.x;
      return run_op(table, in, device);
    };
  };
  check_nan(words, 12, with_indices(Reference<double>{}), with_indices(Cpu{}));
}

TEST_CASE("other layers in bfloat16 propagate NaN on the CPU") {
  need_bfloat16();
  check_in_bfloat16<LeakyReLU<>, ELU, GELU, SiLU, Sigmoid, Tanh, Softplus, Softmax, LogSoftmax>(
      row);
  check_in_bfloat16<AveragePooling2D<>, GlobalAveragePooling2D, GlobalMaxPooling2D,
                    BatchNormalization<>, UpSampling2D<size(2, 3)>, DepthwiseConv2D<3>,
                    Conv2DTranspose<4, 3, strides(2)>,
                    Conv2D<2, kernel(3, 2), dilation(2, 1), no_bias>>(image);
  check_in_bfloat16<LayerNormalization<>>(steps);
}

TEST_CASE("layers with two inputs and fused layers propagate NaN on the CPU") {
  const Cpu one{.threads = 1}, two{.threads = 2};
  NaNInputs pair{2, numbers(AddOp{image}, image.size(), 0, 2)};
  pair.numbers.x2 = numbers(AddOp{image}, image.size(), 0, 3).x;
  pair.numbers.x2.resize(pair.numbers.x.size());
  check_nan_in(one, AddOp{image}, pair, 6, AddOp{image});
  const ConcatenateOp joined{image, 3};
  NaNInputs both = pair;
  both.numbers.dy = numbers(joined, 1, 0, 2).dy;
  check_nan_in(one, joined, both, 6, joined);
  const auto check_merge = [&](const auto& op) {
    check_nan_in(two, op, pair, 6, op);
    check_nan_in(Reference<float>{}, op, pair, 6, op);
  };
  for (const bool normalize : {false, true}) {
    const DotOp dot{shape(3, 4), shape(2, 4), {2, 2}, normalize};
    NaNInputs products{2, numbers(dot, dot.in.size(), 0, 2)};
    products.numbers.x2 = numbers(dot, dot.other.size(), 0, 2, 2).x;
    check_nan_in(two, dot, products, 8, dot);
  }
  check_merge(MultiplyOp{image});
  check_merge(SubtractOp{image});
  check_merge(AverageOp{image});
  check_merge(MaximumOp{image});
  check_merge(MinimumOp{image});

  NaNInputs normalized = inputs_of<BatchNormalization<>>(image, 2);
  const auto norm = BatchNormalization<>::op(image);
  const ReLUOp relu{image};
  check_nan_in(one, BatchNormalizationReLUOp{norm, relu}, normalized, 6, norm, relu);
  normalized.numbers.x2 = pair.numbers.x2;
  check_nan_in(one, BatchNormalizationAddReLUOp{norm, {image}, relu}, normalized, 6, norm,
               AddOp{image}, relu);

  for (const Cpu& device : {one, two}) {
    check_relu<DenseReLUOp, Dense<7>>(device, row);            // oneDNN
    check_relu<DenseReLUOp, Dense<5>>(device, shape(300), 1);  // split over the inputs
    check_relu<ConvReLUOp, Conv2D<8, 3>>(device, shape(6, 6, 1));
    check_relu<ConvReLUOp, Conv2D<8, 3, strides(2)>>(device, shape(7, 6, 5));
    check_relu<ConvReLUOp, Conv2D<16, 3>>(device, shape(6, 6, 16));
  }
  check_relu<DenseReLUOp, Dense<64>>(one, shape(3136), 16, 1);  // tiles
  if (!bfloat16_fault().empty()) return;
  check_relu<DenseReLUOp, Dense<7>>(CpuBFloat16{.threads = 1}, row);
  check_relu<ConvReLUOp, Conv2D<8, 3>>(CpuBFloat16{.threads = 1}, shape(6, 6, 1));
}

TEST_CASE("a convolution fused with ReLU and pooling propagates NaN on the CPU") {
  const auto check = [](const Conv2DOp& conv, NaNInputs in) {
    INFO(conv.filters << " filters of " << to_string(conv.in));
    const ReLUOp relu{conv.out()};
    const auto pool = MaxPooling2D<>::op(conv.out());
    in.numbers.dy = numbers(pool, 1, 0, in.count).dy;
    in.want_dx = false;
    check_nan_in(Cpu{.threads = 1}, ConvReLUPoolOp{conv, relu, pool}, in, 16, conv, relu, pool);
  };
  check(Conv2D<32, 3>::op(shape(10, 9, 1)), inputs_of<Conv2D<32, 3>>(shape(10, 9, 1), 2));
  check(Conv2D<16, 2, same>::op(shape(6, 6, 2)), inputs_of<Conv2D<16, 2, same>>(shape(6, 6, 2), 2));
}

TEST_CASE("losses propagate NaN on hosts") {
  check_nan_in_losses(Cpu{});
  check_nan_in_losses(Reference<float>{});
}
