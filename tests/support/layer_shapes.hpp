/// \file
/// Every layer on random shapes in which one channel, one pixel, odd and prime extents, and batches
/// of 1 and 3 are frequent, compared with Reference<double>: y and all gradients. Primitives of
/// libraries are often wrong for such shapes only.
#pragma once

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/reference.hpp"
#include "support/branches.hpp"
#include "support/convolutions.hpp"
#include "support/kernel_numbers.hpp"
#include "support/rearrangements.hpp"

namespace testing {

/// Allowed errors in norm, relative to the norm of the tensor or, if that is smaller, to that of a
/// tensor of elements 0.1: sums that cancel have no relative accuracy.
struct ShapeBounds {
  double y, dx, dw;
};

class LayerShapes {
 public:
  LayerShapes(std::uint64_t seed, int draws) : g_(seed), draws_(draws) {}

  /// All layers on D.
  template <class D>
  void check(const D& device, const ShapeBounds& bounds) {
    bounds_ = bounds;
    for (int i = 0; i < draws_; ++i) {
      convolutions(device);
      dense(device);
      pooling(device);
      normalizations(device);
      activations(device);
      branches(device);
      rearrangements(device);
      other(device);
    }
  }

 private:
  int channels() { return one_of(g_, 1, 1, 2, 3, 5, 7, 8, 13, 16, 17, 21, 31, 32, 33, 64); }
  int kernel() { return one_of(g_, 1, 1, 1, 2, 3, 3, 5); }
  std::size_t count() { return static_cast<std::size_t>(one_of(g_, 1, 1, 3, 3, 2, 5)); }
  lockstep::Padding padding() { return one_of(g_, 0, 1) == 0 ? lockstep::valid : lockstep::same; }
  bool flag() { return one_of(g_, 0, 1) == 1; }
  /// Up to 1024 pixels, often in one row or one column.
  lockstep::Shape image(int channels) {
    const int long_side = one_of(g_, 1, 2, 3, 5, 7, 11, 29, 30, 59, 60, 89, 90, 97, 118, 120, 150,
                                 180, 240, 300, 360, 900, between(g_, 1, 1024));
    switch (between(g_, 0, 3)) {
      case 0:
        return lockstep::shape(1, long_side, channels);
      case 1:
        return lockstep::shape(long_side, 1, channels);
      default:
        return lockstep::shape(between(g_, 1, 17), one_of(g_, 1, 3, 6, 10, 13, 15, 16, 17, 30),
                               channels);
    }
  }

  template <class D>
  void convolutions(const D& device) {
    lockstep::Conv2DOp op;
    do {
      op.in = image(channels());
      op.filters = channels();
      const int square = kernel();
      op.kernel =
          flag() ? lockstep::KernelSize{square, square} : lockstep::KernelSize{kernel(), kernel()};
      op.strides = flag() ? lockstep::Strides{1, 1}
                          : lockstep::Strides{between(g_, 1, 3), between(g_, 1, 3)};
      op.dilation = flag() ? lockstep::Dilation{1, 1} : lockstep::Dilation{between(g_, 1, 2), 1};
      op.padding = padding();
      op.bias = flag();
    } while (!op.rows().fits() || !op.columns().fits() || op.flops() > 4e6);
    const std::size_t n = count();
    INFO(describe(op));
    agrees(device, op, n, op.in.size(), weights_of(op), op.kernel_size());

    const lockstep::Conv2DTransposeOp back{op.out(),   op.in[0],    op.in[1],   op.in[2], op.kernel,
                                           op.strides, op.dilation, op.padding, op.bias};
    agrees(device, back, n, back.in.size(), weights_of(back), back.kernel_size());

    lockstep::Conv2DOp grouped = op;
    grouped.groups = one_of(g_, 2, 3, 4);
    grouped.in = lockstep::shape(op.in[0], op.in[1], grouped.groups * one_of(g_, 1, 3, 4, 16, 17));
    grouped.filters = grouped.groups * one_of(g_, 1, 2, 5, 8, 16);
    INFO(describe(grouped));
    agrees(device, grouped, n, grouped.in.size(), weights_of(grouped), grouped.kernel_size());

    const lockstep::DepthwiseConv2DOp deep = depthwise(op, one_of(g_, 1, 1, 2, 3));
    agrees(device, deep, n, deep.in.size(), weights_of(deep), deep.kernel_size());

    if (op.in[0] != 1 || op.kernel.height != 1) return;
    const lockstep::AlongSteps<lockstep::Conv2DOp> along{op};
    agrees(device, along, n, op.in.size(), weights_of(op), op.kernel_size());
  }

