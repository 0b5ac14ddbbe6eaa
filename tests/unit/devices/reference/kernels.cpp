/// \file
/// Properties of the reference kernels other than their values, which the golden files and the
/// gradient checks test.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "lockstep/layers/layers.hpp"
#include "lockstep/reference.hpp"
#include "support/run_kernel.hpp"

namespace ls = lockstep;
using Double = ls::Reference<double>;

namespace {

constexpr auto image = ls::shape(6, 5, 3);

/// Runs the op with and without dx; dw must be the same.
template <class L>
bool dw_without_dx(ls::Shape in) {
  const auto op = L::op(in);
  std::size_t weights = 0;
  for (const ls::Parameter& p : L::parameters(in))
    if (p.present) weights += p.shape.size();
  const auto x = testing::normal_values(3 * in.size(), 1), w = testing::normal_values(weights, 2);
  const auto dy = testing::normal_values(3 * op.out().size(), 3);
  const auto with = testing::run_layer<Double>(op, 3, x, w, dy);
  const auto without = testing::run_layer<Double>(op, 3, x, w, dy, {.want_dx = false});
  return with.dw == without.dw && without.dx.empty() && with.dx.size() == x.size();
}

/// Runs the op over no examples: y is empty, and the weight gradient is zero.
template <class L>
bool zero_gradient_of_nothing(ls::Shape in) {
  const auto op = L::op(in);
  std::size_t weights = 0;
  for (const ls::Parameter& p : L::parameters(in))
    if (p.present) weights += p.shape.size();
  const auto run = testing::run_layer<Double>(op, 0, {}, testing::normal_values(weights, 2), {});
  return run.y.empty() && run.dw == std::vector<double>(weights, 0);
}

}  // namespace

TEST_CASE("A kernel writes the same dw without dx") {
  CHECK(dw_without_dx<ls::Dense<4>>(ls::shape(7)));
  CHECK(dw_without_dx<ls::Conv2D<4, 3, ls::same>>(image));
  CHECK(dw_without_dx<ls::DepthwiseConv2D<3, ls::depth_multiplier(2)>>(image));
  CHECK(dw_without_dx<ls::Conv2D<6, 3, ls::groups(3)>>(image));
  CHECK(dw_without_dx<ls::SeparableConv2D<4, 3>>(image));
  CHECK(dw_without_dx<ls::Conv2DTranspose<4, 3, ls::strides(2)>>(image));
  CHECK(dw_without_dx<ls::MaxPooling2D<>>(image));
  CHECK(dw_without_dx<ls::AveragePooling2D<>>(image));
  CHECK(dw_without_dx<ls::GlobalAveragePooling2D>(image));
  CHECK(dw_without_dx<ls::GlobalMaxPooling2D>(image));
  CHECK(dw_without_dx<ls::ZeroPadding2D<>>(image));
  CHECK(dw_without_dx<ls::Cropping1D<>>(ls::shape(6, 3)));
  CHECK(dw_without_dx<ls::Permute<3, 1, 2>>(image));
  CHECK(dw_without_dx<ls::UpSampling2D<2, ls::bilinear>>(image));
  CHECK(dw_without_dx<ls::LayerNormalization<>>(image));
  CHECK(dw_without_dx<ls::GroupNormalization<-1>>(image));
  CHECK(dw_without_dx<ls::MultiHeadAttention<2, 3>>(ls::shape(6, 3)));
  CHECK(dw_without_dx<ls::Conv1D<4, 3>>(ls::shape(6, 3)));
  CHECK(dw_without_dx<ls::Conv1DTranspose<4, 3>>(ls::shape(6, 3)));
  CHECK(dw_without_dx<ls::PReLU<ls::shared_axes(1, 2)>>(image));
  CHECK(dw_without_dx<ls::Resizing<4, 9>>(image));
  CHECK(dw_without_dx<ls::CenterCrop<3, 4>>(image));
  CHECK(dw_without_dx<ls::RandomZoom<ls::factor(0.5)>>(image));
  CHECK(dw_without_dx<ls::RandomContrast<ls::factor(0.5)>>(image));
  CHECK(dw_without_dx<ls::RandomBrightness<ls::factor(0.5)>>(image));
  CHECK(dw_without_dx<ls::Softmax>(image));
  CHECK(dw_without_dx<ls::LogSoftmax>(image));
  CHECK(dw_without_dx<ls::ReLU>(image));
  CHECK(dw_without_dx<ls::Dropout<ls::rate(0.5f)>>(image));
  CHECK(dw_without_dx<ls::RandomCrop<3, 4>>(image));
  CHECK(dw_without_dx<ls::RandomFlip<>>(image));
  CHECK(dw_without_dx<ls::RandomTranslation<ls::factor(0.5), ls::factor(0.5)>>(image));
  CHECK(dw_without_dx<ls::RandomRotation<ls::factor(0.5)>>(image));
  CHECK(dw_without_dx<ls::RandomCutout<3>>(image));
  CHECK(dw_without_dx<ls::SpatialDropout2D<ls::rate(0.5f)>>(image));
  CHECK(dw_without_dx<ls::GaussianNoise<ls::stddev(0.5f)>>(image));
}

