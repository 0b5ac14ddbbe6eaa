/// \file
/// The gradient of each layer against central differences of its forward pass, in double.
#include <catch2/catch_test_macros.hpp>

#include "lockstep/layers/layers.hpp"
#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace ls = lockstep;

namespace {

using Double = ls::Reference<double>;

/// The largest relative error of dx, dx2 and dw of sum(y * c), for random x, w and c.
template <class TheOp>
double gradient_error(const TheOp& op, ls::Shape in, std::size_t weights, ls::Shape second = {},
                      std::size_t state = 0) {
  constexpr std::size_t count = 2;
  constexpr double h = 1e-5;
  auto x = testing::normal_values(count * in.size(), 1), w = testing::normal_values(weights, 2);
  const auto c = testing::normal_values(count * op.out().size(), 3);
  testing::RunOptions<double> options;
  options.state.assign(state, 1.0);
  const bool binary = second.rank > 0;
  if (binary) options.x2 = testing::normal_values(count * second.size(), 4);

  const auto analytic = testing::run_layer<Double>(op, count, x, w, c, options);
  const auto objective = [&] {
    const auto y = testing::run_layer<Double>(op, count, x, w, c, options).y;
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * c[i];
    return sum;
  };
  const auto numeric = [&](std::vector<double>& values) {
    std::vector<double> slope(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = values[i];
      values[i] = value + h;
      const double above = objective();
      values[i] = value - h;
      const double below = objective();
      values[i] = value;
      slope[i] = (above - below) / (2 * h);
    }
    return slope;
  };
  double error = testing::relative_error(analytic.dx, numeric(x));
  error = std::max(error, testing::relative_error(analytic.dw, numeric(w)));
  if (binary) error = std::max(error, testing::relative_error(analytic.dx2, numeric(options.x2)));
  return error;
}

template <class L>
double gradient_error(ls::Shape in) {
  std::size_t weights = 0, state = 0;
  for (const ls::Parameter& p : L::parameters(in))
    if (p.present) (p.trainable ? weights : state) += p.shape.size();
  return gradient_error(L::op(in), in, weights, {}, state);
}

constexpr double tolerance = 1e-8;
constexpr auto image = ls::shape(6, 5, 3);
constexpr auto volume = ls::shape(4, 3, 5, 2);

}  // namespace