  template <class D>
  void dense(const D& device) {
    const lockstep::DenseOp op{one_of(g_, 1, 2, 3, 13, 64, between(g_, 1, 300)), channels(), flag(),
                               leading_axes(g_)};
    agrees(device, op, count(), op.in().size(), op.weights(), op.kernel_size());
    const lockstep::EmbeddingOp words{lockstep::shape(between(g_, 1, 7)), 31, channels()};
    Numbers n = numbers(words, words.in.size(), words.table_size(), 3);
    for (float& x : n.x) x = static_cast<float>(between(g_, 0, 30));
    agrees(device, words, 3, n, {}, 0);
    const lockstep::PositionEmbeddingOp steps{lockstep::shape(between(g_, 1, 7), channels()), 9};
    agrees(device, steps, 3, steps.in.size(), steps.weights());
  }

  template <class D>
  void pooling(const D& device) {
    lockstep::Pooling2DWindow window;
    do {
      window.in = image(channels());
      window.pool = {between(g_, 1, 4), between(g_, 1, 4)};
      window.strides = {between(g_, 1, 3), between(g_, 1, 3)};
      window.padding = padding();
    } while (!window.rows().fits() || !window.columns().fits());
    const std::size_t n = count(), size = window.in.size();
    agrees(device, lockstep::MaxPooling2DOp{window}, n, size);
    agrees(device, lockstep::AveragePooling2DOp{window}, n, size);
    agrees(device, lockstep::GlobalMaxPooling2DOp{window.in}, n, size);
    agrees(device, lockstep::GlobalAveragePooling2DOp{window.in}, n, size);
    const lockstep::UpSampling2DOp up{
        lockstep::shape(between(g_, 1, 9), between(g_, 1, 9), window.in.channels()),
        {between(g_, 1, 4), between(g_, 1, 4)},
        flag() ? lockstep::nearest : lockstep::bilinear};
    agrees(device, up, n, up.in.size());
    const lockstep::ResizingOp resized{up.in, between(g_, 1, 17), between(g_, 1, 17),
                                       up.interpolation};
    agrees(device, resized, n, up.in.size());
    agrees(device, lockstep::CenterCropOp{up.in, between(g_, 1, 9), between(g_, 1, 9)}, n,
           up.in.size());
  }