TEST_CASE("A replica without examples has a weight gradient of zero") {
  CHECK(zero_gradient_of_nothing<ls::Dense<4>>(ls::shape(7)));
  CHECK(zero_gradient_of_nothing<ls::Conv2D<4, 3>>(image));
  CHECK(zero_gradient_of_nothing<ls::DepthwiseConv2D<3>>(image));
  CHECK(zero_gradient_of_nothing<ls::Conv2D<6, 3, ls::groups(3)>>(image));
  CHECK(zero_gradient_of_nothing<ls::SeparableConv2D<4, 3>>(image));
  CHECK(zero_gradient_of_nothing<ls::Conv2DTranspose<4, 3>>(image));
  CHECK(zero_gradient_of_nothing<ls::MaxPooling2D<>>(image));
  CHECK(zero_gradient_of_nothing<ls::GlobalAveragePooling2D>(image));
  CHECK(zero_gradient_of_nothing<ls::GlobalMaxPooling2D>(image));
  CHECK(zero_gradient_of_nothing<ls::ZeroPadding2D<>>(image));
  CHECK(zero_gradient_of_nothing<ls::Cropping1D<>>(ls::shape(6, 3)));
  CHECK(zero_gradient_of_nothing<ls::Permute<3, 1, 2>>(image));
  CHECK(zero_gradient_of_nothing<ls::UpSampling2D<2, ls::bilinear>>(image));
  CHECK(zero_gradient_of_nothing<ls::LayerNormalization<>>(image));
  CHECK(zero_gradient_of_nothing<ls::RMSNormalization<>>(image));
  CHECK(zero_gradient_of_nothing<ls::PositionEmbedding<9>>(ls::shape(6, 3)));
  CHECK(zero_gradient_of_nothing<ls::GroupedQueryAttention<2, 1, 3>>(ls::shape(6, 3)));
  CHECK(zero_gradient_of_nothing<ls::Conv1D<4, 3>>(ls::shape(6, 3)));
  CHECK(zero_gradient_of_nothing<ls::Conv1DTranspose<4, 3>>(ls::shape(6, 3)));
  CHECK(zero_gradient_of_nothing<ls::PReLU<>>(image));
  CHECK(zero_gradient_of_nothing<ls::Resizing<4, 9>>(image));
  CHECK(zero_gradient_of_nothing<ls::CenterCrop<3, 4>>(image));
  CHECK(zero_gradient_of_nothing<ls::RandomZoom<ls::factor(0.5)>>(image));
  CHECK(zero_gradient_of_nothing<ls::RandomContrast<ls::factor(0.5)>>(image));
  CHECK(zero_gradient_of_nothing<ls::RandomBrightness<ls::factor(0.5)>>(image));
  CHECK(zero_gradient_of_nothing<ls::RandomCrop<3, 4>>(image));
  CHECK(zero_gradient_of_nothing<ls::RandomFlip<>>(image));
  CHECK(zero_gradient_of_nothing<ls::RandomRotation<ls::factor(0.5)>>(image));
  CHECK(zero_gradient_of_nothing<ls::RandomCutout<3>>(image));
  CHECK(zero_gradient_of_nothing<ls::ReLU>(image));
}