// clang-format off
TEST_CASE("Dense has the gradient of its output") { CHECK(gradient_error<ls::Dense<5>>(ls::shape(7)) < tolerance); }
TEST_CASE("Dense without bias has the gradient of its output") { CHECK(gradient_error<ls::Dense<5, ls::no_bias>>(ls::shape(7)) < tolerance); }
TEST_CASE("Dense over the last axis has the gradient of its output") { CHECK(gradient_error<ls::Dense<5>>(ls::shape(4, 3)) < tolerance); CHECK(gradient_error<ls::Dense<5>>(image) < tolerance); }
TEST_CASE("Conv2D has the gradient of its output") { CHECK(gradient_error<ls::Conv2D<4, 3>>(image) < tolerance); }
TEST_CASE("Conv2D with same padding and strides has the gradient of its output") { CHECK(gradient_error<ls::Conv2D<2, 3, ls::same, ls::strides(2)>>(image) < tolerance); }
TEST_CASE("Conv2D with dilation has the gradient of its output") { CHECK(gradient_error<ls::Conv2D<2, ls::kernel(3, 2), ls::dilation(2, 1), ls::no_bias>>(image) < tolerance); }
TEST_CASE("Conv2D with groups has the gradient of its output") { CHECK(gradient_error<ls::Conv2D<6, 3, ls::groups(3)>>(image) < tolerance); CHECK(gradient_error<ls::Conv2D<4, ls::kernel(2, 3), ls::same, ls::strides(2, 1), ls::groups(2), ls::no_bias>>(ls::shape(5, 4, 6)) < tolerance); }
TEST_CASE("Conv3D has the gradient of its output") { CHECK(gradient_error<ls::Conv3D<3, 2>>(volume) < tolerance); CHECK(gradient_error<ls::Conv3D<4, ls::kernel(3, 2, 1), ls::same, ls::strides(2, 1, 3), ls::groups(2), ls::no_bias>>(volume) < tolerance); CHECK(gradient_error<ls::Conv3D<2, 2, ls::dilation(3, 1, 2)>>(volume) < tolerance); }
TEST_CASE("DepthwiseConv2D has the gradient of its output") { CHECK(gradient_error<ls::DepthwiseConv2D<3>>(image) < tolerance); }
TEST_CASE("DepthwiseConv2D with a multiplier has the gradient of its output") { CHECK(gradient_error<ls::DepthwiseConv2D<ls::kernel(3, 2), ls::same, ls::strides(2, 1), ls::depth_multiplier(2), ls::no_bias>>(image) < tolerance); }
TEST_CASE("DepthwiseConv2D with dilation has the gradient of its output") { CHECK(gradient_error<ls::DepthwiseConv2D<2, ls::dilation(2, 1)>>(image) < tolerance); }
TEST_CASE("SeparableConv2D has the gradient of its output") { CHECK(gradient_error<ls::SeparableConv2D<4, 3, ls::same, ls::strides(2), ls::depth_multiplier(2)>>(image) < tolerance); }
TEST_CASE("SeparableConv2D without bias has the gradient of its output") { CHECK(gradient_error<ls::SeparableConv2D<2, 3, ls::no_bias>>(image) < tolerance); }
TEST_CASE("Conv2DTranspose has the gradient of its output") { CHECK(gradient_error<ls::Conv2DTranspose<4, 3, ls::same, ls::strides(2)>>(image) < tolerance); }
TEST_CASE("Conv2DTranspose with dilation has the gradient of its output") { CHECK(gradient_error<ls::Conv2DTranspose<2, ls::kernel(3, 2), ls::dilation(2, 1), ls::no_bias>>(image) < tolerance); }
TEST_CASE("MaxPooling2D has the gradient of its output") { CHECK(gradient_error<ls::MaxPooling2D<>>(image) < tolerance); }
TEST_CASE("MaxPooling2D with overlaps has the gradient of its output") { CHECK(gradient_error<ls::MaxPooling2D<3, ls::same, ls::strides(2, 1)>>(image) < tolerance); }
TEST_CASE("AveragePooling2D has the gradient of its output") { CHECK(gradient_error<ls::AveragePooling2D<>>(image) < tolerance); }
TEST_CASE("AveragePooling2D with overlaps has the gradient of its output") { CHECK(gradient_error<ls::AveragePooling2D<3, ls::same, ls::strides(2, 1)>>(image) < tolerance); }
TEST_CASE("MaxPooling3D has the gradient of its output") { CHECK(gradient_error<ls::MaxPooling3D<>>(volume) < tolerance); CHECK(gradient_error<ls::MaxPooling3D<3, ls::same, ls::strides(1, 2, 1)>>(volume) < tolerance); }
TEST_CASE("AveragePooling3D has the gradient of its output") { CHECK(gradient_error<ls::AveragePooling3D<>>(volume) < tolerance); CHECK(gradient_error<ls::AveragePooling3D<3, ls::same, ls::strides(1, 2, 1)>>(volume) < tolerance); }
TEST_CASE("Global pooling of volumes has the gradient of its output") { CHECK(gradient_error<ls::GlobalAveragePooling3D>(volume) < tolerance); CHECK(gradient_error<ls::GlobalMaxPooling3D>(volume) < tolerance); }
TEST_CASE("GlobalAveragePooling2D has the gradient of its output") { CHECK(gradient_error<ls::GlobalAveragePooling2D>(image) < tolerance); }
TEST_CASE("GlobalMaxPooling2D has the gradient of its output") { CHECK(gradient_error<ls::GlobalMaxPooling2D>(image) < tolerance); }
TEST_CASE("ZeroPadding2D has the gradient of its output") { CHECK(gradient_error<ls::ZeroPadding2D<ls::edges(1, 0, 2, 3)>>(image) < tolerance); }
TEST_CASE("ZeroPadding1D has the gradient of its output") { CHECK(gradient_error<ls::ZeroPadding1D<2, 1>>(ls::shape(8, 3)) < tolerance); }
TEST_CASE("Cropping1D has the gradient of its output") { CHECK(gradient_error<ls::Cropping1D<2, 1>>(ls::shape(8, 3)) < tolerance); }
TEST_CASE("Cropping2D has the gradient of its output") { CHECK(gradient_error<ls::Cropping2D<ls::edges(1, 0, 2, 1)>>(image) < tolerance); }
TEST_CASE("SliceAxis has the gradient of its output") { CHECK(gradient_error<ls::SliceAxis<2, 1, -1>>(image) < tolerance); }
TEST_CASE("Permute has the gradient of its output") { CHECK(gradient_error<ls::Permute<3, 1, 2>>(image) < tolerance); }
TEST_CASE("RepeatVector has the gradient of its output") { CHECK(gradient_error<ls::RepeatVector<4>>(ls::shape(5)) < tolerance); }
TEST_CASE("UpSampling1D has the gradient of its output") { CHECK(gradient_error<ls::UpSampling1D<3>>(ls::shape(4, 3)) < tolerance); }
TEST_CASE("DepthToSpace has the gradient of its output") { CHECK(gradient_error<ls::DepthToSpace<2>>(ls::shape(2, 3, 8)) < tolerance); }
TEST_CASE("SpaceToDepth has the gradient of its output") { CHECK(gradient_error<ls::SpaceToDepth<2>>(ls::shape(4, 6, 3)) < tolerance); }
TEST_CASE("UpSampling2D has the gradient of its output") { CHECK(gradient_error<ls::UpSampling2D<ls::size(2, 3)>>(image) < tolerance); }
TEST_CASE("Bilinear UpSampling2D has the gradient of its output") { CHECK(gradient_error<ls::UpSampling2D<ls::size(3, 2), ls::bilinear>>(image) < tolerance); }
TEST_CASE("Resizing has the gradient of its output") { CHECK(gradient_error<ls::Resizing<4, 9>>(image) < tolerance); CHECK(gradient_error<ls::Resizing<3, 3>>(ls::shape(8, 7, 2)) < tolerance); CHECK(gradient_error<ls::Resizing<5, 4, ls::nearest>>(image) < tolerance); CHECK(gradient_error<ls::Resizing<3, 2>>(ls::shape(1, 1, 1)) < tolerance); CHECK(gradient_error<ls::Resizing<1, 1>>(image) < tolerance); }
TEST_CASE("CenterCrop has the gradient of its output") { CHECK(gradient_error<ls::CenterCrop<3, 4>>(image) < tolerance); CHECK(gradient_error<ls::CenterCrop<8, 4>>(image) < tolerance); }
TEST_CASE("Rescaling has the gradient of its output") { CHECK(gradient_error<ls::Rescaling<ls::factor(0.25), ls::offset(-1)>>(image) < tolerance); }
TEST_CASE("PReLU has the gradient of its output") { CHECK(gradient_error<ls::PReLU<>>(image) < tolerance); CHECK(gradient_error<ls::PReLU<ls::shared_axes(1, 2)>>(image) < tolerance); CHECK(gradient_error<ls::PReLU<ls::shared_axes(2)>>(image) < tolerance); CHECK(gradient_error<ls::PReLU<ls::shared_axes(1, 3)>>(ls::shape(2, 3, 4, 2)) < tolerance); CHECK(gradient_error<ls::PReLU<>>(ls::shape(1)) < tolerance); }
TEST_CASE("LSTM with dropout has the gradient of its output") { CHECK(gradient_error<ls::LSTM<3, ls::dropout(0.3), ls::recurrent_dropout(0.3)>>(ls::shape(4, 3)) < tolerance); }
TEST_CASE("GRU that resets before its product, with dropout, has the gradient of its output") { CHECK(gradient_error<ls::GRU<3, ls::reset_after(false), ls::recurrent_dropout(0.3), ls::return_sequences>>(ls::shape(4, 3)) < tolerance); }
TEST_CASE("LayerNormalization has the gradient of its output") { CHECK(gradient_error<ls::LayerNormalization<>>(ls::shape(4, 5)) < 1e-7); }
TEST_CASE("RMSNormalization has the gradient of its output") { CHECK(gradient_error<ls::RMSNormalization<>>(image) < tolerance); }
TEST_CASE("PositionEmbedding has the gradient of its output") { CHECK(gradient_error<ls::PositionEmbedding<6>>(ls::shape(5, 4)) < tolerance); }
TEST_CASE("GroupNormalization has the gradient of its output") { CHECK(gradient_error<ls::GroupNormalization<-1>>(image) < tolerance); CHECK(gradient_error<ls::GroupNormalization<2, ls::scale(false)>>(ls::shape(5, 4)) < tolerance); }
TEST_CASE("LayerNormalization without gamma has the gradient of its output") { CHECK(gradient_error<ls::LayerNormalization<ls::scale(false), ls::epsilon(0.1f)>>(image) < 1e-7); }
TEST_CASE("BatchNormalization has the gradient of its output") { CHECK(gradient_error<ls::BatchNormalization<>>(image) < 1e-7); }
TEST_CASE("BatchNormalization of rows has the gradient of its output") { CHECK(gradient_error<ls::BatchNormalization<ls::epsilon(0.1f)>>(ls::shape(5)) < 1e-7); }
TEST_CASE("BatchNormalization without gamma has the gradient of its output") { CHECK(gradient_error<ls::BatchNormalization<ls::scale(false), ls::synchronized>>(ls::shape(4, 5)) < 1e-7); }
TEST_CASE("Conv1D has the gradient of its output") { CHECK(gradient_error<ls::Conv1D<4, 3, ls::same, ls::strides(2)>>(ls::shape(9, 3)) < tolerance); }
TEST_CASE("Conv1D with dilation has the gradient of its output") { CHECK(gradient_error<ls::Conv1D<2, 3, ls::dilation(2), ls::no_bias>>(ls::shape(9, 3)) < tolerance); }
TEST_CASE("Conv1D with groups has the gradient of its output") { CHECK(gradient_error<ls::Conv1D<6, 3, ls::groups(3)>>(ls::shape(9, 3)) < tolerance); }
TEST_CASE("Conv1DTranspose has the gradient of its output") { CHECK(gradient_error<ls::Conv1DTranspose<4, 3, ls::same, ls::strides(2)>>(ls::shape(5, 3)) < tolerance); CHECK(gradient_error<ls::Conv1DTranspose<2, 3, ls::dilation(2), ls::no_bias>>(ls::shape(1, 1)) < tolerance); }
TEST_CASE("MaxPooling1D has the gradient of its output") { CHECK(gradient_error<ls::MaxPooling1D<3, ls::strides(2)>>(ls::shape(9, 3)) < tolerance); }
TEST_CASE("AveragePooling1D has the gradient of its output") { CHECK(gradient_error<ls::AveragePooling1D<3, ls::same>>(ls::shape(8, 3)) < tolerance); }
TEST_CASE("GlobalMaxPooling1D has the gradient of its output") { CHECK(gradient_error<ls::GlobalMaxPooling1D>(ls::shape(8, 3)) < tolerance); }
TEST_CASE("GlobalAveragePooling1D has the gradient of its output") { CHECK(gradient_error<ls::GlobalAveragePooling1D>(ls::shape(8, 3)) < tolerance); }
TEST_CASE("Dropout has the gradient of its output") { CHECK(gradient_error<ls::Dropout<ls::rate(0.4f)>>(image) < tolerance); }
TEST_CASE("RandomCrop has the gradient of its output") { CHECK(gradient_error<ls::RandomCrop<3, 4>>(image) < tolerance); }
TEST_CASE("RandomCrop of smaller images has the gradient of its output") { CHECK(gradient_error<ls::RandomCrop<9, 4>>(image) < tolerance); }
TEST_CASE("RandomFlip has the gradient of its output") { CHECK(gradient_error<ls::RandomFlip<>>(image) < tolerance); }
TEST_CASE("RandomTranslation has the gradient of its output") { CHECK(gradient_error<ls::RandomTranslation<ls::factor(0.4), ls::factor(0.5)>>(image) < tolerance); }
TEST_CASE("RandomRotation has the gradient of its output") { CHECK(gradient_error<ls::RandomRotation<ls::factor(0.5)>>(image) < tolerance); }
TEST_CASE("RandomRotation of the nearest pixel has the gradient of its output") { CHECK(gradient_error<ls::RandomRotation<ls::factor(0.5), ls::nearest, ls::fill_constant(1)>>(image) < tolerance); }
TEST_CASE("RandomZoom has the gradient of its output") { CHECK(gradient_error<ls::RandomZoom<ls::factor(0.5), ls::factor(-0.5, 0)>>(image) < tolerance); CHECK(gradient_error<ls::RandomZoom<ls::factor(0.5), ls::nearest>>(image) < tolerance); }
TEST_CASE("RandomContrast has the gradient of its output") { CHECK(gradient_error<ls::RandomContrast<ls::factor(0.9), ls::value_range(-9, 9)>>(image) < tolerance); CHECK(gradient_error<ls::RandomContrast<ls::factor(0.9), ls::value_range(-0.5, 1)>>(image) < tolerance); CHECK(gradient_error<ls::RandomContrast<ls::factor(0.9), ls::value_range(-9, 9)>>(ls::shape(1, 1, 1)) < tolerance); }
TEST_CASE("RandomBrightness has the gradient of its output") { CHECK(gradient_error<ls::RandomBrightness<ls::factor(0.3), ls::value_range(-1, 1)>>(image) < tolerance); }
TEST_CASE("RandomCutout has the gradient of its output") { CHECK(gradient_error<ls::RandomCutout<3>>(image) < tolerance); }
TEST_CASE("SpatialDropout2D has the gradient of its output") { CHECK(gradient_error<ls::SpatialDropout2D<ls::rate(0.4f)>>(image) < tolerance); }
TEST_CASE("GaussianNoise has the gradient of its output") { CHECK(gradient_error<ls::GaussianNoise<ls::stddev(0.5f)>>(image) < tolerance); }
TEST_CASE("Add has the gradient of its output") { CHECK(gradient_error(ls::AddOp{image}, image, 0, image) < tolerance); }
TEST_CASE("Multiply has the gradient of its output") { CHECK(gradient_error(ls::MultiplyOp{image}, image, 0, image) < tolerance); }
TEST_CASE("Subtract has the gradient of its output") { CHECK(gradient_error(ls::SubtractOp{image}, image, 0, image) < tolerance); }
TEST_CASE("Average has the gradient of its output") { CHECK(gradient_error(ls::AverageOp{image}, image, 0, image) < tolerance); }
TEST_CASE("Maximum has the gradient of its output") { CHECK(gradient_error(ls::MaximumOp{image}, image, 0, image) < tolerance); }
TEST_CASE("Minimum has the gradient of its output") { CHECK(gradient_error(ls::MinimumOp{image}, image, 0, image) < tolerance); }
TEST_CASE("Concatenate has the gradient of its output") { CHECK(gradient_error(ls::ConcatenateOp{image, 2}, image, 0, ls::shape(6, 5, 2)) < tolerance); }
TEST_CASE("Dot has the gradient of its output") { CHECK(gradient_error(ls::DotOp{ls::shape(3, 4), ls::shape(4, 2), {2, 1}}, ls::shape(3, 4), 0, ls::shape(4, 2)) < tolerance); }
TEST_CASE("Dot over inner axes has the gradient of its output") { CHECK(gradient_error(ls::DotOp{image, ls::shape(2, 5), {2, 2}}, image, 0, ls::shape(2, 5)) < tolerance); }
TEST_CASE("Normalized Dot has the gradient of its output") { CHECK(gradient_error(ls::DotOp{image, ls::shape(6, 2), {1, 1}, true}, image, 0, ls::shape(6, 2)) < tolerance); }
TEST_CASE("ReLU has the gradient of its output") { CHECK(gradient_error<ls::ReLU>(image) < tolerance); }
TEST_CASE("ReLU6 has the gradient of its output") { CHECK(gradient_error<ls::ReLU6>(image) < tolerance); }
TEST_CASE("LeakyReLU has the gradient of its output") { CHECK(gradient_error<ls::LeakyReLU<>>(image) < tolerance); }
TEST_CASE("ELU has the gradient of its output") { CHECK(gradient_error<ls::ELU>(image) < tolerance); }
TEST_CASE("GELU has the gradient of its output") { CHECK(gradient_error<ls::GELU>(image) < tolerance); }
TEST_CASE("SiLU has the gradient of its output") { CHECK(gradient_error<ls::SiLU>(image) < tolerance); }
TEST_CASE("Sigmoid has the gradient of its output") { CHECK(gradient_error<ls::Sigmoid>(image) < tolerance); }
TEST_CASE("Tanh has the gradient of its output") { CHECK(gradient_error<ls::Tanh>(image) < tolerance); }
TEST_CASE("Softplus has the gradient of its output") { CHECK(gradient_error<ls::Softplus>(image) < tolerance); }
TEST_CASE("Softmax has the gradient of its output") { CHECK(gradient_error<ls::Softmax>(image) < tolerance); }
TEST_CASE("LogSoftmax has the gradient of its output") { CHECK(gradient_error<ls::LogSoftmax>(image) < tolerance); }
// clang-format on