  template <class D>
  void normalizations(const D& device) {
    const lockstep::BatchNormalizationOp batch{
        .in = flag() ? image(channels()) : lockstep::shape(channels()),
        .center = flag(),
        .scale = flag()};
    const std::size_t n = count(), c = static_cast<std::size_t>(batch.in.channels());
    const std::size_t weights = c * (std::size_t{batch.center} + std::size_t{batch.scale});
    Numbers v = numbers(batch, batch.in.size(), weights, n, 0.5);
    // Rows differ by more than epsilon, whose effect on the gradient would otherwise cancel.
    for (std::size_t k = 0; k < v.x.size(); ++k) v.x[k] += 3 * static_cast<float>(k / c % 5);
    // The gradient of one value is 0: the error is that of terms of size |dy| / sqrt(epsilon).
    if (v.x.size() / c < 3)
      for (float& dy : v.dy) dy /= 32;
    agrees(device, batch, n, v, std::vector<float>(2 * c, 0.5f), 0);

    const lockstep::LayerNormalizationOp layer{
        .in = batch.in, .center = batch.center, .scale = batch.scale};
    v = numbers(layer, layer.in.size(), weights, n, 0.5);
    for (std::size_t k = 0; k < v.x.size(); ++k) v.x[k] += 3 * static_cast<float>(k % c % 5);
    agrees(device, layer, n, v, {}, 0);
    const lockstep::RMSNormalizationOp rms{.in = batch.in};
    if (c > 1) agrees(device, rms, n, numbers(rms, rms.in.size(), c, n), {}, 0);  // else dx is 0

    lockstep::GroupNormalizationOp grouped;
    grouped.groups = one_of(g_, 1, 2, 5);
    grouped.center = batch.center;
    grouped.in =
        lockstep::shape(between(g_, 3, 9), between(g_, 1, 9), grouped.groups * one_of(g_, 1, 3, 8));
    agrees(device, grouped, n, numbers(grouped, grouped.in.size(), grouped.weights(), n), {}, 0);

    const lockstep::NormalizationOp fixed{batch.in};
    agrees(device, fixed, n, numbers(fixed, fixed.in.size(), 0, n), std::vector<float>(2 * c, 2.0f),
           0);
  }

  template <class D>
  void activations(const D& device) {
    const lockstep::Shape in = flag() ? image(channels()) : lockstep::shape(channels());
    const std::size_t n = count(), size = in.size();
    agrees(device, lockstep::ReLUOp{in}, n, size);
    agrees(device, lockstep::ReLU6Op{in}, n, size);
    agrees(device, lockstep::LeakyReLUOp{in}, n, size);
    const lockstep::PReLUOp slopes{in, flag() ? lockstep::shared_axes(1) : lockstep::SharedAxes{}};
    agrees(device, slopes, n, size, slopes.weights());
    agrees(device, lockstep::ELUOp{in}, n, size);
    agrees(device, lockstep::GELUOp{in}, n, size);
    agrees(device, lockstep::SiLUOp{in}, n, size);
    agrees(device, lockstep::SigmoidOp{in}, n, size);
    agrees(device, lockstep::TanhOp{in}, n, size);
    agrees(device, lockstep::SoftplusOp{in}, n, size);
    agrees(device, lockstep::SoftmaxOp{in}, n, size);
    agrees(device, lockstep::LogSoftmaxOp{in}, n, size);
    agrees(device, lockstep::RescalingOp{in, 0.3f, -0.7f}, n, size);
  }

  template <class D>
  void branches(const D& device) {
    const lockstep::AddOp add{image(channels())};
    const std::size_t n = count();
    agrees(device, add, n, numbers_of_branches(add, n), {}, 0);
    const lockstep::ConcatenateOp joined{add.in, channels()};
    agrees(device, joined, n, numbers_of_branches(joined, n), {}, 0);
    const lockstep::DotOp dot = generated_dot(g_);
    agrees(device, dot, n, numbers_of_dot(dot, n), {}, 0);
    pairwise_merges(
        add.in, [&](const auto& op) { agrees(device, op, n, numbers_with_ties(op, n), {}, 0); });
  }

  template <class D>
  void rearrangements(const D& device) {
    const std::size_t n = count();
    rearranged_images(g_, lockstep::shape(between(g_, 1, 9), between(g_, 1, 9), channels()),
                      [&](const auto& op) { agrees(device, op, n, op.in.size()); });
    other_rearrangements(g_, between(g_, 1, 9), channels(), [&](const auto& op) {
      if constexpr (requires { op.in; })
        agrees(device, op, n, op.in.size());
      else
        agrees(device, op, n, op.op.in.size());
    });
  }