TEST_CASE("The gradient of equal maxima goes to the first one in row-major order") {
  const auto op = ls::MaxPooling2D<>::op(ls::shape(2, 4, 1));
  const auto run = testing::run_layer<Double>(op, 1, {1, 5, 2, 2, 5, 5, 2, 2}, {}, {10, 20});
  CHECK(run.y == std::vector<double>{5, 2});
  CHECK(run.dx == std::vector<double>{0, 10, 20, 0, 0, 0, 0, 0});
}

TEST_CASE("Equal maxima in global max pooling share the gradient") {
  const auto op = ls::GlobalMaxPooling2D::op(ls::shape(2, 2, 1));
  const auto run = testing::run_layer<Double>(op, 1, {5, 1, 5, 5}, {}, {6});
  CHECK(run.y == std::vector<double>{5});
  CHECK(run.dx == std::vector<double>{2, 0, 2, 2});
}

TEST_CASE("Global max pooling propagates NaN, in the gradient too") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t at = 0; at < 4; ++at) {
    std::vector<double> x{1, 2, 3, 4};
    x[at] = nan;
    const auto run =
        testing::run_layer<Double>(ls::GlobalMaxPooling2D::op(ls::shape(2, 2, 1)), 1, x, {}, {6});
    CHECK(std::isnan(run.y[0]));
    CHECK((std::isnan(run.dx[0]) && std::isnan(run.dx[3])));
  }
}

TEST_CASE("Layer normalization gives rows of mean 0 and variance 1, even far from 0") {
  const auto op = ls::LayerNormalization<ls::epsilon(1e-12f)>::op(ls::shape(3, 4));
  std::vector<double> x;
  for (int i = 0; i < 12; ++i) x.push_back(1e6 + i * i);
  const auto y =
      testing::run_layer<Double>(op, 1, x, {1, 1, 1, 1, 0, 0, 0, 0}, {}, {.training = false}).y;
  for (std::size_t row = 0; row < 12; row += 4) {
    double sum = 0, squares = 0;
    for (std::size_t k = row; k < row + 4; ++k) sum += y[k], squares += y[k] * y[k];
    CHECK(std::abs(sum) < 1e-9);
    CHECK(std::abs(squares - 4) < 1e-9);
  }
}

TEST_CASE("Max pooling saves one byte per output up to 256 taps and four above") {
  using K = ls::Kernel<ls::MaxPooling2DOp, Double>;
  CHECK(K::saved(ls::MaxPooling2D<16>::op(ls::shape(32, 32, 2))) == 8);
  CHECK(K::saved(ls::MaxPooling2D<ls::kernel(16, 17)>::op(ls::shape(32, 34, 2))) == 32);
}

TEST_CASE("Max pooling finds a winner beyond the 256th tap") {
  const auto op = ls::MaxPooling2D<17>::op(ls::shape(17, 17, 1));
  std::vector<double> x(289, 0), expected(289, 0);
  x[288] = 1;
  expected[288] = 3;
  CHECK(testing::run_layer<Double>(op, 1, x, {}, {3}).dx == expected);
}

