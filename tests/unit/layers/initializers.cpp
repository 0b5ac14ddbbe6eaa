#include "lockstep/layers/initializers.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include "lockstep/layers/convolution/conv2d.hpp"
#include "lockstep/layers/dense.hpp"

namespace ls = lockstep;

namespace {

struct Moments {
  double mean = 0, deviation = 0, smallest = 0, largest = 0;
};

constexpr std::size_t draws = 200'000;

template <ls::InitializerPolicy I>
std::vector<double> draw(const I& init, ls::Shape shape, ls::Fans fans, std::size_t n,
                         std::uint64_t key = 42) {
  ls::Philox generator(key);
  std::vector<double> values(n);
  init(generator, shape, fans, values);
  return values;
}

template <ls::InitializerPolicy I>
Moments moments(const I& init, ls::Fans fans) {
  const auto values = draw(init, ls::shape(static_cast<int>(draws)), fans, draws);
  Moments m;
  double square = 0;
  for (const double v : values) m.mean += v / draws;
  for (const double v : values) square += (v - m.mean) * (v - m.mean) / draws;
  m.deviation = std::sqrt(square);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  m.smallest = *low;
  m.largest = *high;
  return m;
}

bool near(double a, double b, double tolerance) { return std::abs(a - b) <= tolerance; }

/// Expects values that fill the limits, stay inside, and have the moments of the uniform
/// distribution.
bool is_uniform(const Moments& m, double limit) {
  return m.smallest >= -limit && m.largest <= limit && m.smallest < -0.999 * limit &&
         m.largest > 0.999 * limit && near(m.mean, 0, 0.01 * limit) &&
         near(m.deviation, limit / std::sqrt(3.0), 0.01 * limit);
}

/// Expects values truncated at two deviations of the underlying normal distribution, with the
/// requested deviation after truncation.
bool is_truncated_normal(const Moments& m, double deviation) {
  const double cut = 2 * deviation / 0.87962566103423978;
  return m.smallest >= -cut && m.largest <= cut && m.largest > 0.98 * cut &&
         near(m.mean, 0, 0.01 * deviation) && near(m.deviation, deviation, 0.01 * deviation);
}

}  // namespace

TEST_CASE("Variance-scaling initializers have Keras' bounds and moments") {
  const ls::Fans fans{300, 100};
  CHECK(is_uniform(moments(ls::glorot_uniform, fans), std::sqrt(6.0 / 400)));
  CHECK(is_uniform(moments(ls::he_uniform, fans), std::sqrt(6.0 / 300)));
  CHECK(is_uniform(moments(ls::lecun_uniform, fans), std::sqrt(3.0 / 300)));
  CHECK(is_truncated_normal(moments(ls::glorot_normal, fans), std::sqrt(2.0 / 400)));
  CHECK(is_truncated_normal(moments(ls::he_normal, fans), std::sqrt(2.0 / 300)));
  CHECK(is_truncated_normal(moments(ls::lecun_normal, fans), std::sqrt(1.0 / 300)));
  const ls::VarianceScaling by_out{3, ls::FanMode::out, ls::Distribution::uniform};
  CHECK(is_uniform(moments(by_out, fans), std::sqrt(9.0 / 100)));
}

TEST_CASE("Plain random initializers have Keras' default bounds and moments") {
  CHECK(is_uniform(moments(ls::RandomUniform{}, {}), 0.05));
  const Moments normal = moments(ls::RandomNormal{}, {});
  CHECK(near(normal.mean, 0, 0.001));
  CHECK(near(normal.deviation, 0.05, 0.0005));
  CHECK(normal.largest > 3.5 * 0.05);
  const Moments truncated = moments(ls::TruncatedNormal{}, {});
  CHECK(near(truncated.deviation, 0.05 * 0.87962566103423978, 0.0005));
  CHECK(truncated.largest <= 0.1);
  CHECK(truncated.smallest >= -0.1);
}

TEST_CASE("constant initializers write their constant") {
  CHECK(draw(ls::zeros, ls::shape(3), {}, 3) == std::vector<double>{0, 0, 0});
  CHECK(draw(ls::ones, ls::shape(2), {}, 2) == std::vector<double>{1, 1});
  CHECK(draw(ls::ConstantValue{0.5}, ls::shape(2), {}, 2) == std::vector<double>{0.5, 0.5});
}

TEST_CASE("an orthogonal initializer yields orthonormal rows or columns, times the gain") {
  const auto gram_error = [](ls::Shape shape, std::size_t rows, std::size_t columns, double gain) {
    const auto a = draw(ls::Orthogonal{gain}, shape, {}, rows * columns);
    const bool by_rows = rows < columns;
    const std::size_t vectors = by_rows ? rows : columns, length = by_rows ? columns : rows;
    const auto at = [&](std::size_t v, std::size_t k) {
      return by_rows ? a[v * columns + k] : a[k * columns + v];
    };
    double worst = 0;
    for (std::size_t i = 0; i < vectors; ++i)
      for (std::size_t j = 0; j < vectors; ++j) {
        double dot = 0;
        for (std::size_t k = 0; k < length; ++k) dot += at(i, k) * at(j, k);
        worst = std::max(worst, std::abs(dot - (i == j ? gain * gain : 0)));
      }
    return worst;
  };
  CHECK(gram_error(ls::shape(12, 5), 12, 5, 1) < 1e-12);
  CHECK(gram_error(ls::shape(5, 12), 5, 12, 2) < 1e-12);
  CHECK(gram_error(ls::shape(3, 3, 2, 7), 18, 7, 1) < 1e-12);
}

TEST_CASE("initial values depend only on the generator's key") {
  const ls::Fans fans{10, 10};
  CHECK(draw(ls::glorot_uniform, ls::shape(50), fans, 50, 1) ==
        draw(ls::glorot_uniform, ls::shape(50), fans, 50, 1));
  CHECK(draw(ls::glorot_uniform, ls::shape(50), fans, 50, 1) !=
        draw(ls::glorot_uniform, ls::shape(50), fans, 50, 2));
}

TEST_CASE("a convolution counts its fans as receptive field times channels") {
  const auto p = ls::Conv2D<32, ls::kernel(5, 3)>::parameters(ls::shape(28, 28, 4));
  CHECK(p[0].fans.in == 60);
  CHECK(p[0].fans.out == 480);
  const auto d = ls::Dense<10>::parameters(ls::shape(64));
  CHECK(d[0].fans.in == 64);
  CHECK(d[0].fans.out == 10);
}

TEST_CASE("a layer's kernel starts glorot uniform and its bias at zero by default") {
  ls::Philox generator(3);
  std::vector<double> values(640);
  const auto in = ls::shape(64);
  const auto usual = ls::Dense<10>::parameters(in);
  usual[0].initializer(generator, usual[0].shape, usual[0].fans, values);
  const double limit = std::sqrt(6.0 / 74);
  CHECK(*std::max_element(values.begin(), values.end()) <= limit);
  CHECK(*std::max_element(values.begin(), values.end()) > 0.9 * limit);
  std::vector<double> bias(10, 9);
  usual[1].initializer(generator, usual[1].shape, usual[1].fans, bias);
  CHECK(bias == std::vector<double>(10, 0));

  const auto chosen =
      ls::Dense<10, ls::ones, ls::bias_initializer(ls::ConstantValue{0.25})>::parameters(in);
  chosen[0].initializer(generator, chosen[0].shape, chosen[0].fans, values);
  chosen[1].initializer(generator, chosen[1].shape, chosen[1].fans, bias);
  CHECK(values == std::vector<double>(640, 1));
  CHECK(bias == std::vector<double>(10, 0.25));
}