  /// Random layers draw the same numbers on each device.
  template <class D>
  void other(const D& device) {
    const lockstep::Shape in = lockstep::shape(between(g_, 1, 13), between(g_, 1, 13), channels());
    const std::size_t n = count(), size = in.size();
    agrees(device, lockstep::DropoutOp{.in = in, .rate = 0.3f}, n, size);
    agrees(device, lockstep::SpatialDropout2DOp{.in = in, .rate = 0.3f}, n, size);
    agrees(device, lockstep::GaussianNoiseOp{.in = in, .stddev = 0.5f}, n, size);
    agrees(device, lockstep::RandomFlipOp{in}, n, size);
    agrees(device, lockstep::RandomCropOp{in, between(g_, 1, in[0]), between(g_, 1, in[1])}, n,
           size);
    agrees(device, lockstep::RandomCutoutOp{in, std::min(in[0], in[1])}, n, size);
    agrees(device, lockstep::RandomRotation<lockstep::factor(0.2f)>::op(in), n, size);
    using Translation = lockstep::RandomTranslation<lockstep::factor(0.2f), lockstep::factor(0.3f)>;
    agrees(device, Translation::op(in), n, size);
    agrees(device, lockstep::RandomZoom<lockstep::factor(0.4f)>::op(in), n, size);
    agrees(device, lockstep::RandomContrastOp{in, {0.4f, 0.4f}, {-2, 2}}, n, size);
    agrees(device, lockstep::RandomBrightnessOp{in, {-0.4f, 0.4f}, {-2, 2}}, n, size);
  }

  template <class D, class O>
  void agrees(const D& device, const O& op, std::size_t count, std::size_t in,
              std::size_t weights = 0, std::size_t rounded_weights = 0) {
    agrees(device, op, count, numbers(op, in, weights, count), {}, rounded_weights);
  }
  template <class D, class O>
  void agrees(const D& device, const O& op, std::size_t count, Numbers n,
              const std::vector<float>& state, std::size_t rounded_weights) {
    using A = lockstep::ActivationOf<D>;
    using Wide = lockstep::Reference<double>;
    Numbers exact = n;
    if constexpr (!std::is_same_v<A, float>) {  // what the device rounds before it computes
      for (Numbers* each : {&n, &exact}) {
        each->x = rounded<A>(each->x);
        each->x2 = rounded<A>(each->x2);
        each->dy = rounded<A>(each->dy);
      }
      for (std::size_t i = 0; i < rounded_weights; ++i) exact.w[i] = A(n.w[i]);
    }
    const auto expected =
        run_layer<Wide>(op, count, as<double>(exact.x), as<double>(exact.w), as<double>(exact.dy),
                        {.x2 = as<double>(exact.x2), .state = as<double>(state)});
    const auto result =
        run_layer<D>(op, count, n.x, n.w, n.dy, {.x2 = n.x2, .state = state}, device);
    INFO("examples " << count << " of " << n.x.size() / count << " to " << to_string(op.out())
                     << ", weights " << n.w.size());
    CHECK(error(result.y, expected.y) < bounds_.y);
    CHECK(error(result.dx, expected.dx) < bounds_.dx);
    CHECK(error(result.dx2, expected.dx2) < bounds_.dx);
    CHECK(error(result.dw, expected.dw) < bounds_.dw);
    CHECK(error(result.state, expected.state) < bounds_.dw);
  }

  static double error(const std::vector<float>& a, const std::vector<double>& b) {
    double size = 0;
    for (const double v : b) size += v * v;
    const double least = 0.1 * std::sqrt(static_cast<double>(b.size()));
    size = std::sqrt(size);
    const double relative = relative_error(a, b);  // infinite, or NaN, if size is 0
    if (size > 0) return relative * std::min(1.0, size / least);
    double difference = 0;
    for (const float v : a) difference += static_cast<double>(v) * static_cast<double>(v);
    return a.size() != b.size() ? relative : b.empty() ? 0 : std::sqrt(difference) / least;
  }

  lockstep::Philox g_;
  int draws_;
  ShapeBounds bounds_{};
};

}  // namespace testing