TEST_CASE("Max pooling ignores padding in a window of negative numbers") {
  const auto op = ls::MaxPooling2D<3, ls::same, ls::strides(1)>::op(ls::shape(1, 2, 1));
  CHECK(testing::run_layer<Double>(op, 1, {-3, -2}, {}, {1, 1}).y == std::vector<double>{-2, -2});
}

TEST_CASE("Softmax of large logits does not overflow") {
  const ls::SoftmaxOp op{ls::shape(2)};
  CHECK(testing::run_layer<Double>(op, 1, {1e4, -1e4}, {}, {1, 1}).y == std::vector<double>{1, 0});
  const ls::LogSoftmaxOp log_op{ls::shape(2)};
  CHECK(testing::run_layer<Double>(log_op, 1, {1e4, -1e4}, {}, {1, 1}).y ==
        std::vector<double>{0, -2e4});
}

namespace {
struct SquareOp {
  static constexpr bool from_y = false;
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  template <class T>
  T value(T x) const {
    return x * x;
  }
  template <class T>
  T derivative(T x) const {
    return 2 * x;
  }
  bool operator==(const SquareOp&) const = default;
};
}  // namespace

TEST_CASE("A user-defined pointwise op needs no kernel") {
  const auto run = testing::run_layer<Double>(SquareOp{ls::shape(2)}, 1, {3, -4}, {}, {1, 2});
  CHECK(run.y == std::vector<double>{9, 16});
  CHECK(run.dx == std::vector<double>{6, -16});
}

TEST_CASE("An op may be passed to a kernel as a constant") {
  constexpr auto op = ls::Dense<1>::op(ls::shape(2));
  CHECK(testing::run_layer<Double>(ls::Constant<op>{}, 1, {2, 3}, {10, 100, 1}, {1}).y ==
        std::vector<double>{321});
}

TEST_CASE("A penalty adds l1 sum |w| + l2 sum w w to the sum") {
  using Float = ls::Reference<float>;
  auto context = Float{}.open(1, 0);
  const std::vector<float> w{1, -2, 3};
  double sum = 100;
  ls::Kernel<ls::Penalty, Float>::run({0.5, 0.25}, {context, w.data(), w.size(), &sum});
  CHECK(sum == 100 + 0.5 * 6 + 0.25 * 14);
}

TEST_CASE("Dense multiplies each row of the last axis by the same weights, as in Keras") {
  // y[n, r, u] = b[u] + sum_i x[n, r, i] k[i, u], for c = dL/dy: dk = x' c, db = sum c, dx = c k'.
  constexpr std::size_t count = 3, inputs = 3, units = 4;
  for (const ls::Shape in : {ls::shape(3), ls::shape(5, 3), ls::shape(6, 5, 3)}) {
    const auto op = ls::Dense<4>::op(in);
    CHECK(op.out().rank == in.rank);
    CHECK(op.out().size() == in.size() / inputs * units);
    CHECK(op.in() == in);
    const std::size_t rows = count * in.size() / inputs;
    const auto x = testing::normal_values(rows * inputs, 1);
    const auto w = testing::normal_values((inputs + 1) * units, 2);
    const auto c = testing::normal_values(rows * units, 3);
    std::vector<double> y(rows * units), dx(rows * inputs), dw(w.size());
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t u = 0; u < units; ++u) {
        y[r * units + u] = w[inputs * units + u];
        dw[inputs * units + u] += c[r * units + u];
        for (std::size_t i = 0; i < inputs; ++i) {
          y[r * units + u] += x[r * inputs + i] * w[i * units + u];
          dw[i * units + u] += x[r * inputs + i] * c[r * units + u];
          dx[r * inputs + i] += c[r * units + u] * w[i * units + u];
        }
      }
    const auto result = testing::run_layer<Double>(op, count, x, w, c);
    CHECK(testing::relative_error(result.y, y) < 1e-14);
    CHECK(testing::relative_error(result.dx, dx) < 1e-14);
    CHECK(testing::relative_error(result.dw, dw) < 1e-14);
  }
}
